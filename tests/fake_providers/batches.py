"""Batch jobs: files that are uploaded, jobs over them, and the files that these bring. What all providers share."""

import email
import json
import secrets
import time
from collections import deque
from dataclasses import dataclass, field

from fake_providers.faults import Fault, Refused

MOST_LINES = 50_000
FATES = ("done", "failed", "expired", "hangs", "strange", "silent", "empty")
"""How a job ends: well; failed; expired with half of it done; never; in a state nobody knows, then well; done with the
last text unanswered; done with no output."""


@dataclass
class Job:
    """A job, and what it will bring: `output` and `errors` are lines, by the time that it is over."""

    id: str
    name: str
    request: dict
    texts: dict
    fate: str
    looks: int = 0
    cancelled: bool = False
    problem: str = ""
    output: str = ""
    errors: str = ""
    born: int = field(default_factory=lambda: int(time.time()))


class BatchApi:
    """The part of a server that takes jobs.

    `fates` are used up one a job; then all end well. A job is done once it was looked at `looks` times. `bad(text)`
    says which texts are refused. Without `offered`, nobody knows of jobs here. `keep_back` lets a job be made without
    an answer, for so many seconds. `asked` counts each text of a job that was made.
    """

    def open_batches(self):
        self.files, self.jobs = {}, {}
        self.fates = deque()
        self.looks = 1
        self.bad = lambda _text: False
        self.offered = True
        self.keep_back = 0.0

    # What a provider's own class says.

    def text_of_line(self, line, job_request):
        """The key and the text of a line of an uploaded file; raises ValueError for one that is wrong."""
        raise NotImplementedError

    def answered(self, key, text, values, job_request):
        """The line that brings a vector."""
        raise NotImplementedError

    def unanswered(self, key, status, message):
        """The line that brings none."""
        raise NotImplementedError

    # What all share.

    def must_be_offered(self, request):
        if not self.offered:
            raise self.refused(404, f"Unknown request URL: {request.method} {request.path}.")

    def keep(self, content):
        name = secrets.token_hex(8)
        self.files[name] = content
        return name

    def parts(self, request, kind):
        """The parts of a multipart request: (headers, content)."""
        content_type = request.headers.get("content-type", "")
        if not content_type.startswith(f"multipart/{kind};") or not isinstance(request.body, bytes):
            raise self.refused(400, f"the request must be multipart/{kind}")
        head = f"content-type: {content_type}\r\n\r\n".encode()
        message = email.message_from_bytes(head + request.body)
        return [(part, part.get_payload(decode=True)) for part in message.get_payload()]

    def make_job(self, name, content, job_request):
        texts, problem = {}, ""
        try:
            for number, line in enumerate(content.splitlines(), 1):
                key, text = self.text_of_line(json.loads(line), job_request)
                if key in texts:
                    raise ValueError(f"line {number}: the custom_id {key} is used twice")  # noqa: TRY301
                texts[key] = text
            if len(texts) > MOST_LINES:
                raise ValueError("too many requests in one batch")  # noqa: TRY301
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        fate = self.fates.popleft() if self.fates else "done"
        job = Job(secrets.token_hex(8), name, job_request, texts, fate, problem=problem)
        with self._lock:
            self.jobs[job.id] = job
            self.asked.update(texts.values())
        time.sleep(self.keep_back)
        return job

    def known_job(self, job_id):
        if job_id not in self.jobs:
            raise self.refused(404, f"No batch found with id '{job_id}'.")
        return self.jobs[job_id]

    def known_file(self, file_id):
        if file_id not in self.files:
            raise self.refused(404, f"No such File object: {file_id}")
        return self.files[file_id]

    def state_of(self, job):
        """What it has come to: running, strange, done, failed, expired or cancelled."""
        job.looks += 1
        if job.cancelled:
            return "cancelled"
        if job.problem:
            return "failed"
        if job.looks <= self.looks or job.fate == "hangs":
            return "running"
        if job.fate == "strange" and job.looks <= self.looks + 1:
            return "strange"
        state = job.fate if job.fate in {"failed", "expired"} else "done"
        if state != "failed" and not job.output and job.fate != "empty":
            self._write(job)
        if state == "failed":
            job.problem = job.problem or "the batch could not be processed"
        return state

    def _write(self, job):
        good, wrong = [], []
        texts = list(job.texts.items())
        most = {"expired": len(texts) // 2, "silent": len(texts) - 1}.get(job.fate, len(texts))
        for place, (key, text) in enumerate(texts):
            if place >= most:
                if job.fate == "expired":
                    wrong.append(self.unanswered(key, 0, "This request could not be executed in time."))
            elif self.bad(text):
                wrong.append(self.unanswered(key, 400, "the text is refused"))
            else:
                (values,) = self.vectors([text], Fault(), self.dimensions_of(job.request))
                good.append(self.answered(key, text, values, job.request))
        # In no order: the keys tell what belongs to what.
        good.reverse()
        self.write_output(job, good, wrong)

    def dimensions_of(self, _job_request):
        return None

    def write_output(self, job, good, wrong):
        job.output = self.keep(lines(good))
        job.errors = self.keep(lines(wrong)) if wrong else ""


def lines(objects):
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def page(jobs, limit, after):
    """The newest jobs first, and whether there are more."""
    newest = list(reversed(jobs))
    start = next((place + 1 for place, job in enumerate(newest) if after and job.id == after), 0)
    return newest[start : start + limit], len(newest) > start + limit


STATES = {"running": "in_progress", "strange": "pondering", "done": "completed"}


class OpenAIBatchApi(BatchApi):
    """OpenAI's form; `window` and `model_apart` are where Voyage's differs."""

    window = "24h"
    model_apart = False

    def batch_routes(self):
        return [
            ("POST", "/v1/files", self.upload),
            ("GET", "/v1/files/([^/]+)/content", self.content),
            ("POST", "/v1/batches", self.create),
            ("GET", "/v1/batches", self.list_jobs),
            ("GET", "/v1/batches/([^/]+)", self.look),
            ("POST", "/v1/batches/([^/]+)/cancel", self.cancel),
        ]

    def upload(self, request, _fault):
        self.must_be_offered(request)
        fields = {
            part.get_param("name", header="content-disposition"): part for part, _ in self.parts(request, "form-data")
        }
        if set(fields) != {"purpose", "file"} or fields["purpose"].get_payload() != "batch":
            raise self.refused(400, "Invalid value for 'purpose'.")
        name = fields["file"].get_filename() or ""
        if not name.endswith(".jsonl"):
            raise self.refused(400, f"Invalid extension of {name!r} for batch: jsonl is supported.")
        content = fields["file"].get_payload(decode=True)
        file_id = self.keep(content)
        about = {"id": file_id, "object": "file", "bytes": len(content), "created_at": int(time.time())}
        return {**about, "filename": name, "purpose": "batch", "status": "processed"}

    def content(self, _request, _fault, file_id):
        return self.known_file(file_id)

    def create(self, request, _fault):
        self.must_be_offered(request)
        body = request.body
        known = {"input_file_id", "endpoint", "completion_window", "metadata"}
        self.must_be_known(body, known | ({"request_params"} if self.model_apart else set()), self.unknown_field)
        if body.get("endpoint") != "/v1/embeddings" or body.get("completion_window") != self.window:
            raise self.refused(400, "Invalid value for 'endpoint' or 'completion_window'.")
        metadata = body.get("metadata") or {}
        if len(metadata) > 16 or not all(isinstance(v, str) and len(v) <= 512 for v in metadata.values()):
            raise self.refused(400, "Invalid 'metadata'.")
        if self.model_apart:
            self.check_params(body.get("request_params") or {})
        content = self.known_file(body.get("input_file_id", ""))
        return self.shown(self.make_job(json.dumps(metadata, sort_keys=True), content, body))

    def list_jobs(self, request, _fault):
        jobs, more = page(list(self.jobs.values()), int(request.query.get("limit", 20)), request.query.get("after"))
        return {"object": "list", "data": [self.shown(job) for job in jobs], "has_more": more}

    def look(self, _request, _fault, job_id):
        return self.shown(self.known_job(job_id), looked=True)

    def cancel(self, _request, _fault, job_id):
        self.known_job(job_id).cancelled = True
        return self.shown(self.known_job(job_id))

    def shown(self, job, *, looked=False):
        state = self.state_of(job) if looked else "running"
        over = state not in {"running", "strange"}
        errors = {"object": "list", "data": [{"code": "invalid", "line": 1, "message": job.problem, "param": None}]}
        return {
            "id": job.id,
            "object": "batch",
            "endpoint": "/v1/embeddings",
            "errors": errors if over and job.problem else None,
            "input_file_id": job.request["input_file_id"],
            "completion_window": self.window,
            "status": STATES.get(state, state) if looked else "validating",
            "output_file_id": (job.output or None) if over else None,
            "error_file_id": (job.errors or None) if over else None,
            "created_at": job.born,
            "request_counts": {"total": len(job.texts), "completed": 0, "failed": 0},
            "metadata": job.request.get("metadata"),
        }

    def text_of_line(self, line, job_request):
        wanted = {"custom_id", "body"} if self.model_apart else {"custom_id", "method", "url", "body"}
        if set(line) != wanted:
            raise ValueError(f"a line has the fields {sorted(line)} instead of {sorted(wanted)}")
        body = line["body"] if not self.model_apart else {**job_request["request_params"], **line["body"]}
        if not self.model_apart and (line["method"], line["url"]) != ("POST", "/v1/embeddings"):
            raise ValueError("a line asks for something else")
        try:
            (text,) = self.checked_body(body)
        except Refused as refused:
            raise ValueError(refused.fault.body) from None
        return line["custom_id"], text

    def dimensions_of(self, _job_request):
        return None

    def answered(self, key, text, values, _job_request):
        data = [{"object": "embedding", "index": 0, "embedding": values}]
        body = {"object": "list", "data": data, "model": self.model, "usage": {"total_tokens": self.tokens([text])}}
        return {
            "id": secrets.token_hex(4),
            "custom_id": key,
            "response": {"status_code": 200, "request_id": secrets.token_hex(4), "body": body},
            "error": None,
        }

    def unanswered(self, key, status, message):
        if not status:
            return {"custom_id": key, "response": None, "error": {"code": "batch_expired", "message": message}}
        response = {"status_code": status, "body": self.error(status, message)}
        return {"custom_id": key, "response": response, "error": None}
