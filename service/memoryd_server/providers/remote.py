"""What HTTP providers share; the batch-job protocol.

What all providers behind HTTP have in common: JSON with texts goes out, vectors come back.

A provider's own file says what its JSON looks like (`WireFormat`), where it is and how its key is sent.

Batch jobs: thousands of texts in one file, at a lower price, answered within hours. What all providers share.
"""

import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.foreign_text import parse_json
from memoryd_server.providers.batching import Answer, RequestLimits, embed_in_batches
from memoryd_server.providers.http_client import HttpClient, HttpRequest
from memoryd_server.providers.http_errors import RequestRefused, problem
from memoryd_server.providers.pacing import RequestSlots, WaitLimit
from memoryd_server.providers.provider import (
    EmbeddingFailure,
    EmbeddingProvider,
    EmbeddingSpec,
    ProviderState,
    ProviderStatus,
)
from memoryd_server.vectors import InvalidVector, Vector, unit

MOST_TEXTS = 50_000
"""Texts of one job."""
MOST_JOB_BYTES = 40 * 2**20
"""Bytes of UTF-8 that the texts of one job have at most; providers take more, but it is all in memory once."""

_MOST_ID_CHARS = 1_000

Lines = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When texts go through batch jobs, and how these are waited for; only where at least `least_texts` are missing."""

    enabled: bool = False
    wait: bool = True
    at_once: int = 2
    poll_seconds: float = 2.0
    timeout_minutes: int = 60
    least_texts: int = 2_000


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job is doing, in the provider's word.

    `over` when nothing more comes of it; then `outputs` are the files with what it made, and `reason` says why that is
    not all, where the job has failed.
    """

    word: str
    over: bool = False
    outputs: tuple[str, ...] = ()
    reason: str = ""


class BatchApi(Protocol):
    """The batch jobs of one model. Calls block, may come from any thread, and raise what `HttpClient.ask` does."""

    def submit(self, name: str, texts: Mapping[str, str], patience: WaitLimit) -> str:
        """The id of a new job for these texts, by their keys; `find` knows it by its `name`."""
        ...

    def find(self, name: str, patience: WaitLimit) -> str | None:
        """The id of the job of this name; None where there is none."""
        ...

    def look(self, job_id: str, patience: WaitLimit) -> JobState:
        """How a job is doing."""
        ...

    def answers(self, output: str, patience: WaitLimit) -> Iterator[tuple[str, Any]]:
        """The key of each answered text, with its vector, unchecked; with None where there is none."""
        ...

    def cancel(self, job_id: str, patience: WaitLimit) -> None:
        """Asks the provider to let it be."""
        ...


