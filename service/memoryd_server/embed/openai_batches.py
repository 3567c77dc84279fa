"""OpenAI's batch jobs, and Voyage's, which differ in where the model stands and in how long a job may take."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from memoryd_server.embed.batch_api import JobState, get, id_in, jsonl, multipart, objects, said, text_in
from memoryd_server.embed.http_calls import HttpCalls, HttpRequest
from memoryd_server.embed.pacing import Patience
from memoryd_server.embed.remote import Role, Wire, count_in
from memoryd_server.errors import EmbeddingUnavailable, MemorydError

NAME_FIELD = "memoryd_job"
"""Where a job carries its name, among its metadata."""

_ENDPOINT = "/v1/embeddings"
_FAILED = frozenset({"failed", "expired", "cancelled", "canceled"})
_PAGE = 100
_MOST_PAGES = 20
_BAD_STATUS = 400


@dataclass(frozen=True, slots=True)
class OpenAIBatches:
    """See `BatchApi`. With `model_apart` the model stands in the job, not in each line. `count` hears of tokens."""

    http: HttpCalls
    wire: Wire
    prefix: str
    count: Callable[[int], None]
    window: str = "24h"
    model_apart: bool = False

    def submit(self, name: str, texts: Mapping[str, str], patience: Patience) -> str:
        """See `BatchApi`."""
        file_id = self._upload(name, texts, patience)
        body: dict[str, Any] = {
            "input_file_id": file_id,
            "endpoint": _ENDPOINT,
            "completion_window": self.window,
            "metadata": {"source": "memoryd", NAME_FIELD: name},
        }
        if self.model_apart:
            body["request_params"] = {key: value for key, value in self._body("").items() if key != "input"}
        request = HttpRequest("POST", "/batches", jsonl([body]))
        return self._id(self.http.ask(request, patience, again=False), "batch")

    def _upload(self, name: str, texts: Mapping[str, str], patience: Patience) -> str:
        disposition = f'form-data; name="file"; filename="{name}.jsonl"'
        lines = jsonl(self._line(key, text) for key, text in texts.items())
        content_type, content = multipart(
            "form-data",
            [
                ({"Content-Disposition": 'form-data; name="purpose"'}, b"batch"),
                ({"Content-Disposition": disposition, "Content-Type": "application/jsonl"}, lines),
            ],
        )
        return self._id(self.http.ask(HttpRequest("POST", "/files", content, content_type), patience), "file")

    def _line(self, key: str, text: str) -> dict[str, Any]:
        body = self._body(text)
        if self.model_apart:
            return {"custom_id": key, "body": {"input": body["input"]}}
        return {"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": body}

    def _body(self, text: str) -> dict[str, Any]:
        return dict(self.wire.request([(self.prefix + text).encode("utf-8", "replace").decode()], Role.DOCUMENT).body)

    def _id(self, reply: Any, what: str) -> str:
        found = id_in(reply, "id")
        if not found:
            raise EmbeddingUnavailable(f"{self.http.name} answers without the id of the {what}")
        return found

    def find(self, name: str, patience: Patience) -> str | None:
        """See `BatchApi`. Looks at the latest 2,000 jobs."""
        after = ""
        for _ in range(_MOST_PAGES):
            page = self.http.ask(
                get("/batches", f"limit={_PAGE}" + (f"&after={quote(after)}" if after else "")), patience
            )
            jobs = page.get("data") if isinstance(page, dict) else None
            for job in jobs if isinstance(jobs, list) else []:
                if text_in(job, "metadata", NAME_FIELD) == name:
                    return self._id(job, "batch")
                after = text_in(job, "id")
            if not jobs or not page.get("has_more"):
                return None
        return None

    def look(self, job_id: str, patience: Patience) -> JobState:
        """See `BatchApi`. What an expired or cancelled job has made is not lost."""
        job = self.http.ask(get(f"/batches/{quote(job_id, safe='')}"), patience)
        word, output = self.http.discreet(text_in(job, "status")), text_in(job, "output_file_id")
        outputs = (output,) if output else ()
        if word in _FAILED or (word == "completed" and not output):
            why = self.http.discreet(self._why(job, patience))
            return JobState(word, True, outputs, why or f"it is {word} without an output file")
        return JobState(word, word == "completed", outputs)

    def _why(self, job: Any, patience: Patience) -> str:
        """What the job itself says, or the first message of its error file."""
        faults = job.get("errors") if isinstance(job, dict) else None
        message = said(faults.get("data")) if isinstance(faults, dict) else ""
        file_id = text_in(job, "error_file_id")
        if message or not file_id:
            return message
        try:
            return next(filter(None, map(_fault, objects(self._content(file_id, patience)))), "")
        except MemorydError as error:
            return f"error file unavailable: {error.message}"

    def _content(self, file_id: str, patience: Patience) -> Iterator[bytes]:
        return self.http.lines(get(f"/files/{quote(file_id, safe='')}/content"), patience)

    def answers(self, output: str, patience: Patience) -> Iterator[tuple[str, Any]]:
        """See `BatchApi`."""
        for line in objects(self._content(output, patience)):
            reply = line.get("response")
            body = reply.get("body") if isinstance(reply, dict) else None
            key = text_in(line, "custom_id")
            if not key:
                continue
            self.count(count_in(body, "usage", "total_tokens") or 0)
            data = body.get("data") if isinstance(body, dict) and not _fault(line) else None
            first = data[0] if isinstance(data, list) and data else None
            yield key, first.get("embedding") if isinstance(first, dict) else None

    def cancel(self, job_id: str, patience: Patience) -> None:
        """See `BatchApi`."""
        self.http.ask(HttpRequest("POST", f"/batches/{quote(job_id, safe='')}/cancel", b"{}"), patience)


def _fault(line: Mapping[str, Any]) -> str:
    """Why a text got no vector; empty where it got one."""
    reply = line.get("response")
    if line.get("error"):
        return said(line["error"]) or "no reason given"
    if not isinstance(reply, dict):
        return "no response"
    status = reply.get("status_code")
    failed = isinstance(status, int) and status >= _BAD_STATUS
    return (said(reply.get("body")) or f"HTTP {status}") if failed else ""
