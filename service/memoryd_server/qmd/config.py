"""QmdConfig and session scope rules.

What one agent's qmd is made with. The composition root fills it from the settings.

Which sessions may search, decided by their keys. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.qmd.client import QmdSearchMode
from memoryd_server.qmd.home import Collection
from memoryd_server.sessions import SessionKey


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """What a session must be like; everything given must match."""

    channel: str | None = None
    chat_type: str | None = None
    key_prefix: str | None = None
    raw_key_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRule:
    """One rule: whether the sessions that match may search."""

    allow: bool
    match: SessionMatch


@dataclass(frozen=True, slots=True)
class SessionScope:
    """The first rule that matches decides, else `allow`."""

    allow: bool
    rules: Sequence[SessionRule] = ()


def allows(scope: SessionScope | None, session_key: str) -> bool:
    """Whether the session may search; without a scope every session may."""
    if scope is None:
        return True
    session = SessionKey.parse(session_key)
    return next((rule.allow for rule in scope.rules if _matches(rule.match, session)), scope.allow)


def _matches(match: SessionMatch, session: SessionKey) -> bool:
    return (
        (match.channel is None or match.channel.strip().lower() == session.channel)
        and (match.chat_type is None or match.chat_type == session.chat_type)
        and _begins(match.key_prefix, session)
        and (match.raw_key_prefix is None or session.raw.startswith(match.raw_key_prefix.strip().lower()))
    )


def _begins(prefix: str | None, session: SessionKey) -> bool:
    if prefix is None:
        return True
    wanted = prefix.strip().lower()
    # Older settings wrote the whole key where the part after the agent was meant.
    return (session.raw if wanted.startswith("agent:") else session.key).startswith(wanted)


QMD_PLUGIN = "qmd"
"""The name of this plug-in, which `memory.backend` has as a value."""


@dataclass(frozen=True, slots=True)
class QmdUpdateConfig:
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
class QmdSessionsConfig:
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
    verb: QmdSearchMode
    collections: tuple[Collection, ...]
    environment: Mapping[str, str]
    update: QmdUpdateConfig
    limits: LimitsConfig
    scope: SessionScope | None
    sessions: QmdSessionsConfig | None
    fallback: bool
    embed_lock: Path

    @classmethod
    def of(cls, plugins: Mapping[str, object]) -> "QmdConfig | None":
        """Return qmd's configuration among an agent's plug-ins; None if qmd is not configured."""
        found = plugins.get(QMD_PLUGIN)
        return found if isinstance(found, cls) else None
