"""Which sessions may search, decided by their keys. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from memoryd_server.backend.session_keys import SessionKey


@dataclass(frozen=True, slots=True)
class Match:
    """What a session must be like; everything given must match."""

    channel: str | None = None
    chat_type: str | None = None
    key_prefix: str | None = None
    raw_key_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: whether the sessions that match may search."""

    allow: bool
    match: Match


@dataclass(frozen=True, slots=True)
class Scope:
    """The first rule that matches decides, else `allow`."""

    allow: bool
    rules: Sequence[Rule] = ()


def allows(scope: Scope | None, session_key: str) -> bool:
    """Whether the session may search; without a scope every session may."""
    if scope is None:
        return True
    session = SessionKey.parse(session_key)
    return next((rule.allow for rule in scope.rules if _matches(rule.match, session)), scope.allow)


def _matches(match: Match, session: SessionKey) -> bool:
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
