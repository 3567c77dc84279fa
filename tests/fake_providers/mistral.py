"""Mistral's embeddings. Its errors come in two forms: its own, and that of its validation."""

from fake_providers.faults import Fault
from fake_providers.server import FakeServer

FIELDS = {"model", "input", "encoding_format", "output_dimension", "output_dtype", "metadata"}
MODELS = {"mistral-embed": 1024, "codestral-embed": 1536}


class MistralServer(FakeServer):
    provider = "mistral"
    model = "mistral-embed"
    native_dimensions = MODELS[model]
    most_items = 512

    def routes(self):
        return [("POST", "/v1/embeddings", self.embeddings)]

    def embeddings(self, request, fault):
        body = request.body
        self.must_be_known(body, FIELDS, self.unknown_field)
        model = body.get("model")
        if model not in MODELS:
            raise self.refused(400, f"Invalid model: {model}", kind="invalid_model", code="1500")
        if "output_dimension" in body and model != "codestral-embed":
            raise self.refused(400, f"Model {model} does not support output_dimension.")
        texts = self.list_of_texts(body.get("input"), lambda: self.refused(400, "Invalid input."))
        made = self.vectors(texts, fault, body.get("output_dimension"))
        data = [{"object": "embedding", "embedding": values, "index": place} for place, values in enumerate(made)]
        tokens = self.tokens(texts)
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return {"id": "0", "object": "list", "data": data, "model": model, "usage": usage}

    def unknown_field(self, field):
        problem = {"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted"}
        return self.refused(422, {"detail": [problem]})

    def too_many(self, _count):
        message = "Too many inputs in request, split into more batches."
        return self.refused(400, message, kind="invalid_request_prompt", code="3210")

    def error(self, _status, message, kind="invalid_request_error", code=None):
        return {"object": "error", "message": message, "type": kind, "param": None, "code": code}

    def limited(self, seconds=1):
        body = self.error(429, "Rate limit exceeded", kind="rate_limited", code="1300")
        return Fault(429, {**body, "raw_status_code": 429}, {"retry-after": str(seconds)})

    def quota(self):
        """None is documented; this is HTTP's own way to say it."""
        return Fault(402, self.error(402, "Payment required."))

    def denied(self):
        return Fault(401, {"detail": "Unauthorized"})
