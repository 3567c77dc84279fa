"""OpenAI's wire format: OpenAI, compatible servers, LM Studio, DeepInfra, Mistral and Voyage AI, and batch jobs.

All of them implement `POST /embeddings`. Mistral makes vectors of a chosen length only with `codestral-embed`. Voyage
prepends its own prompt to queries and documents, selected by `input_type`. The batch jobs of OpenAI and Voyage differ
in where the model is named and in how long a job may take.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from memoryd_server.errors import EmbeddingUnavailable, MemorydError
from memoryd_server.foreign_text import whole_number
from memoryd_server.providers.api_keys import Header
from memoryd_server.providers.http_client import INDEXING_SECONDS, HttpClient, HttpRequest
from memoryd_server.providers.pacing import WaitLimit
from memoryd_server.providers.provider import RemoteConfig, spec_for
from memoryd_server.providers.remote import (
    BadResponse,
    EmbeddingRequest,
    JobState,
    RemoteProvider,
    TextRole,
    WireFormat,
    count_in,
    error_message,
    get,
    id_in,
    identity_endpoint,
    jsonl,
    list_in,
    multipart,
    objects,
    text_in,
)


@dataclass(frozen=True, slots=True)
class OpenAIFormat:
    """OpenAI's JSON. `input_types` are the values of `input_type` per role, for servers that have this field."""

    model: str
    dimensions: int | None
    dimensions_field: str = "dimensions"
    input_types: Mapping[TextRole, str] = field(default_factory=dict)

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:
        """See `WireFormat`."""
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if role in self.input_types:
            body["input_type"] = self.input_types[role]
        if self.dimensions is not None:
            body[self.dimensions_field] = self.dimensions
        return EmbeddingRequest("/embeddings", body)

    def vectors(self, reply: Any) -> list[Any]:
        """See `WireFormat`. Ordered by `index`; by position if the server gives no index."""
        data = [{"embedding": None} if item is None else item for item in list_in(reply, "data")]
        if not all(isinstance(item, dict) for item in data):
            raise BadResponse("without a list of embeddings")
        found = {_index(item, place): item.get("embedding") for place, item in enumerate(data)}
        if set(found) != set(range(len(data))):
            raise BadResponse("with embeddings whose indices do not fit the texts")
        return [found[place] for place in range(len(data))]

    def tokens(self, reply: Any) -> int | None:
        """See `WireFormat`."""
        return count_in(reply, "usage", "total_tokens") or count_in(reply, "usage", "prompt_tokens")


