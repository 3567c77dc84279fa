"""Google's Gemini API and its batch jobs.

Older models receive the purpose of a text in the field `taskType`, newer ones as a prefix of the text. A key may be a
list of keys separated by commas. Batch jobs are long-running operations over an uploaded file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.foreign_text import parse_json
from memoryd_server.providers.api_keys import Header
from memoryd_server.providers.http_client import HttpClient, HttpRequest
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

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_TASKS: Mapping[TextRole, str] = {TextRole.QUERY: "RETRIEVAL_QUERY", TextRole.DOCUMENT: "RETRIEVAL_DOCUMENT"}

_GEMINI_2 = "gemini-embedding-2"
_GEMINI_2_DIMENSIONS = (768, 1536, 3072)


@dataclass(frozen=True, slots=True)
class GeminiFormat:
    """Gemini's JSON: `embedContent` for a query, `batchEmbedContents` for documents."""

    model: str
    dimensions: int | None

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:
        """See `WireFormat`."""
        path = f"/models/{quote(self.model, safe='')}"
        if role is TextRole.QUERY and len(texts) == 1:
            return EmbeddingRequest(f"{path}:embedContent", self._content(texts[0], role))
        model = {"model": f"models/{self.model}"}
        return EmbeddingRequest(
            f"{path}:batchEmbedContents", {"requests": [{**model, **self._content(text, role)} for text in texts]}
        )

    def _content(self, text: str, role: TextRole) -> dict[str, Any]:
        content: dict[str, Any] = {"content": {"parts": [{"text": text}]}}
        if not self.model.startswith(_GEMINI_2):
            content["taskType"] = _TASKS[role]
        if self.dimensions is not None:
            content["outputDimensionality"] = self.dimensions
        return content

    def vectors(self, reply: Any) -> list[Any]:
        """See `WireFormat`."""
        single = isinstance(reply, dict) and "embedding" in reply and "embeddings" not in reply
        found = [reply["embedding"]] if single else list_in(reply, "embeddings")
        if not all(item is None or isinstance(item, dict) for item in found):
            raise BadResponse("without a list of embeddings")
        return [None if item is None else item.get("values") for item in found]

    def tokens(self, reply: Any) -> int | None:
        """See `WireFormat`."""
        return count_in(reply, "usageMetadata", "promptTokenCount")


