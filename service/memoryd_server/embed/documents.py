"""Who embeds the documents of an index: its provider call by call, or whatever takes them in larger jobs."""

from collections.abc import Callable, Sequence
from typing import Protocol

from memoryd_server.embed.provider import EmbeddingFailure, EmbeddingProvider
from memoryd_server.embed.vectors import Vector

TEXTS_A_CALL = 128


class DocumentEmbedder(Protocol):
    """Takes texts as many at a time as it wants, and makes vectors of them as `EmbeddingProvider` promises them."""

    def at_once(self, pending: int) -> int:
        """How many texts it wants to be handed next, where so many are pending; at least 1.

        What it makes of them is stored when it has answered: until then nobody sees them, and files that have changed
        wait.
        """
        ...

    def embed(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """See `EmbeddingProvider.embed_documents`, errors too."""
        ...


class DirectCalls:
    """Has the provider make vectors at once, a few requests' worth at a time."""

    def __init__(self, provider: EmbeddingProvider) -> None:
        self._provider = provider

    def at_once(self, pending: int) -> int:  # noqa: ARG002 -- it makes no difference here
        """See `DocumentEmbedder`."""
        return TEXTS_A_CALL

    def embed(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """See `DocumentEmbedder`."""
        return self._provider.embed_documents(texts, should_stop)
