"""The providers that agents share: one for each way of making embeddings, however many agents ask for it."""

from collections.abc import Callable

from memoryd_server.embed import EmbeddingConfig, Selection


class Providers:
    """Selections by configuration, made on first use and closed together."""

    def __init__(self, select: Callable[[EmbeddingConfig], Selection]) -> None:
        self._select = select
        self._made: dict[EmbeddingConfig, Selection] = {}

    def selection(self, config: EmbeddingConfig) -> Selection:
        """The provider for a configuration, the same one for equal ones."""
        if config not in self._made:
            self._made[config] = self._select(config)
        return self._made[config]

    def close(self) -> None:
        """Ends every provider."""
        for selection in self._made.values():
            if selection.provider is not None:
                selection.provider.close()
        self._made.clear()
