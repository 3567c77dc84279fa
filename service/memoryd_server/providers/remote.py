"""The provider for HTTP servers, its wire format protocol, and the protocol of batch jobs.

`RemoteProvider` posts JSON with texts and receives vectors. The module of each provider defines its JSON
(`WireFormat`), its URL and how its key is sent. A batch job (`BatchApi`) embeds thousands of texts in one file at a
lower price, with answers within hours.
"""

import hashlib
import json
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.foreign_text import whole_number
from memoryd_server.model import EmbeddingSpec
from memoryd_server.providers.batching import MAX_ITEMS, Answer, RequestLimits, embed_in_batches
from memoryd_server.providers.http_client import HttpClient, HttpRequest, is_loopback, parse_reply
from memoryd_server.providers.http_errors import RequestRefused, parse_error_tree, public_url
from memoryd_server.providers.pacing import RequestSlots, WaitLimit
from memoryd_server.providers.provider import (
    EmbeddingFailure,
    EmbeddingProvider,
    ProviderState,
    ProviderStatus,
    RemoteConfig,
)
from memoryd_server.vectors import InvalidVector, Vector, unit

MOST_TEXTS = 50_000
"""Maximum number of texts of one job."""
MOST_JOB_BYTES = 40 * 2**20
"""Maximum UTF-8 bytes of the texts of one job. Providers accept more, but the whole job is held in memory."""

_MOST_ID_CHARS = 1_000

Lines = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Whether texts are embedded by batch jobs, and how jobs are waited for.

    Jobs are used only if at least `least_texts` vectors are missing.
    """

    enabled: bool = False
    wait: bool = True
    max_jobs: int = 2
    poll_seconds: float = 2.0
    timeout_minutes: int = 60
    least_texts: int = 2_000


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job; `word` is the provider's name of it.

    `over` is whether the job has ended. Then `outputs` are its output files, and `reason` says why a failed job's
    output is incomplete.
    """

    word: str
    over: bool = False
    outputs: tuple[str, ...] = ()
    reason: str = ""


class BatchApi(Protocol):
    """The batch jobs of one model. Calls block, are thread-safe, and raise the errors of `HttpClient.ask`."""

    def submit(self, name: str, texts: Mapping[str, str], wait_limit: WaitLimit) -> str:
        """Create a job for these texts, given by key, and return its id. `find` finds the job by its `name`."""
        ...

    def find(self, name: str, wait_limit: WaitLimit) -> str | None:
        """Return the id of the job of this name; None if there is none."""
        ...

    def job_state(self, job_id: str, wait_limit: WaitLimit) -> JobState:
        """Return the state of a job."""
        ...

    def answers(self, output: str, wait_limit: WaitLimit) -> Iterator[tuple[str, Any]]:
        """Yield the key of each answered text with its vector, unchecked; None if the text got no vector."""
        ...

    def cancel(self, job_id: str, wait_limit: WaitLimit) -> None:
        """Request the cancellation of a job."""
        ...


def jsonl(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return one JSON object per line."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def multipart(kind: str, parts: Iterable[tuple[Mapping[str, str], bytes]]) -> tuple[str, bytes]:
    """Return the content type and the body of a multipart request; `kind` is "form-data" or "related"."""
    boundary = secrets.token_hex(16)
    body = bytearray()
    for headers, content in parts:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        body += f"--{boundary}\r\n{head}\r\n".encode() + content + b"\r\n"
    return f"multipart/{kind}; boundary={boundary}", bytes(body + f"--{boundary}--\r\n".encode())


def objects(lines: Lines) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of an output. Lines that are not an object are skipped."""
    for line in lines:
        try:
            tree = parse_reply(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(tree, dict):
            yield tree


def error_message(tree: Any) -> str:
    """Return the message of an error in any of the usual forms; empty if there is none."""
    return parse_error_tree(tree).message if tree else ""


def text_in(tree: Any, *path: str) -> str:
    """Return the string at a path of an answer; empty if there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, str) else ""


def id_in(tree: Any, field: str) -> str:
    """Return the id in a field of an answer; empty if there is none or it is longer than any provider's ids."""
    found = text_in(tree, field)
    return found if len(found) <= _MOST_ID_CHARS else ""


