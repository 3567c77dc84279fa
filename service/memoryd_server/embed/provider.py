"""What every maker of embeddings offers. Calls block and may come from any thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memoryd_server.embed.spec import EmbeddingSpec
from memoryd_server.vectors import Vector

PLAIN_TEXT = "ping"
"""A text that no provider has a reason to refuse: what comes of it is the provider's doing."""


@dataclass(frozen=True, slots=True)
class EmbeddingFailure:
    """Why a text got no vector. `transient` when the text is not at fault: a later call may embed it.

    Where it is not `transient`, the provider has embedded another text since.
    """

    reason: str
    transient: bool = False


class ProviderState(StrEnum):
    """Whether a provider can be expected to answer."""

    READY = "ready"
    STARTING = "starting"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """How a provider fares; `reason` is empty when it is ready.

    `calls`, `tokens`, `retries` and `failures` count since the provider was made; a call that was made again counts
    each time. Tokens are the provider's own count where it gives one, else a fourth of the bytes.
    """

    state: ProviderState
    reason: str = ""
    calls: int = 0
    tokens: int = 0
    retries: int = 0
    failures: int = 0


class EmbeddingProvider(Protocol):
    """Makes vectors of texts: finite, of length one, of the dimensions of its spec. Adds the prefixes of its spec.

    Where the spec leaves the dimensions open, the vectors of one request have the same; a server may change its model.
    """

    @property
    def spec(self) -> EmbeddingSpec:
        """What the vectors are made with. Fixed, except that `refresh` may find out the dimensions of a model file.

        Does no I/O, like `status`.
        """
        ...

    def refresh(self) -> None:
        """Look again at what the provider needs on this machine, such as a model file. Blocks.

        `spec` and `status` report what was found.
        """
        ...

    def embed_query(self, text: str, deadline: float) -> Vector:
        """The vector of a question, before `deadline` in `time.monotonic()`.

        Raises:
            EmbeddingUnavailable: the provider does not answer in time, or not with a usable vector.
            EmbeddingQuotaExceeded: its quota is used up.
        """
        ...

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """A vector or a failure for each text, in order. May retry and wait; asks `should_stop` meanwhile.

        Nothing made is thrown away: once stopped, or when the provider fails after its first answers, the rest are
        transient failures.

        Raises:
            EmbeddingUnavailable: the provider failed before it gave an answer.
            EmbeddingQuotaExceeded: its quota is used up, before it gave an answer.
        """
        ...

    def status(self) -> ProviderStatus:
        """Return how it fares, as far as is known without I/O."""
        ...

    def close(self) -> None:
        """Ends what it holds; calls under way fail. Closing twice is fine."""
        ...
