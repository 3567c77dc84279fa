"""Voyage AI's embeddings. Its errors are one sentence in `detail`."""

from fake_providers.batches import OpenAIBatchApi
from fake_providers.faults import Fault
from fake_providers.server import FakeServer

FIELDS = {"input", "model", "input_type", "truncation", "output_dimension", "output_dtype", "encoding_format"}
DIMENSIONS = (256, 512, 1024, 2048)
MODELS = {"voyage-4-large", "voyage-4", "voyage-4-lite", "voyage-3-large", "voyage-3.5", "voyage-code-3"}


class VoyageServer(OpenAIBatchApi, FakeServer):
    provider = "voyage"
    model = "voyage-4-large"
    native_dimensions = 1024
    most_items = 1000
    window = "12h"
    model_apart = True

    def routes(self):
        return [("POST", "/v1/embeddings", self.embeddings), *self.batch_routes()]

    def embeddings(self, request, fault):
        body = request.body
        texts = self.checked_body(body)
        made = self.vectors(texts, fault, body.get("output_dimension"))
        data = [{"object": "embedding", "embedding": values, "index": place} for place, values in enumerate(made)]
        return {"object": "list", "data": data, "model": body["model"], "usage": {"total_tokens": self.tokens(texts)}}

    def check_params(self, params):
        self.checked_body({**params, "input": ["a text"]})

    def checked_body(self, body):
        """The texts of a request, which has to be right."""
        self.must_be_known(body, FIELDS, self.unknown_field)
        if body.get("model") not in MODELS:
            raise self.invalid(f"Model {body.get('model')} is not supported. Supported models are {sorted(MODELS)}.")
        if body.get("input_type") not in {None, "query", "document"}:
            raise self.invalid("Value for 'input_type' must be None, 'query' or 'document'.")
        if body.get("output_dimension") not in {None, *DIMENSIONS}:
            raise self.invalid(f"Value '{body['output_dimension']}' for argument 'output_dimension' is not valid.")
        return self.list_of_texts(body.get("input"), lambda: self.invalid("Input cannot contain empty strings."))

    def invalid(self, message):
        return self.refused(400, message)

    def unknown_field(self, field):
        return self.invalid(f"Argument '{field}' is not supported by our API.")

    def too_many(self, count):
        return self.invalid(f"The batch size limit is {self.most_items}. Your batch size is {count}.")

    def error(self, _status, message):
        return {"detail": message}

    def limited(self, seconds=1):
        message = (
            "You have not yet added your payment method in the billing page and will have reduced rate limits of "
            "3 RPM and 10K TPM."
        )
        return Fault(429, self.error(429, message), {"retry-after": str(seconds)})

    def quota(self):
        """None is documented; this is HTTP's own way to say it."""
        return Fault(402, self.error(402, "Payment required."))

    def denied(self):
        return Fault(401, self.error(401, "Provided API key is invalid."))