def jsonl(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """One JSON object a line."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def multipart(kind: str, parts: Iterable[tuple[Mapping[str, str], bytes]]) -> tuple[str, bytes]:
    """The content type and the body of a multipart request; `kind` is "form-data" or "related"."""
    boundary = secrets.token_hex(16)
    body = bytearray()
    for headers, content in parts:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        body += f"--{boundary}\r\n{head}\r\n".encode() + content + b"\r\n"
    return f"multipart/{kind}; boundary={boundary}", bytes(body + f"--{boundary}--\r\n".encode())


def objects(lines: Lines) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of an output; lines that hold none are passed over."""
    for line in lines:
        try:
            tree = parse_json(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(tree, dict):
            yield tree


def said(tree: Any) -> str:
    """The message of an error, in any of the usual forms; empty where there is none."""
    return problem(json.dumps(tree).encode()).message if tree else ""


def text_in(tree: Any, *path: str) -> str:
    """The text at a path of an answer; empty where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, str) else ""


def id_in(tree: Any, field: str) -> str:
    """The id at a field of an answer; empty where there is none, or one that no provider gives."""
    found = text_in(tree, field)
    return found if len(found) <= _MOST_ID_CHARS else ""


def get(path: str, query: str = "") -> HttpRequest:
    """A request without a body."""
    return HttpRequest("GET", path, query=query)


_BYTES_A_TOKEN = 4
_FOREVER = float("inf")
_MOST_TOKENS = 2**31


class TextRole(Enum):
    """What texts are: some models make other vectors of questions than of documents."""

    QUERY = auto()
    DOCUMENT = auto()


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """What is posted: a JSON body to a path beneath the base URL."""

    path: str
    body: Mapping[str, Any]


class BadResponse(ValueError):
    """An answer that is not what the provider's documentation promises; the message goes on from "answers"."""


class WireFormat(Protocol):
    """The JSON of one kind of server. Pure."""

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:
        """What asks for the vectors of these texts. Questions come one at a time."""
        ...

    def vectors(self, reply: Any) -> list[Any]:
        """The vectors of an answer, in the order of the texts, still unchecked.

        Raises:
            BadResponse: they are not where they should be.
        """
        ...

    def tokens(self, reply: Any) -> int | None:
        """The tokens that the server counted; None where it does not tell."""
        ...


class RemoteProvider:
    """One model of one server. `spec.dimensions`, when set, is asked for in each request by the `wire`.

    `batches` makes what its batch jobs are asked through, where it has any; it is given who counts their tokens.
    """

    def __init__(
        self,
        spec: EmbeddingSpec,
        wire: WireFormat,
        http: HttpClient,
        batches: Callable[[Callable[[int], None]], BatchApi] | None = None,
    ) -> None:
        self._spec = spec
        self._wire = wire
        self._http = http
        self._dimensions = spec.dimensions or 0
        self._limits = RequestLimits(spec.max_input_tokens, lanes=RequestSlots(http.pace.at_once))
        self._lock = threading.Lock()
        self._tokens = 0
        self._trouble = ""
        self._closed = False
        self.batches = None if batches is None else batches(self._count)

    @property
    def spec(self) -> EmbeddingSpec:
        """What the vectors are made with, with dimensions only if they are asked for."""
        return self._spec

    def embed_query(self, text: str, deadline: float) -> Vector:
        """See `EmbeddingProvider`. Tried again only as far as the deadline allows."""
        patience = WaitLimit(deadline, lambda: False)
        answer = self._embed([self._spec.query_prefix + text], TextRole.QUERY, patience, find_out_why=False)[0]
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        return answer

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """See `EmbeddingProvider`."""
        prefixed = [self._spec.document_prefix + text for text in texts]
        return self._embed(prefixed, TextRole.DOCUMENT, WaitLimit(_FOREVER, should_stop))

    def refresh(self) -> None:
        """See `EmbeddingProvider`. Nothing is needed on this machine."""

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`. The state is that of the last call."""
        with self._lock:
            trouble = "it is closed" if self._closed else self._trouble
            state = ProviderState.UNAVAILABLE if trouble else ProviderState.READY
            http = self._http
            return ProviderStatus(state, trouble, http.calls, self._tokens, http.retries, http.failures)

    def close(self) -> None:
        """See `EmbeddingProvider`."""
        self._closed = True
        self._http.close()

    def _embed(
        self, texts: Sequence[str], role: TextRole, patience: WaitLimit, *, find_out_why: bool = True
    ) -> list[Answer]:
        return embed_in_batches(
            texts,
            self._limits,
            lambda batch: self._request(batch, role, patience),
            patience.should_stop,
            find_out_why=find_out_why,
        )

    def _request(self, texts: Sequence[str], role: TextRole, patience: WaitLimit) -> list[Answer]:
        # What UTF-8 cannot hold is no text; a server would refuse the whole request for it.
        inputs = [text.encode("utf-8", "replace").decode() for text in texts]
        request = self._wire.request(inputs, role)
        try:
            reply = self._http.post(request.path, request.body, patience)
            vectors = self._counted(reply, len(inputs))
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            self._trouble = error.message
            raise
        tokens = self._wire.tokens(reply)
        self._trouble = ""
        self._count(_estimated(inputs) if tokens is None else tokens)
        self._dimensions = self._spec.dimensions or _usual(map(_length, vectors), self._dimensions)
        return [self._checked(vector) for vector in vectors]

    def _count(self, tokens: int) -> None:
        with self._lock:
            self._tokens += tokens

    def _counted(self, reply: Any, count: int) -> list[Any]:
        try:
            vectors = self._wire.vectors(reply)
        except BadResponse as fault:
            raise RequestRefused(f"{self._http.name} answers {fault}", too_many=False) from None
        if len(vectors) != count:
            words = f"{self._http.name} answers with {len(vectors)} embeddings for {count} texts"
            # One of the texts may be the reason, so they are sent again in parts, as after a refusal.
            raise RequestRefused(words, too_many=False)
        return vectors

    def _checked(self, values: Any) -> Answer:
        try:
            return unit(values, self._dimensions or None)
        except InvalidVector as error:
            return EmbeddingFailure(f"{self._http.name}: {error}")


def batches_of(provider: EmbeddingProvider) -> BatchApi | None:
    """How batch jobs are asked of a provider; None where it has none."""
    return provider.batches if isinstance(provider, RemoteProvider) else None


def list_in(reply: Any, key: str) -> list[Any]:
    """The list at `key` of an answer.

    Raises:
        BadResponse: there is none.
    """
    found = reply.get(key) if isinstance(reply, dict) else None
    if not isinstance(found, list):
        raise BadResponse("without a list of embeddings")
    return found


def count_in(reply: Any, *path: str) -> int | None:
    """The count at a path of an answer; None where there is none, or one that no answer can have."""
    for key in path:
        reply = reply.get(key) if isinstance(reply, dict) else None
    return reply if isinstance(reply, int) and 0 <= reply <= _MOST_TOKENS else None


def _length(vector: Any) -> int:
    return len(vector) if isinstance(vector, list) else 0


def _usual(lengths: Iterable[int], known: int) -> int:
    """The length that vectors of one answer should have: `known`, unless none has it and most have another one."""
    counted = Counter(length for length in lengths if length)
    return known if known in counted or not counted else counted.most_common(1)[0][0]


def _estimated(texts: Sequence[str]) -> int:
    return sum(-(-len(text.encode()) // _BYTES_A_TOKEN) for text in texts)
