"""Gemini's batch jobs: long-running operations over a file."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from memoryd_server.embed.batch_api import JobState, get, id_in, jsonl, multipart, objects, said, text_in
from memoryd_server.embed.http_calls import HttpCalls, HttpRequest
from memoryd_server.embed.pacing import Patience
from memoryd_server.embed.remote import Role, Wire, count_in
from memoryd_server.errors import EmbeddingUnavailable

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
_MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class GeminiBatches:
    """See `BatchApi`. `count` hears of tokens."""

    http: HttpCalls
    wire: Wire
    model: str
    prefix: str
    count: Callable[[int], None]

    def submit(self, name: str, texts: Mapping[str, str], patience: Patience) -> str:
        """See `BatchApi`."""
        config = {"displayName": name, "inputConfig": {"fileName": self._upload(name, texts, patience)}}
        path = f"/models/{quote(self.model, safe='')}:asyncBatchEmbedContent"
        request = HttpRequest("POST", path, json.dumps({"batch": config}).encode())
        return self._name(self.http.ask(request, patience, again=False), "batch")

    def _upload(self, name: str, texts: Mapping[str, str], patience: Patience) -> str:
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
        reply = self.http.ask(request, patience)
        return text_in(reply, "file", "name") or self._name(reply, "file")

    def _body(self, text: str) -> dict[str, Any]:
        input_ = (self.prefix + text).encode("utf-8", "replace").decode()
        (one,) = self.wire.request([input_], Role.DOCUMENT).body["requests"]
        return dict(one)

    def _name(self, reply: Any, what: str) -> str:
        found = id_in(reply, "name")
        if not found:
            raise EmbeddingUnavailable(f"{self.http.name} answers without the name of the {what}")
        return found

    def find(self, name: str, patience: Patience) -> str | None:
        """See `BatchApi`. Looks at the latest 2,000 jobs."""
        token = ""
        for _ in range(_MOST_PAGES):
            query = f"pageSize={_PAGE}" + (f"&pageToken={quote(token)}" if token else "")
            page = self.http.ask(get("/batches", query), patience)
            found = page.get("operations") if isinstance(page, dict) else None
            for job in found if isinstance(found, list) else []:
                if name in {text_in(job, "metadata", "displayName"), text_in(job, "displayName")}:
                    return self._name(job, "batch")
            token = text_in(page, "nextPageToken")
            if not token:
                return None
        return None

    def look(self, job_id: str, patience: Patience) -> JobState:
        """See `BatchApi`."""
        job = self.http.ask(get(_beneath("batches", job_id)), patience)
        word = self.http.discreet(text_in(job, "metadata", "state") or text_in(job, "state"))
        output = next(filter(None, (text_in(job, *path) for path in _OUTPUTS)), "")
        outputs = (output,) if output else ()
        why = self.http.discreet(said(job.get("error"))) if isinstance(job, dict) else ""
        if why or word.endswith(_FAILED):
            return JobState(word, True, outputs, why or f"it is {word}")
        if word.endswith(_DONE):
            return JobState(word, True, outputs, "" if output else f"it is {word} without an output file")
        return JobState(word)

    def answers(self, output: str, patience: Patience) -> Iterator[tuple[str, Any]]:
        """See `BatchApi`."""
        path = _beneath("files", output) + ":download"
        for line in objects(self.http.lines(get(path, "alt=media"), patience)):
            key = next((line[field] for field in ("key", "custom_id", "request_id") if line.get(field)), None)
            if isinstance(key, str):
                self.count(count_in(line, "response", "usageMetadata", "promptTokenCount") or 0)
                yield key, _values(line)

    def cancel(self, job_id: str, patience: Patience) -> None:
        """See `BatchApi`."""
        self.http.ask(HttpRequest("POST", _beneath("batches", job_id) + ":cancel", b"{}"), patience)


def _beneath(folder: str, name: str) -> str:
    """The path of a resource, with the folder that its name may or may not hold."""
    return f"/{folder}/{quote(name.removeprefix(folder + '/'), safe='')}"


def _values(line: Mapping[str, Any]) -> Any:
    reply = line.get("response")
    made = line.get("embedding") or (reply.get("embedding") if isinstance(reply, dict) else None)
    return made.get("values") if isinstance(made, dict) else None
