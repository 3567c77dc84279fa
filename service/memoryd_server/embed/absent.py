"""A provider that was asked for and cannot be used: it stands where another one may stand in for it."""

from collections.abc import Callable, Sequence

from memoryd_server.embed.provider import EmbeddingFailure, ProviderState, ProviderStatus
from memoryd_server.embed.spec import EmbeddingSpec, spec_for
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.vectors import Vector


class AbsentProvider:
    """Makes no vector, and says why. `requested` is what the settings ask for."""

    def __init__(self, requested: str, reason: str) -> None:
        self._spec = spec_for(requested, "")
        self._reason = reason

    @property
    def spec(self) -> EmbeddingSpec:
        """The name alone."""
        return self._spec

    def refresh(self) -> None:
        """See `EmbeddingProvider`. Nothing is needed on this machine."""

    def embed_query(self, text: str, deadline: float) -> Vector:  # noqa: ARG002 -- whatever is asked
        """Never answers.

        Raises:
            EmbeddingUnavailable: always.
        """
        raise EmbeddingUnavailable(self._reason)

    def embed_documents(
        self,
        texts: Sequence[str],  # noqa: ARG002 -- whatever is asked
        should_stop: Callable[[], bool],  # noqa: ARG002
    ) -> list[Vector | EmbeddingFailure]:
        """Never answers.

        Raises:
            EmbeddingUnavailable: always.
        """
        raise EmbeddingUnavailable(self._reason)

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`."""
        return ProviderStatus(ProviderState.UNAVAILABLE, self._reason)

    def close(self) -> None:
        """There is nothing to end."""
