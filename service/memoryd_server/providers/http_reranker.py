"""The reranker behind an HTTP server with the rerank API that Jina, Cohere, Voyage, vLLM and llama-server share.

A request is `POST .../rerank` with `{"model", "query", "documents"}`. A reply has a list `results` of
`{"index", "relevance_score"}`, which Voyage calls `data`. The fields in which the servers differ are not sent: the
number of results (`top_n`, at Voyage `top_k`), which is all of them by default, and whether the documents are returned.

The formats: https://docs.cohere.com/reference/rerank, https://docs.voyageai.com/reference/reranker-api,
https://jina.ai/reranker, https://docs.vllm.ai/en/stable/examples/pooling/score/,
https://github.com/ggml-org/llama.cpp/tree/master/tools/server
"""

import math
import weakref
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.foreign_text import whole_number
from memoryd_server.providers.http_client import HttpClient
from memoryd_server.providers.http_errors import RequestRefused, public_url
from memoryd_server.providers.pacing import WaitLimit
from memoryd_server.providers.remote import BadResponse, count_in
from memoryd_server.providers.reranker import (
    MAX_PASSAGES,
    RerankConfig,
    RerankFailure,
    RerankReply,
    clean_text,
    logistic,
)

LATE_SECONDS = 10.0
"""How long after the deadline a reply is still received; its scores are of use to the next search."""
MAX_REPLY_BYTES = 8 * 2**20
"""Maximum size of a reply. Some servers return the documents with the scores."""

_PATH = "/rerank"
_DEFAULT_PATH = "/v1"
_BYTES_PER_TOKEN = 4
# Rounding may leave a probability this far outside 0..1.
_TOLERANCE = 1e-3


class HttpReranker:
    """Scores by the server of `config`. Sends one request per call and does not repeat it.

    The connections of a reranker that nothing refers to are closed.

    Raises:
        EmbeddingUnavailable: the address, the key or a header is invalid.
    """

    provider = "http"

    def __init__(self, config: RerankConfig) -> None:
        base_url = base_of(config.base_url)
        self.model = config.model
        self.endpoint = public_url(base_url)
        self.problem = ""
        keys = [{"authorization": f"Bearer {key}"} for key in config.keys]
        self._http = HttpClient("the reranker", base_url, dict(config.headers), keys, max_reply_bytes=MAX_REPLY_BYTES)
        self._returns_logits = False
        weakref.finalize(self, self._http.close).atexit = False

    def prepare(self) -> None:
        """See `Reranker`. Does nothing."""

    def capacity(self, seconds: float) -> int:  # noqa: ARG002 -- servers score passages in parallel
        """See `Reranker`."""
        return MAX_PASSAGES

    def rerank(self, query: str, passages: Sequence[str], deadline: float) -> RerankReply:
        """See `Reranker`."""
        body: dict[str, Any] = {"model": self.model} if self.model else {}
        body |= {"query": clean_text(query), "documents": [clean_text(text) for text in passages[:MAX_PASSAGES]]}
        wait_limit = WaitLimit(deadline + LATE_SECONDS, lambda: False)
        try:
            reply = self._http.post_once(_PATH, body, wait_limit)
            scores = self._as_probabilities(scores_in(reply, len(body["documents"])))
        except BadResponse as fault:
            raise RerankFailure(f"{self._http.name} answers {fault}") from None
        except RequestRefused as refusal:
            raise RerankFailure(str(refusal)) from refusal
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            raise RerankFailure(error.message, error.retry_after_seconds) from error
        return RerankReply(scores, _tokens(reply, body))

    def _as_probabilities(self, scores: list[float | None]) -> tuple[float | None, ...]:
        """Return the scores within 0..1. A server that ever returned another number returns logits."""
        known = [score for score in scores if score is not None]
        if any(not -_TOLERANCE <= score <= 1 + _TOLERANCE for score in known):
            self._returns_logits = True
        to_unit = logistic if self._returns_logits else _clamp
        return tuple(None if score is None else to_unit(score) for score in scores)

    def close(self) -> None:
        """See `Reranker`."""
        self.problem = "the reranker is closed"
        self._http.close()


def base_of(url: str) -> str:
    """Return the base URL of an address: without a `/rerank` at the end, and with `/v1` if it has no path."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix(_PATH)
    if not parts.path.rstrip("/"):
        path = _DEFAULT_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def scores_in(reply: Any, count: int) -> list[float | None]:
    """Return the score of each of `count` documents in a reply; None for a document that the reply does not contain.

    Raises:
        BadResponse: the reply has no scores, an unknown document, one document twice, or a score that is not a number.
    """
    tree = reply if isinstance(reply, dict) else {}
    found = tree.get("results", tree.get("data"))
    if not isinstance(found, list) or not found:
        raise BadResponse("without a list of results")
    scores: list[float | None] = [None] * count
    for item in found:
        entry = item if isinstance(item, dict) else {}
        index = whole_number(entry.get("index"), count - 1)
        score = entry.get("relevance_score")
        if index is None:
            raise BadResponse(f"with a result whose index is not one of the {count} documents")
        if scores[index] is not None:
            raise BadResponse(f"with two scores for document {index}")
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise BadResponse(f"with a score of document {index} that is not a finite number")
        scores[index] = float(score)
    return scores


def _clamp(score: float) -> float:
    return min(max(score, 0.0), 1.0)


def _tokens(reply: Any, body: dict[str, Any]) -> int:
    """Return the tokens that the server counted, else an estimate: the query is read with each document."""
    counted = count_in(reply, "usage", "total_tokens")
    counted = count_in(reply, "meta", "tokens", "input_tokens") if counted is None else counted
    query, documents = body["query"], body["documents"]
    size = len(query.encode()) * len(documents) + sum(len(text.encode()) for text in documents)
    return size // _BYTES_PER_TOKEN if counted is None else counted
