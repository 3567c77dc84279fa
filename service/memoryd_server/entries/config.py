"""What one agent's entries are made with. The composition root fills it from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass

from memoryd_server.embed import EmbeddingConfig
from memoryd_server.entries.model import Place

PLUGIN = "entries"
"""The name of this plug-in."""


@dataclass(frozen=True, slots=True)
class EntryConfig:
    """Where entries are, and what the settings want done with them.

    `dimensions` is how long the settings say that vectors are; 0 where they do not. `auto_capture` and `auto_recall`
    are for the gateway: whether it stores and recalls without anybody asking. A provider that costs is not sent more
    than `confirm_above_tokens` unless somebody says so; 0 is no bound.
    """

    enabled: bool
    place: Place
    embedding: EmbeddingConfig
    dimensions: int
    auto_capture: bool
    auto_recall: bool
    capture_max_chars: int
    confirm_above_tokens: int

    @classmethod
    def of(cls, plugins: Mapping[str, object]) -> "EntryConfig | None":
        """Return the configuration of entries among an agent's plug-ins; None if there is none."""
        found = plugins.get(PLUGIN)
        return found if isinstance(found, cls) else None
