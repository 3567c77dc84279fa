"""Rerankers: servers with the rerank API, each as strict and with the same replies and errors as the real one.

A document's score is the share of the query's words that it has. A server that returns logits turns that into a number
from -4 to 4.
"""

from fake_providers.faults import Fault, Refused
from fake_providers.server import FakeServer

HUGE = 10**400


def share(query, document):
    """The share of the query's words that a document has."""
    words = set(query.lower().split())
    return len(words & set(document.lower().split())) / len(words)


class RerankServer(FakeServer):
    """`score(query, document)` is a number from 0 to 1. `fields` are those that a request may have."""

    fields = frozenset({"model", "query", "documents", "top_n"})
    paths = ("/v1/rerank",)
    model = "rerank-words"
    list_name = "results"

    def __init__(self, keys=(), port=0):
        self.score = share
        super().__init__(keys, port)

    def routes(self):
        return [("POST", path, self.rerank) for path in self.paths]

    def texts_of(self, body):
        texts = body.get("documents")
        return texts if isinstance(texts, list) else []

    def rerank(self, request, _fault):
        body = request.body
        if not isinstance(body, dict):
            raise self.invalid("the body is not an object")
        self.must_be_known(body, self.fields, lambda field: self.invalid(f"Unknown field: {field}"))
        self.check_model(body)
        if not isinstance(body.get("query"), str) or not body["query"]:
            raise self.invalid("query must be a string that is not empty")
        documents = self.list_of_texts(body.get("documents"), lambda: self.invalid("documents must be texts"))
        if not isinstance(body["documents"], list):
            raise self.invalid("documents must be an array")
        scores = [self.shown_score(self.score(body["query"], document)) for document in documents]
        order = sorted(range(len(documents)), key=lambda index: -scores[index])
        found = [{"index": index, "relevance_score": scores[index], **self.more(documents[index])} for index in order]
        return self.reply(found[: body.get("top_n", body.get("top_k"))], self.tokens([*documents, body["query"]]))

    # What a provider's own class says.

    def check_model(self, body):
        if body.get("model") != self.model:
            raise self.invalid(f"Model {body.get('model')} is not supported.")

    def shown_score(self, score):
        return score

    def more(self, _document):
        """What a result has in addition."""
        return {}

    def reply(self, found, tokens):
        usage = {"total_tokens": tokens}
        return {"object": "list", "model": self.model, self.list_name: found, "usage": usage}

    def invalid(self, message):
        return self.refused(400, message)

    def too_many(self, count):
        return self.invalid(f"at most {self.most_items} documents are allowed, but there are {count}")

    def error(self, _status, message):
        return {"detail": message}

    def limited(self, seconds=1):
        return Fault(429, self.error(429, "Rate limit exceeded."), {"retry-after": str(seconds)})

    def quota(self):
        return Fault(402, self.error(402, "Payment required: insufficient balance."))

    def denied(self):
        return Fault(401, self.error(401, "The API key is invalid."))

    # Faults of the scores.

    def changed(self, change):
        """A reply whose list of results is what `change` makes of it."""
        return Fault(change=lambda reply: {**reply, self.list_name: change(reply[self.list_name])})

    def wrong_index(self, index=10_000):
        return self.changed(lambda found: [{**found[0], "index": index}, *found[1:]])

    def twice(self):
        return self.changed(lambda found: [*found, found[0]])

    def not_finite(self, score=float("nan")):
        return self.changed(lambda found: [{**found[0], "relevance_score": score}, *found[1:]])

    def fewer(self, count=1):
        return self.changed(lambda found: found[:count])

    def garbage(self):
        return Fault(body=b"<html>Bad gateway</html>")

    def huge(self, size=9 * 2**20):
        return Fault(body=b'{"results": [], "pad": "' + b"x" * size + b'"}')


class JinaServer(RerankServer):
    """https://jina.ai/reranker: returns the documents unless a request says otherwise."""

    provider = "jina"
    fields = RerankServer.fields | {"return_documents", "truncation"}
    model = "jina-reranker-v2-base-multilingual"

    def more(self, document):
        return {"document": {"text": document}}


class CohereServer(RerankServer):
    """https://docs.cohere.com/reference/rerank"""

    provider = "cohere"
    prefix = "/v2"
    paths = ("/v2/rerank",)
    fields = RerankServer.fields | {"max_tokens_per_doc", "priority"}
    model = "rerank-v3.5"
    most_items = 1000

    def reply(self, found, tokens):
        meta = {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": tokens},
        }
        return {"id": "0", "results": found, "meta": meta}

    def error(self, _status, message):
        return {"message": message}


class VoyageRerankServer(RerankServer):
    """https://docs.voyageai.com/reference/reranker-api: the list and the number of results have other names."""

    provider = "voyage"
    fields = (RerankServer.fields - {"top_n"}) | {"top_k", "return_documents", "truncation"}
    model = "rerank-2.5"
    list_name = "data"
    most_items = 1000


class VllmServer(RerankServer):
    """https://docs.vllm.ai: also without a key, and at three paths."""

    provider = "vllm"
    paths = ("/rerank", "/v1/rerank", "/v2/rerank")
    fields = RerankServer.fields | {"truncate_prompt_tokens", "priority"}
    model = "BAAI/bge-reranker-base"
    key_required = False

    def check_model(self, body):
        if body.get("model", self.model) != self.model:
            raise Refused(Fault(404, self.error(404, f"The model `{body['model']}` does not exist.")))

    def more(self, document):
        return {"document": {"text": document}}

    def reply(self, found, tokens):
        return {"id": "rerank-0", "model": self.model, "usage": {"total_tokens": tokens}, "results": found}

    def error(self, status, message):
        return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}


class LlamaServer(RerankServer):
    """llama-server: knows one model, whatever a request calls it, and returns logits."""

    provider = "llama-server"
    prefix = ""
    paths = ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
    fields = RerankServer.fields | {"texts", "return_text"}
    key_required = False

    def check_model(self, body):
        pass

    def shown_score(self, score):
        return 8 * score - 4

    def reply(self, found, tokens):
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"model": "tiny", "object": "list", "usage": usage, "results": found}

    def error(self, status, message):
        return {"error": {"code": status, "message": message, "type": "invalid_request_error"}}


RERANKERS = {
    server.provider: server for server in (JinaServer, CohereServer, VoyageRerankServer, VllmServer, LlamaServer)
}