def gemini(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for the Gemini API, or for a compatible server at `config.base_url`.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid, or the model does not make vectors of the
            configured dimensions.
    """
    # A base URL of Gemini's OpenAI-compatible interface is accepted too.
    base_url = re.split(r"/openai(?:/|$)", (config.base_url or BASE_URL).rstrip("/"), maxsplit=1)[0].rstrip("/")
    keys = [_header(key) for joined in config.keys for key in _split_keys(joined)]
    http = HttpClient("gemini", base_url, dict(config.headers), keys, pace=config.pace)
    model = re.sub(r"^(?:models|gemini|google)/", "", config.model)
    dimensions = _dimensions(model, config.dimensions)
    spec = spec_for("gemini", model, identity_endpoint(config, base_url), dimensions)
    wire = GeminiFormat(model, dimensions)
    return RemoteProvider(spec, wire, http, lambda count: GeminiBatches(http, wire, model, spec.document_prefix, count))


def _dimensions(model: str, requested: int | None) -> int | None:
    if not model.startswith(_GEMINI_2):
        return requested
    dimensions = requested or _GEMINI_2_DIMENSIONS[-1]
    if dimensions not in _GEMINI_2_DIMENSIONS:
        allowed = ", ".join(map(str, _GEMINI_2_DIMENSIONS))
        raise EmbeddingUnavailable(f"{model} makes vectors of {allowed} dimensions: check outputDimensionality")
    return dimensions


def _split_keys(keys: str) -> list[str]:
    if keys.strip().startswith("{"):
        return [keys]
    return [key for key in re.split(r"[,;\s]+", keys) if key]


def _header(key: str) -> Header:
    """Return the header that carries an API key, or the token if the key is JSON with a `token`."""
    if key.strip().startswith("{"):
        try:
            token = parse_json(key).get("token")
        except ValueError:
            token = None
        if not isinstance(token, str) or not token:
            raise EmbeddingUnavailable("gemini: the key is JSON without a token")
        return {"authorization": f"Bearer {token}"}
    return {"x-goog-api-key": key}


# "BATCH_STATE_SUCCEEDED" today; "JOB_STATE_..." and the bare word elsewhere.
_DONE = ("SUCCEEDED", "COMPLETED", "DONE")
_FAILED = ("FAILED", "CANCELLED", "CANCELED", "EXPIRED")
_OUTPUTS = (
    ("metadata", "output", "responsesFile"),
    ("response", "responsesFile"),
    ("output", "responsesFile"),
    ("outputConfig", "file"),
    ("outputConfig", "fileId"),
)
_PAGE = 100
_MAX_PAGES = 20


@dataclass(frozen=True, slots=True)
class GeminiBatches:
    """Gemini's implementation of `BatchApi`. `count` is called with the tokens of each answer."""

    http: HttpClient
    wire: WireFormat
    model: str
    prefix: str
    count: Callable[[int], None]

    def submit(self, name: str, texts: Mapping[str, str], wait_limit: WaitLimit) -> str:
        """See `BatchApi`."""
        config = {"displayName": name, "inputConfig": {"fileName": self._upload(name, texts, wait_limit)}}
        path = f"/models/{quote(self.model, safe='')}:asyncBatchEmbedContent"
        request = HttpRequest("POST", path, json.dumps({"batch": config}).encode())
        return self._name(self.http.ask(request, wait_limit, idempotent=False), "batch")

    def _upload(self, name: str, texts: Mapping[str, str], wait_limit: WaitLimit) -> str:
        about = {"file": {"displayName": name, "mimeType": "application/jsonl"}}
        lines = jsonl({"key": key, "request": self._body(text)} for key, text in texts.items())
        content_type, content = multipart(
            "related",
            [
                ({"Content-Type": "application/json; charset=UTF-8"}, json.dumps(about).encode()),
                ({"Content-Type": "application/jsonl"}, lines),
            ],
        )
        request = HttpRequest("POST", "/files", content, content_type, root="/upload", query="uploadType=multipart")
        reply = self.http.ask(request, wait_limit)
        return text_in(reply, "file", "name") or self._name(reply, "file")

    def _body(self, text: str) -> dict[str, Any]:
        input_ = (self.prefix + text).encode("utf-8", "replace").decode()
        (one,) = self.wire.request([input_], TextRole.DOCUMENT).body["requests"]
        return dict(one)

    def _name(self, reply: Any, what: str) -> str:
        found = id_in(reply, "name")
        if not found:
            raise EmbeddingUnavailable(f"{self.http.name} returned no name of the {what}")
        return found

    def find(self, name: str, wait_limit: WaitLimit) -> str | None:
        """See `BatchApi`. Searches the latest 2,000 jobs."""
        token = ""
        for _ in range(_MAX_PAGES):
            query = f"pageSize={_PAGE}" + (f"&pageToken={quote(token)}" if token else "")
            page = self.http.ask(get("/batches", query), wait_limit)
            found = page.get("operations") if isinstance(page, dict) else None
            for job in found if isinstance(found, list) else []:
                if name in {text_in(job, "metadata", "displayName"), text_in(job, "displayName")}:
                    return self._name(job, "batch")
            token = text_in(page, "nextPageToken")
            if not token:
                return None
        return None

    def job_state(self, job_id: str, wait_limit: WaitLimit) -> JobState:
        """See `BatchApi`."""
        job = self.http.ask(get(_resource_path("batches", job_id)), wait_limit)
        word = self.http.redact(text_in(job, "metadata", "state") or text_in(job, "state"))
        output = next(filter(None, (text_in(job, *path) for path in _OUTPUTS)), "")
        outputs = (output,) if output else ()
        error = self.http.redact(error_message(job.get("error"))) if isinstance(job, dict) else ""
        if error or word.endswith(_FAILED):
            return JobState(word, True, outputs, error or f"the job is {word}")
        if word.endswith(_DONE):
            return JobState(word, True, outputs, "" if output else f"the job is {word} and has no output file")
        return JobState(word)

    def answers(self, output: str, wait_limit: WaitLimit) -> Iterator[tuple[str, Any]]:
        """See `BatchApi`."""
        path = _resource_path("files", output) + ":download"
        for line in objects(self.http.lines(get(path, "alt=media"), wait_limit)):
            key = next((line[field] for field in ("key", "custom_id", "request_id") if line.get(field)), None)
            if isinstance(key, str):
                self.count(count_in(line, "response", "usageMetadata", "promptTokenCount") or 0)
                yield key, _values(line)

    def cancel(self, job_id: str, wait_limit: WaitLimit) -> None:
        """See `BatchApi`."""
        self.http.ask(HttpRequest("POST", _resource_path("batches", job_id) + ":cancel", b"{}"), wait_limit)


def _resource_path(folder: str, name: str) -> str:
    """Return the path of a resource; `name` may already begin with `folder`."""
    return f"/{folder}/{quote(name.removeprefix(folder + '/'), safe='')}"


def _values(line: Mapping[str, Any]) -> Any:
    reply = line.get("response")
    embedding = line.get("embedding") or (reply.get("embedding") if isinstance(reply, dict) else None)
    return embedding.get("values") if isinstance(embedding, dict) else None