def openai_compatible(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for the server at `config.base_url`. A key is sent if one is configured.

    Raises:
        EmbeddingUnavailable: the base URL or the model is missing, or the address, a key or a header is invalid.
    """
    if not config.base_url:
        place = f" or models.providers.{config.provider}.baseUrl" if config.api else ""
        raise EmbeddingUnavailable(f"the provider {config.provider} needs memory.search.remote.baseUrl{place}")
    return _compatible(config, config.base_url)


INDEXING_SECONDS_OF_OWN_MACHINE = 600.0
"""Time limit of an indexing call if the model runs on the user's own machine and may have to be loaded first."""

LMSTUDIO_BASE_URL = "http://localhost:1234/v1"


def lmstudio(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for LM Studio, by default on this machine. The address may end in `/v1`, `/api/v1` or neither.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    return _compatible(config, _with_v1(config.base_url or LMSTUDIO_BASE_URL), INDEXING_SECONDS_OF_OWN_MACHINE)


def _with_v1(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
    except ValueError:
        # The client refuses the address.
        return base_url
    path = parts.path.rstrip("/").removesuffix("/v1").removesuffix("/api")
    return urlunsplit(parts._replace(path=f"{path}/v1"))


DEEPINFRA_BASE_URL = "https://api.deepinfra.com/v1/openai"


def deepinfra(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for DeepInfra, or for a compatible server at `config.base_url`.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    return _compatible(config, config.base_url or DEEPINFRA_BASE_URL)


def _compatible(config: RemoteConfig, base_url: str, indexing_seconds: float = INDEXING_SECONDS) -> RemoteProvider:
    if not config.model:
        raise EmbeddingUnavailable(f"the provider {config.provider} has no default model: set memory.search.model")
    types = {TextRole.QUERY: config.query_input_type, TextRole.DOCUMENT: config.document_input_type}
    http = HttpClient(
        config.provider,
        base_url,
        dict(config.headers),
        bearer(config.keys),
        indexing_seconds=indexing_seconds,
        pace=config.pace,
    )
    model = config.model.removeprefix(f"{config.provider}/")
    endpoint = identity_endpoint(config, base_url, config.document_input_type)
    spec = spec_for(config.provider, model, endpoint, config.dimensions)
    if config.document_input_type:
        # The server puts its own words before the text.
        spec = replace(spec, query_prefix="", document_prefix="")
    wire = OpenAIFormat(model, config.dimensions, input_types={role: value for role, value in types.items() if value})
    return RemoteProvider(spec, wire, http)


def openai_format_provider(
    config: RemoteConfig,
    base_url: str,
    dimensions_field: str = "dimensions",
    input_types: Mapping[TextRole, str] | None = None,
    batch_window: str = "",
) -> RemoteProvider:
    """Return a provider that uses this wire format, with its keys as bearer tokens.

    `batch_window` is the server's completion window of batch jobs; empty if the server has none. With `input_types`, a
    batch job carries the model and the input type itself instead of in its lines.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    http = HttpClient(config.provider, base_url, dict(config.headers), bearer(config.keys), pace=config.pace)
    model = config.model.removeprefix(f"{config.provider}/")
    spec = spec_for(config.provider, model, identity_endpoint(config, base_url), config.dimensions)
    wire = OpenAIFormat(model, config.dimensions, dimensions_field, input_types or {})
    if not batch_window:
        return RemoteProvider(spec, wire, http)
    model_in_job = input_types is not None
    return RemoteProvider(
        spec,
        wire,
        http,
        lambda count: OpenAIBatches(http, wire, spec.document_prefix, count, batch_window, model_in_job=model_in_job),
    )


_MOST_INDEX = 1_000_000


def bearer(keys: Sequence[str]) -> list[Header]:
    """Return a header for each key that carries it as a bearer token."""
    return [{"authorization": f"Bearer {key.strip()}"} for key in keys]


def _index(item: Mapping[str, Any], place: int) -> int:
    index = item.get("index")
    if index is None or isinstance(index, str | list | dict):
        return place
    found = whole_number(index, _MOST_INDEX)
    return -1 if found is None else found


OPENAI_BASE_URL = "https://api.openai.com/v1"


def openai(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for OpenAI, or for a compatible server at `config.base_url`.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    return openai_format_provider(config, config.base_url or OPENAI_BASE_URL, batch_window="24h")


MISTRAL_BASE_URL = "https://api.mistral.ai/v1"


def mistral(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for Mistral, or for a compatible server at `config.base_url`.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    return openai_format_provider(config, config.base_url or MISTRAL_BASE_URL, dimensions_field="output_dimension")


VOYAGE_BASE_URL = "https://api.voyageai.com/v1"

INPUT_TYPES: Mapping[TextRole, str] = {TextRole.QUERY: "query", TextRole.DOCUMENT: "document"}


def voyage(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for Voyage AI, or for a compatible server at `config.base_url`.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    return openai_format_provider(config, config.base_url or VOYAGE_BASE_URL, "output_dimension", INPUT_TYPES, "12h")


NAME_FIELD = "memoryd_job"
"""Metadata field that holds the name of a job."""

_ENDPOINT = "/v1/embeddings"
_FAILED = frozenset({"failed", "expired", "cancelled", "canceled"})
_PAGE = 100
_MAX_PAGES = 20
_BAD_STATUS = 400


@dataclass(frozen=True, slots=True)
class OpenAIBatches:
    """OpenAI's and Voyage's implementation of `BatchApi`. `count` is called with the tokens of each answer.

    With `model_in_job`, the job names the model and its lines do not.
    """

    http: HttpClient
    wire: WireFormat
    prefix: str
    count: Callable[[int], None]
    window: str = "24h"
    model_in_job: bool = False

    def submit(self, name: str, texts: Mapping[str, str], wait_limit: WaitLimit) -> str:
        """See `BatchApi`."""
        file_id = self._upload(name, texts, wait_limit)
        body: dict[str, Any] = {
            "input_file_id": file_id,
            "endpoint": _ENDPOINT,
            "completion_window": self.window,
            "metadata": {"source": "memoryd", NAME_FIELD: name},
        }
        if self.model_in_job:
            body["request_params"] = {key: value for key, value in self._body("").items() if key != "input"}
        request = HttpRequest("POST", "/batches", jsonl([body]))
        return self._id(self.http.ask(request, wait_limit, idempotent=False), "batch")

    def _upload(self, name: str, texts: Mapping[str, str], wait_limit: WaitLimit) -> str:
        disposition = f'form-data; name="file"; filename="{name}.jsonl"'
        lines = jsonl(self._line(key, text) for key, text in texts.items())
        content_type, content = multipart(
            "form-data",
            [
                ({"Content-Disposition": 'form-data; name="purpose"'}, b"batch"),
                ({"Content-Disposition": disposition, "Content-Type": "application/jsonl"}, lines),
            ],
        )
        return self._id(self.http.ask(HttpRequest("POST", "/files", content, content_type), wait_limit), "file")

    def _line(self, key: str, text: str) -> dict[str, Any]:
        body = self._body(text)
        if self.model_in_job:
            return {"custom_id": key, "body": {"input": body["input"]}}
        return {"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": body}

    def _body(self, text: str) -> dict[str, Any]:
        return dict(
            self.wire.request([(self.prefix + text).encode("utf-8", "replace").decode()], TextRole.DOCUMENT).body
        )

    def _id(self, reply: Any, what: str) -> str:
        found = id_in(reply, "id")
        if not found:
            raise EmbeddingUnavailable(f"{self.http.name} returned no id of the {what}")
        return found

    def find(self, name: str, wait_limit: WaitLimit) -> str | None:
        """See `BatchApi`. Searches the latest 2,000 jobs."""
        after = ""
        for _ in range(_MAX_PAGES):
            page = self.http.ask(
                get("/batches", f"limit={_PAGE}" + (f"&after={quote(after)}" if after else "")), wait_limit
            )
            jobs = page.get("data") if isinstance(page, dict) else None
            for job in jobs if isinstance(jobs, list) else []:
                if text_in(job, "metadata", NAME_FIELD) == name:
                    return self._id(job, "batch")
                after = text_in(job, "id")
            if not jobs or not page.get("has_more"):
                return None
        return None

    def job_state(self, job_id: str, wait_limit: WaitLimit) -> JobState:
        """See `BatchApi`. The output of an expired or cancelled job is kept."""
        job = self.http.ask(get(f"/batches/{quote(job_id, safe='')}"), wait_limit)
        word, output = self.http.redact(text_in(job, "status")), text_in(job, "output_file_id")
        outputs = (output,) if output else ()
        if word in _FAILED or (word == "completed" and not output):
            reason = self.http.redact(self._failure_reason(job, wait_limit))
            return JobState(word, True, outputs, reason or f"the job is {word} and has no output file")
        return JobState(word, word == "completed", outputs)

    def _failure_reason(self, job: Any, wait_limit: WaitLimit) -> str:
        """Return the error message of the job, or the first message of its error file."""
        faults = job.get("errors") if isinstance(job, dict) else None
        message = error_message(faults.get("data")) if isinstance(faults, dict) else ""
        file_id = text_in(job, "error_file_id")
        if message or not file_id:
            return message
        try:
            return next(filter(None, map(_error_in, objects(self._content(file_id, wait_limit)))), "")
        except MemorydError as error:
            return f"error file unavailable: {error.message}"

    def _content(self, file_id: str, wait_limit: WaitLimit) -> Iterator[bytes]:
        return self.http.lines(get(f"/files/{quote(file_id, safe='')}/content"), wait_limit)

    def answers(self, output: str, wait_limit: WaitLimit) -> Iterator[tuple[str, Any]]:
        """See `BatchApi`."""
        for line in objects(self._content(output, wait_limit)):
            reply = line.get("response")
            body = reply.get("body") if isinstance(reply, dict) else None
            key = text_in(line, "custom_id")
            if not key:
                continue
            self.count(count_in(body, "usage", "total_tokens") or 0)
            data = body.get("data") if isinstance(body, dict) and not _error_in(line) else None
            first = data[0] if isinstance(data, list) and data else None
            yield key, first.get("embedding") if isinstance(first, dict) else None

    def cancel(self, job_id: str, wait_limit: WaitLimit) -> None:
        """See `BatchApi`."""
        self.http.ask(HttpRequest("POST", f"/batches/{quote(job_id, safe='')}/cancel", b"{}"), wait_limit)


def _error_in(line: Mapping[str, Any]) -> str:
    """Return why a text got no vector; empty if it got one."""
    reply = line.get("response")
    if line.get("error"):
        return error_message(line["error"]) or "no reason given"
    if not isinstance(reply, dict):
        return "no response"
    status = reply.get("status_code")
    failed = isinstance(status, int) and status >= _BAD_STATUS
    return (error_message(reply.get("body")) or f"HTTP {status}") if failed else ""
