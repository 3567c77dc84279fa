"""Google's Gemini API: a question alone, or documents together; errors as Google words them."""

from fake_providers.faults import Fault, Refused
from fake_providers.gemini_batches import GeminiBatchApi
from fake_providers.server import FakeServer

FIELDS = {"model", "content", "taskType", "title", "outputDimensionality"}
TASKS = {"RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT", "SEMANTIC_SIMILARITY", "CLASSIFICATION", "CLUSTERING"}
MODELS = {"gemini-embedding-001": 3072, "gemini-embedding-2-preview": 3072, "text-embedding-004": 768}
TYPES = "type.googleapis.com/google.rpc."
METRIC = "generativelanguage.googleapis.com/embed_content_free_tier_requests"
# The words are the same whether a minute's limit is exceeded or a day's.
EXCEEDED = "You exceeded your current quota, please check your plan and billing details."


class GeminiServer(GeminiBatchApi, FakeServer):
    provider = "gemini"
    prefix = "/v1beta"
    model = "gemini-embedding-001"
    native_dimensions = MODELS[model]
    most_items = 100

    def routes(self):
        return [
            ("POST", "/v1beta/models/([^/:]+):embedContent", self.embed),
            ("POST", "/v1beta/models/([^/:]+):batchEmbedContents", self.embed_many),
            *self.batch_routes(),
        ]

    def texts_of(self, body):
        asked = body.get("requests", [body] if "content" in body else [])
        return [_text(one) for one in asked if isinstance(one, dict)] if isinstance(asked, list) else []

    def key_of(self, request):
        return request.headers.get("x-goog-api-key") or request.query.get("key") or super().key_of(request)

    def check_key(self, key):
        if not key:
            raise self.refused(403, "Method doesn't allow unregistered callers (callers without established identity).")
        if not self.accepts(key):
            raise Refused(self.denied(key))

    def embed(self, request, fault, model):
        self.check_model(model)
        text = self.checked(request.body, model)
        (values,) = self.vectors([text], fault, request.body.get("outputDimensionality")) or [[]]
        return {"embedding": {"values": values}}

    def embed_many(self, request, fault, model):
        self.check_model(model)
        self.must_be_known(request.body, {"requests"}, self.unknown_field)
        asked = request.body.get("requests") or []
        if not asked:
            raise self.invalid("* BatchEmbedContentsRequest.requests: requests must not be empty\n")
        if len(asked) > self.most_items:
            raise self.too_many(len(asked))
        for one in asked:
            if one.get("model") != f"models/{model}":
                raise self.invalid("* BatchEmbedContentsRequest.requests: model must match the model in the URL\n")
        texts = [self.checked(one, model) for one in asked]
        made = self.vectors(texts, fault, asked[0].get("outputDimensionality"))
        return {"embeddings": [{"values": values} for values in made]}

    def check_model(self, model):
        if model not in MODELS:
            message = f"models/{model} is not found for API version v1beta, or is not supported for embedContent."
            raise self.refused(404, message)

    def checked(self, one, model):
        """The text of a request for one vector."""
        self.must_be_known(one, FIELDS, self.unknown_field)
        if one.get("taskType", "RETRIEVAL_QUERY") not in TASKS:
            raise self.invalid(f"Invalid value at 'task_type': \"{one['taskType']}\"")
        if "taskType" in one and model.startswith("gemini-embedding-2"):
            raise self.invalid("* EmbedContentRequest.task_type: is not supported by this model\n")
        if not _text(one):
            raise self.invalid("* EmbedContentRequest.content contains an empty Part.\n")
        return _text(one)

    def unknown_field(self, field):
        return self.invalid(f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.')

    def invalid(self, message):
        return self.refused(400, message)

    def too_many(self, _count):
        message = f"* BatchEmbedContentsRequest.requests: at most {self.most_items} requests can be in one batch\n"
        return self.invalid(message)

    def error(self, status, message, details=()):
        names = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
        error = {"code": status, "message": message, "status": names.get(status, "INTERNAL")}
        return {"error": {**error, **({"details": list(details)} if details else {})}}

    def limited(self, seconds=1):
        return self.exceeded("EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier", seconds)

    def quota(self):
        return self.exceeded("EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier", 45)

    def exceeded(self, limit, seconds):
        """No header says when to come again, and the pause in the body is of no use for a day's limit."""
        violation = {"quotaMetric": METRIC, "quotaId": limit, "quotaValue": "100"}
        details = [
            {"@type": TYPES + "QuotaFailure", "violations": [violation]},
            {"@type": TYPES + "Help", "links": [{"description": "Learn more about Gemini API quotas", "url": ""}]},
            {"@type": TYPES + "RetryInfo", "retryDelay": f"{seconds}s"},
        ]
        return Fault(429, self.error(429, f"{EXCEEDED}\nPlease retry in {seconds}s.", details))

    def denied(self, key="AIza***"):
        message = "API key not valid. Please pass a valid API key."
        reason = {"reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        info = {"@type": TYPES + "ErrorInfo", **reason}
        debug = {"@type": TYPES + "DebugInfo", "detail": f"Invalid API key: {key}"}
        return Fault(400, self.error(400, message, [info, debug]))


def _text(one):
    content = one.get("content")
    parts = content.get("parts", []) if isinstance(content, dict) else []
    return "".join(part.get("text", "") for part in parts if isinstance(part, dict))
