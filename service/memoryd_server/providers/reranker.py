"""The protocol of rerankers, and their configuration.

A reranker is a model that reads a query and a passage together and scores how well the passage answers the query. It is
slower than the retrievers, so it scores only their best candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from memoryd_server.providers.provider import LocalConfig

MAX_PASSAGES = 100
"""The maximum number of passages of one call."""
MAX_PASSAGE_CHARS = 2_000
"""A longer passage or query is cut to this number of code points before it is scored."""


class RerankFailure(Exception):
    """A call of a reranker without usable scores. `retry_after_seconds` is the pause that the server requested."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class RerankReply:
    """A score for each passage, 0..1, in their order; None for a passage that got none. At least one has a score.

    `tokens` is the number of tokens read, as the server counts them, else a fourth of the bytes.
    """

    scores: tuple[float | None, ...]
    tokens: int


class Reranker(Protocol):
    """Scores passages for a query. `rerank` blocks; everything else does no I/O. Thread-safe."""

    @property
    def provider(self) -> str:
        """The name of the provider in the settings: http or local."""
        ...

    @property
    def model(self) -> str:
        """The name of the model; empty if the settings name none."""
        ...

    @property
    def endpoint(self) -> str:
        """The address of the server without credentials; empty for a local model."""
        ...

    @property
    def problem(self) -> str:
        """Why a call would fail now. Empty if it is expected to succeed."""
        ...

    def prepare(self) -> None:
        """Begin, in the background, to remove the `problem`, for example by loading the model. Returns immediately."""
        ...

    def capacity(self, seconds: float) -> int:
        """Return how many passages a call can score within `seconds`, at least 1."""
        ...

    def rerank(self, query: str, passages: Sequence[str], deadline: float) -> RerankReply:
        """Return the scores of at most `MAX_PASSAGES` passages, best candidates first.

        The caller waits until `deadline`, which is in `time.monotonic()`. A local model stops there and returns the
        scores so far. A request to a server cannot be taken back, so its reply is received up to some seconds later.

        Raises:
            RerankFailure: there is no score.
        """
        ...

    def close(self) -> None:
        """Release all resources; calls under way fail. Closing twice is allowed."""
        ...


@dataclass(frozen=True, slots=True)
class RerankConfig:
    """Configuration of the reranker: "http", "local" or "none". Equal configurations can share one.

    `keys` and `headers` are those of the server at `base_url`. `problem` says why nothing may be sent; `blocked_by`
    names settings that are not understood and may restrict what is sent: if there are any, no server is called.
    """

    provider: str = "none"
    model: str = ""
    base_url: str = ""
    keys: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    local: LocalConfig = field(default_factory=LocalConfig)
    problem: str = ""
    blocked_by: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return provider and model, without the secrets."""
        return f"RerankConfig(provider={self.provider!r}, model={self.model!r})"


class UnavailableReranker:
    """Takes the place of a reranker that is configured but cannot be used, and says why."""

    endpoint = ""

    def __init__(self, provider: str, model: str, reason: str) -> None:
        self.provider = provider
        self.model = model
        self.problem = reason

    def prepare(self) -> None:
        """See `Reranker`. Does nothing."""

    def capacity(self, seconds: float) -> int:  # noqa: ARG002 -- no passage is scored
        """See `Reranker`."""
        return MAX_PASSAGES

    def rerank(self, query: str, passages: Sequence[str], deadline: float) -> RerankReply:  # noqa: ARG002
        """Raise an error with the reason.

        Raises:
            RerankFailure: always.
        """
        raise RerankFailure(self.problem)

    def close(self) -> None:
        """See `Reranker`. Does nothing."""


def clean_text(text: str) -> str:
    """Return a query or a passage ready to be sent: cut, encodable, and not empty."""
    return text[:MAX_PASSAGE_CHARS].encode("utf-8", "replace").decode() or " "


def logistic(logit: float) -> float:
    """Return the logistic function of `logit`, 0..1."""
    if logit < 0:
        return math.exp(max(logit, -700.0)) / (1.0 + math.exp(max(logit, -700.0)))
    return 1.0 / (1.0 + math.exp(-logit))