def get(path: str, query: str = "") -> HttpRequest:
    """Return a GET request without a body."""
    return HttpRequest("GET", path, query=query)


_BYTES_PER_TOKEN = 4
_FOREVER = float("inf")
_SHOWN_HASH = 16
# Of one answer, and of all of them: databases and protobuf store 64 bits.
_MOST_TOKENS = 2**31
_MOST_TOKENS_IN_ALL = 2**62


class TextRole(Enum):
    """The role of a text: some models embed queries and documents differently."""

    QUERY = auto()
    DOCUMENT = auto()


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A JSON body to post to a path below the base URL."""

    path: str
    body: Mapping[str, Any]


class BadResponse(ValueError):
    """An answer that does not match the provider's documentation; the message completes "<provider> answers"."""


class WireFormat(Protocol):
    """The JSON of one kind of server. Pure."""

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:
        """Return the request for the vectors of these texts. Queries are passed one at a time."""
        ...

    def vectors(self, reply: Any) -> list[Any]:
        """Return the vectors of an answer in the order of the texts, unchecked.

        Raises:
            BadResponse: the answer has no vectors in the expected place.
        """
        ...

    def tokens(self, reply: Any) -> int | None:
        """Return the tokens that the server counted; None if it does not report them."""
        ...


class RemoteProvider:
    """Embeds with one model of one server. `wire` requests `spec.dimensions` in each request if they are set.

    `batches` creates the client of the server's batch jobs, and is None if there are none; it receives the callback
    that counts their tokens. `most_texts` is how many texts a request of this server may have, if that is few.
    The connections of a provider that nothing refers to are closed.
    """

    def __init__(
        self,
        spec: EmbeddingSpec,
        wire: WireFormat,
        http: HttpClient,
        batches: Callable[[Callable[[int], None]], BatchApi] | None = None,
        most_texts: int | None = None,
    ) -> None:
        self.spec = spec
        """The dimensions are set only if the configuration requests them."""
        self.problem = ""
        self._wire = wire
        self._http = http
        self._dimensions = spec.dimensions or 0
        slots = RequestSlots(http.pace.max_concurrent)
        self._limits = RequestLimits(spec.max_input_tokens, min(most_texts or MAX_ITEMS, MAX_ITEMS), slots=slots)
        self._lock = threading.Lock()
        self._tokens = 0
        self._closed = False
        self.batches = None if batches is None else batches(self._count)
        weakref.finalize(self, http.close).atexit = False

    def embed_query(self, text: str, deadline: float) -> Vector:
        """See `EmbeddingProvider`. Retried only as far as the deadline allows."""
        wait_limit = WaitLimit(deadline, lambda: False)
        answer = self._embed([self.spec.query_prefix + text], TextRole.QUERY, wait_limit, check_server=False)[0]
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        return answer

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """See `EmbeddingProvider`."""
        prefixed = [self.spec.document_prefix + text for text in texts]
        return self._embed(prefixed, TextRole.DOCUMENT, WaitLimit(_FOREVER, should_stop))

    def refresh(self) -> None:
        """See `EmbeddingProvider`. Does nothing."""

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`. The state is that of the last call."""
        with self._lock:
            problem, http = self.problem, self._http
            state = ProviderState.UNAVAILABLE if problem else ProviderState.READY
            return ProviderStatus(state, problem, http.calls, self._tokens, http.retries, http.failures)

    def close(self) -> None:
        """See `EmbeddingProvider`."""
        with self._lock:
            self._closed = True
            self.problem = "the provider is closed"
        self._http.close()

    def _embed(
        self, texts: Sequence[str], role: TextRole, wait_limit: WaitLimit, *, check_server: bool = True
    ) -> list[Answer]:
        return embed_in_batches(
            texts,
            self._limits,
            lambda batch: self._request(batch, role, wait_limit),
            wait_limit.should_stop,
            check_server=check_server,
        )

    def _request(self, texts: Sequence[str], role: TextRole, wait_limit: WaitLimit) -> list[Answer]:
        # A server would refuse the whole request for a character that UTF-8 cannot encode.
        inputs = [text.encode("utf-8", "replace").decode() for text in texts]
        request = self._wire.request(inputs, role)
        try:
            reply = self._http.post(request.path, request.body, wait_limit)
            vectors = self._vectors_in(reply, len(inputs))
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            self._set_problem(error.message)
            raise
        tokens = self._wire.tokens(reply)
        self._set_problem("")
        self._count(_estimate_tokens(inputs) if tokens is None else tokens)
        self._dimensions = self.spec.dimensions or _most_frequent(map(_length, vectors), self._dimensions)
        return [self._validated(vector) for vector in vectors]

    def _set_problem(self, problem: str) -> None:
        """Record the result of a call. A call that was under way when the provider was closed changes nothing."""
        with self._lock:
            self.problem = self.problem if self._closed else problem

    def _count(self, tokens: int) -> None:
        with self._lock:
            self._tokens = min(self._tokens + tokens, _MOST_TOKENS_IN_ALL)

    def _vectors_in(self, reply: Any, count: int) -> list[Any]:
        try:
            vectors = self._wire.vectors(reply)
        except BadResponse as fault:
            raise RequestRefused(f"{self._http.name} answers {fault}", too_many=False) from None
        if len(vectors) != count:
            words = f"{self._http.name} answers with {len(vectors)} embeddings for {count} texts"
            # One of the texts may be the reason, so the request is split as after a refusal.
            raise RequestRefused(words, too_many=False)
        return vectors

    def _validated(self, values: Any) -> Answer:
        try:
            return unit(values, self._dimensions or None)
        except InvalidVector as error:
            return EmbeddingFailure(f"{self._http.name}: {error}")


def identity_endpoint(config: RemoteConfig, base_url: str, document_input_type: str = "") -> str:
    """Return the endpoint in an identity: the address without credentials, and what else selects the vectors.

    That is the `input_type` of documents, if it is sent, and the headers that count. The value of a header is replaced
    by the start of its SHA-256, because it may be a secret.
    """
    names = {name.strip().lower() for name in config.identity_headers}
    values = {name.lower(): value for name, value in config.headers if name.lower() in names}
    parts = [f"{name} {hashlib.sha256(values[name].encode()).hexdigest()[:_SHOWN_HASH]}" for name in sorted(values)]
    if document_input_type:
        parts.append(f"input_type {document_input_type}")
    return public_url(base_url) + (f" ({', '.join(parts)})" if parts else "")


# The ends of the names of models that Ollama runs in its cloud, whatever the address: "gpt-oss:120b-cloud".
_CLOUD_MODELS = (":cloud", "-cloud")


def leaves_machine(spec: EmbeddingSpec) -> bool:
    """Return whether the texts of a model are sent to another machine, which may cost money.

    They are not if the model runs on this machine or its server is on loopback, unless its name is that of a cloud
    model of Ollama. A server on loopback that forwards texts of another model name is not recognized.
    """
    address = spec.endpoint.split(" ", 1)[0]
    return bool(address) and is_remote_model(address, spec.model)


def is_remote_model(address: str, model: str) -> bool:
    """Return whether the texts for a model of the server at `address` are sent to another machine."""
    return not is_loopback(address) or model.strip().lower().endswith(_CLOUD_MODELS)


def batches_of(provider: EmbeddingProvider) -> BatchApi | None:
    """Return the batch jobs of a provider; None if it has none."""
    return provider.batches if isinstance(provider, RemoteProvider) else None


def list_in(reply: Any, key: str) -> list[Any]:
    """Return the list at `key` of an answer.

    Raises:
        BadResponse: there is none.
    """
    found = reply.get(key) if isinstance(reply, dict) else None
    if not isinstance(found, list):
        raise BadResponse("without a list of embeddings")
    return found


def count_in(reply: Any, *path: str) -> int | None:
    """Return the count at a path of an answer; None if there is none or it is out of range."""
    for key in path:
        reply = reply.get(key) if isinstance(reply, dict) else None
    return whole_number(reply, _MOST_TOKENS)


def _length(vector: Any) -> int:
    return len(vector) if isinstance(vector, list) else 0


def _most_frequent(lengths: Iterable[int], known: int) -> int:
    """Return the expected length of the vectors: `known`, unless no vector has it; then the most frequent length."""
    counted = Counter(length for length in lengths if length)
    return known if known in counted or not counted else counted.most_common(1)[0][0]


def _estimate_tokens(texts: Sequence[str]) -> int:
    return sum(-(-len(text.encode()) // _BYTES_PER_TOKEN) for text in texts)
