"""Gemini's batch jobs: operations over an uploaded file, the answers of all texts in one other file."""

from fake_providers.batches import BatchApi, lines
from fake_providers.faults import Refused

STATES = {"running": "RUNNING", "strange": "PONDERING", "done": "SUCCEEDED"}


class GeminiBatchApi(BatchApi):
    def batch_routes(self):
        return [
            ("POST", "/upload/v1beta/files", self.upload),
            ("GET", "/v1beta/files/([^/:]+):download", self.download),
            ("POST", "/v1beta/models/([^/:]+):asyncBatchEmbedContent", self.create),
            ("GET", "/v1beta/batches", self.list_jobs),
            ("GET", "/v1beta/batches/([^/:]+)", self.look),
            ("POST", "/v1beta/batches/([^/:]+):cancel", self.cancel),
        ]

    def upload(self, request, _fault):
        self.must_be_offered(request)
        if request.query.get("uploadType") != "multipart":
            raise self.invalid("uploadType must be multipart")
        (about, described), (part, content) = self.parts(request, "related")
        if about.get_content_type() != "application/json" or part.get_content_type() != "application/jsonl":
            raise self.invalid("the parts must be JSON and JSONL")
        if b"displayName" not in described:
            raise self.invalid("file.displayName is missing")
        return {"file": {"name": f"files/{self.keep(content)}", "mimeType": "application/jsonl", "state": "ACTIVE"}}

    def download(self, request, _fault, name):
        if request.query.get("alt") != "media":
            raise self.invalid("alt must be media")
        return self.known_file(name)

    def create(self, request, _fault, model):
        self.must_be_offered(request)
        self.check_model(model)
        self.must_be_known(request.body, {"batch"}, self.unknown_field)
        batch = request.body["batch"]
        self.must_be_known(batch, {"displayName", "inputConfig", "model", "priority"}, self.unknown_field)
        if not batch.get("displayName"):
            raise self.invalid("* BatchEmbedContentsRequest.batch.display_name: must not be empty\n")
        content = self.known_file(batch["inputConfig"]["fileName"].removeprefix("files/"))
        return self.shown(self.make_job(batch["displayName"], content, {"model": model}))

    def list_jobs(self, request, _fault):
        newest = list(reversed(self.jobs.values()))
        start, size = int(request.query.get("pageToken", 0)), int(request.query.get("pageSize", 50))
        answer = {"operations": [self.shown(job) for job in newest[start : start + size]]}
        return {**answer, "nextPageToken": str(start + size)} if len(newest) > start + size else answer

    def look(self, _request, _fault, job_id):
        return self.shown(self.known_job(job_id), looked=True)

    def cancel(self, _request, _fault, job_id):
        self.known_job(job_id).cancelled = True
        return {}

    def shown(self, job, *, looked=False):
        state = self.state_of(job) if looked else "pending"
        word = f"BATCH_STATE_{STATES.get(state, state.upper())}"
        metadata = {"model": f"models/{job.request['model']}", "displayName": job.name, "state": word}
        shown = {"name": f"batches/{job.id}", "metadata": {**metadata, "batchStats": {"requestCount": len(job.texts)}}}
        if state == "failed":
            return {**shown, "done": True, "error": {"code": 3, "message": job.problem}}
        if job.output and state in {"done", "expired"}:
            shown["metadata"]["output"] = {"responsesFile": f"files/{job.output}"}
            return {**shown, "done": True, "response": {"responsesFile": f"files/{job.output}"}}
        return shown

    def text_of_line(self, line, job_request):
        if set(line) != {"key", "request"}:
            raise ValueError(f"a line has the fields {sorted(line)}")
        try:
            return line["key"], self.checked(line["request"], job_request["model"])
        except Refused as refused:
            raise ValueError(refused.fault.body) from None

    def answered(self, key, text, values, _job_request):
        usage = {"promptTokenCount": self.tokens([text])}
        return {"key": key, "response": {"embedding": {"values": values}, "usageMetadata": usage}}

    def unanswered(self, key, status, message):
        return {"key": key, "error": {"code": status or 4, "message": message}}

    def write_output(self, job, good, wrong):
        job.output = self.keep(lines([*good, *wrong]))
