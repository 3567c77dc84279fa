"""Ollama's own embeddings: no key, vectors of length one, errors in one sentence."""

import math

from fake_providers.faults import Fault
from fake_providers.server import FakeServer

FIELDS = {"model", "input", "truncate", "options", "keep_alive", "dimensions"}


class OllamaServer(FakeServer):
    provider = "ollama"
    prefix = ""
    model = "nomic-embed-text"
    native_dimensions = 768
    key_required = False

    def __init__(self, keys=(), port=0):
        super().__init__(keys, port)
        self.pulled = {self.model, "all-minilm"}

    def routes(self):
        return [("POST", "/api/embed", self.embed), ("GET", "/api/tags", self.tags)]

    def tags(self, _request, _fault):
        return {"models": [{"name": name if ":" in name else f"{name}:latest"} for name in sorted(self.pulled)]}

    def embed(self, request, fault):
        body = request.body
        # The real one overlooks what it does not know; a test should not.
        self.must_be_known(body, FIELDS, lambda field: self.refused(400, f"unknown field {field}"))
        if body.get("model") not in self.pulled:
            raise self.refused(404, f'model "{body.get("model")}" not found, try pulling it first')
        texts = self.list_of_texts(body.get("input"), lambda: self.refused(400, "invalid input type"))
        made = self.vectors(texts, fault, body.get("dimensions"))
        return {
            "model": body["model"],
            "embeddings": [_unit(values) for values in made],
            "total_duration": 14_143_917,
            "load_duration": 1_019_500,
            "prompt_eval_count": self.tokens(texts),
        }

    def too_many(self, _count):
        """The real one has no such limit; proxies before it may."""
        return self.refused(400, f"input array too long: at most {self.most_items} items")

    def error(self, _status, message):
        return {"error": message}

    def limited(self, seconds=1):
        message = "server busy, please try again.  maximum pending requests exceeded"
        return Fault(503, self.error(503, message), {"retry-after": str(seconds)})

    def quota(self):
        """A hosted one's; the one on one's own machine has none."""
        return Fault(402, self.error(402, "payment required"))

    def denied(self):
        return Fault(401, self.error(401, "unauthorized"))


def _unit(values):
    length = math.hypot(*values)
    return [value / length for value in values]
