"""OpenAI's embeddings, and a server that is merely compatible with them."""

from fake_providers.batches import OpenAIBatchApi
from fake_providers.faults import Fault, Refused
from fake_providers.server import FakeServer
from fake_providers.words import DIMENSIONS

FIELDS = {"model", "input", "dimensions", "encoding_format", "user"}
MODELS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
QUOTA = "You exceeded your current quota, please check your plan and billing details."


class OpenAIServer(OpenAIBatchApi, FakeServer):
    provider = "openai"
    fields = FIELDS
    model = "text-embedding-3-small"
    native_dimensions = MODELS[model]

    def routes(self):
        return [("POST", "/v1/embeddings", self.embeddings), *self.batch_routes()]

    def check_key(self, key):
        if not self.accepts(key):
            raise Refused(self.denied(key)) if key else self.refused(401, "You didn't provide an API key.")

    def embeddings(self, request, fault):
        body = request.body
        texts = self.checked_body(body)
        made = self.vectors(texts, fault, body.get("dimensions"))
        data = [{"object": "embedding", "index": place, "embedding": values} for place, values in enumerate(made)]
        tokens = self.tokens(texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}

    def checked_body(self, body):
        """The texts of a request, which has to be right."""
        self.must_be_known(body, self.fields, self.unknown_field)
        self.check_model(body)
        return self.list_of_texts(body.get("input"), self.bad_input)

    def check_model(self, body):
        model = body.get("model")
        if model not in MODELS:
            message = f"The model `{model}` does not exist or you do not have access to it."
            raise self.refused(404, message, code="model_not_found")
        if "dimensions" in body and (model == "text-embedding-ada-002" or not 0 < body["dimensions"] <= MODELS[model]):
            raise self.refused(400, "This model does not support specifying dimensions.")

    def unknown_field(self, field):
        return self.refused(400, f"Unrecognized request argument supplied: {field}")

    def bad_input(self):
        return self.refused(400, "'$.input' is invalid. Please check the API reference.")

    def too_many(self, count):
        message = (
            f"Invalid 'input': array too long. Expected an array with maximum length {self.most_items}, "
            f"but got an array with length {count} instead."
        )
        return self.refused(400, message, code="array_above_max_length")

    def error(self, status, message, code=None):
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def limited(self, seconds=1):
        error = {"message": f"Rate limit reached for {self.model}. Please try again in {seconds}s.", "type": "requests"}
        body = {"error": {**error, "param": None, "code": "rate_limit_exceeded"}}
        return Fault(429, body, {"retry-after": str(seconds), "retry-after-ms": str(1000 * seconds)})

    def quota(self):
        error = {"message": QUOTA, "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
        return Fault(429, {"error": error})

    def denied(self, key="sk-***"):
        message = f"Incorrect API key provided: {key}. You can find your API key in your account's settings."
        return Fault(401, self.error(401, message, code="invalid_api_key"))


class CompatibleServer(OpenAIServer):
    """Knows every model and needs no key; what it is asked for beyond that has to be right all the same."""

    provider = "openai-compatible"
    fields = FIELDS | {"input_type"}
    model = "words"
    native_dimensions = DIMENSIONS
    key_required = False

    def check_model(self, body):
        if not isinstance(body.get("model"), str):
            raise self.refused(400, "you must provide a model parameter")

    def list_of_texts(self, value, complain):
        """Others than OpenAI take an empty text."""
        return super().list_of_texts([text or " " for text in value] if isinstance(value, list) else value, complain)


class LMStudioServer(CompatibleServer):
    provider = "lmstudio"
    model = "text-embedding-nomic-embed-text-v1.5"
    native_dimensions = 768


class DeepInfraServer(CompatibleServer):
    provider = "deepinfra"
    prefix = "/v1/openai"
    model = "BAAI/bge-m3"
    native_dimensions = 1024
    key_required = True

    def routes(self):
        return [("POST", "/v1/openai/embeddings", self.embeddings)]
