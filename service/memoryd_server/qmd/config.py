"""QmdConfig, which the composition root fills from the settings, and the rules for which sessions may search. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.qmd.client import QmdSearchMode
from memoryd_server.qmd.home import Collection
from memoryd_server.sessions import SessionKey


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """The properties that a session must have. All that are not None must match."""

    channel: str | None = None
    chat_type: str | None = None
    key_prefix: str | None = None
    raw_key_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRule:
    """Whether sessions that match may search."""

    allow: bool
    match: SessionMatch


@dataclass(frozen=True, slots=True)
class SessionScope:
    """The rules in order. The first that matches decides; if none matches, `allow` does."""

    allow: bool
    rules: Sequence[SessionRule] = ()


def allows(scope: SessionScope | None, session_key: str) -> bool:
    """Return whether the session may search. Without a scope, every session may."""
    if scope is None:
        return True
    session = SessionKey.parse(session_key)
    return next((rule.allow for rule in scope.rules if _matches(rule.match, session)), scope.allow)


def _matches(match: SessionMatch, session: SessionKey) -> bool:
    return (
        (match.channel is None or match.channel.strip().lower() == session.channel)
        and (match.chat_type is None or match.chat_type == session.chat_type)
        and _key_begins(match.key_prefix, session)
        and (match.raw_key_prefix is None or session.raw.startswith(match.raw_key_prefix.strip().lower()))
    )


def _key_begins(prefix: str | None, session: SessionKey) -> bool:
    if prefix is None:
        return True
    wanted = prefix.strip().lower()
    # In older settings the prefix is that of the whole key instead of the part after the agent.
    return (session.raw if wanted.startswith("agent:") else session.key).startswith(wanted)


QMD_PLUGIN = "qmd"
"""The name of this plug-in, and its value in `memory.backend`."""


@dataclass(frozen=True, slots=True)
class QmdUpdateConfig:
    """When qmd's index is updated and embedded, and the time limits, in seconds. An interval of 0 disables it."""

    on_boot: bool
    wait_for_boot_sync: bool
    interval_seconds: float
    debounce_seconds: float
    embed_interval_seconds: float
    command_timeout_seconds: float
    update_timeout_seconds: float
    embed_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class QmdLimitsConfig:
    """The limits of one search: what it may return, and the seconds that it may take."""

    max_results: int
    max_snippet_chars: int
    max_injected_chars: int
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class QmdSessionsConfig:
    """The folder of transcripts, the folder for their text, and the days after which they are omitted (None: never)."""

    transcripts: Path
    folder: Path
    retention_days: int | None


@dataclass(frozen=True, slots=True)
class QmdConfig:
    """One agent's qmd.

    `folder` is qmd's home. `environment` has the variables of its processes in addition to those that memoryd sets.
    `fallback` is whether the builtin engine answers if qmd cannot. `embed_lock` is a file that all daemons of the
    user lock to embed one at a time. Its folder contains nothing that other users may read or write.
    """

    folder: Path
    command: str
    search_mode: QmdSearchMode
    collections: tuple[Collection, ...]
    environment: Mapping[str, str]
    update: QmdUpdateConfig
    limits: QmdLimitsConfig
    scope: SessionScope | None
    sessions: QmdSessionsConfig | None
    fallback: bool
    embed_lock: Path

    @classmethod
    def of(cls, plugins: Mapping[str, object]) -> "QmdConfig | None":
        """Return qmd's configuration among an agent's plug-ins; None if qmd is not configured."""
        config = plugins.get(QMD_PLUGIN)
        return config if isinstance(config, cls) else None
