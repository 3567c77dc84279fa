"""Bedrock's InvokeModel, with a bearer token, for the embedding models of Titan, Cohere and Nova."""

from urllib.parse import unquote

from fake_providers.faults import Fault
from fake_providers.server import FakeServer

TITAN = "amazon.titan-embed-text-v2:0"
COHERE = "cohere.embed-v4:0"
NOVA = "amazon.nova-2-multimodal-embeddings-v1:0"
DIMENSIONS = {
    TITAN: 1024,
    f"us.{TITAN}": 1024,
    NOVA: 3072,
    "cohere.embed-english-v3": 1024,
    "cohere.embed-multilingual-v3": 1024,
    COHERE: 1536,
}
LENGTHS = {TITAN: {256, 512, 1024}, NOVA: {256, 384, 1024, 3072}, COHERE: {256, 512, 1024, 1536}}


class BedrockServer(FakeServer):
    provider = "bedrock"
    prefix = ""
    most_items = 96
    # The only family that takes several texts, which most tests send.
    model = COHERE
    native_dimensions = DIMENSIONS[COHERE]

    def routes(self):
        return [("POST", "/model/([^/]+)/invoke", self.invoke)]

    def texts_of(self, body):
        params = body.get("singleEmbeddingParams")
        text = params.get("text") if isinstance(params, dict) else None
        single = body.get("inputText") or (text.get("value") if isinstance(text, dict) else None)
        texts = [single] if isinstance(single, str) else body.get("texts")
        return texts if isinstance(texts, list) else []

    def invoke(self, request, fault, name):
        model = unquote(name)
        if model not in DIMENSIONS:
            raise self.refused(400, "The provided model identifier is invalid.")
        if model.startswith("cohere."):
            return self.cohere(request.body, fault, model)
        return self.nova(request.body, fault) if model == NOVA else self.titan(request.body, fault)

    def titan(self, body, fault):
        self.must_be_known(body, {"inputText", "dimensions", "normalize", "embeddingTypes"}, self.unknown_field)
        (text,) = self.list_of_texts(body.get("inputText"), self.bad_input)
        (made,) = self.vectors([text], fault, self.length(body.get("dimensions"), TITAN))
        return {"embedding": made, "inputTextTokenCount": self.tokens([text])}

    def cohere(self, body, fault, model):
        fields = {"texts", "input_type", "embedding_types", "truncate"}
        self.must_be_known(body, fields | ({"output_dimension"} if "v4" in model else set()), self.unknown_field)
        if body.get("input_type") not in {"search_document", "search_query"}:
            raise self.refused(400, "Malformed input request: input_type is required.")
        texts = self.list_of_texts(body.get("texts"), self.bad_input)
        made = self.vectors(texts, fault, self.length(body.get("output_dimension"), model))
        if "embedding_types" not in body:
            return {"id": "0", "response_type": "embeddings_floats", "texts": texts, "embeddings": made}
        return {"id": "0", "response_type": "embeddings_by_type", "texts": texts, "embeddings": {"float": made}}

    def nova(self, body, fault):
        self.must_be_known(body, {"schemaVersion", "taskType", "singleEmbeddingParams"}, self.unknown_field)
        params = body.get("singleEmbeddingParams", {})
        self.must_be_known(params, {"embeddingPurpose", "embeddingDimension", "text"}, self.unknown_field)
        text = params.get("text", {})
        if body.get("taskType") != "SINGLE_EMBEDDING" or text.get("truncationMode") not in {"NONE", "START", "END"}:
            raise self.bad_input()
        if params.get("embeddingPurpose") not in {"GENERIC_INDEX", "TEXT_RETRIEVAL"}:
            raise self.bad_input()
        (value,) = self.list_of_texts(text.get("value"), self.bad_input)
        (made,) = self.vectors([value], fault, self.length(params.get("embeddingDimension"), NOVA))
        return {"embeddings": [{"embeddingType": "TEXT", "embedding": made}]}

    def length(self, asked, model):
        if asked is not None and asked not in LENGTHS.get(model, ()):
            raise self.refused(400, f"Malformed input request: {asked} is not a valid enum value.")
        return asked or DIMENSIONS[model]

    def bad_input(self):
        return self.refused(400, "Malformed input request, please reformat your input and try again.")

    def unknown_field(self, field):
        return self.refused(400, f"Malformed input request: extraneous key [{field}] is not permitted.")

    def too_many(self, count):
        return self.refused(400, f"Malformed input request: expected maxItems: {self.most_items}, actual: {count}")

    def error(self, _status, message):
        return {"message": message}

    def limited(self, seconds=1):
        body = self.error(429, "Too many requests, please wait before trying again.")
        return Fault(429, body, {"retry-after": str(seconds), "x-amzn-errortype": "ThrottlingException"})

    def quota(self):
        """None is documented; this is HTTP's own way to say it."""
        return Fault(402, self.error(402, "Payment required."))

    def denied(self):
        return Fault(403, self.error(403, "Authentication failed: Please make sure your API Key is valid."))
