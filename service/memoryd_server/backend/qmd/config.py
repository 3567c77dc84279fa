"""What one agent's qmd is made with. The composition root fills it from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.backend.qmd.collections import Collection
from memoryd_server.backend.qmd.commands import Verb
from memoryd_server.backend.qmd.scope import Scope

PLUGIN = "qmd"
"""The name of this plug-in, which `memory.backend` has as a value."""


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """When qmd indexes, and how long it may take. Seconds; an interval of 0 is off."""

    on_boot: bool
    wait_for_boot: bool
    interval_seconds: float
    debounce_seconds: float
    embed_interval_seconds: float
    command_seconds: float
    update_seconds: float
    embed_seconds: float


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What one search may cost and return."""

    max_results: int
    max_snippet_chars: int
    max_injected_chars: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SessionsConfig:
    """Where transcripts are, where their text goes, and after how many days they are left out (None: never)."""

    transcripts: Path
    folder: Path
    retention_days: int | None


@dataclass(frozen=True, slots=True)
class QmdConfig:
    """One agent's qmd.

    `folder` is qmd's own, `environment` what its processes get besides what memoryd sets, `fallback` whether the
    builtin engine answers when qmd cannot. `embed_lock` is the file by which all daemons of the host embed one by one.
    """

    folder: Path
    command: str
    verb: Verb
    collections: tuple[Collection, ...]
    environment: Mapping[str, str]
    update: UpdateConfig
    limits: LimitsConfig
    scope: Scope | None
    sessions: SessionsConfig | None
    fallback: bool
    embed_lock: Path

    @classmethod
    def of(cls, plugins: Mapping[str, object]) -> "QmdConfig | None":
        """Return qmd's configuration among an agent's plug-ins; None if qmd is not configured."""
        found = plugins.get(PLUGIN)
        return found if isinstance(found, cls) else None
