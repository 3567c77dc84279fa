"""Which sessions may search, decided by their keys. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

_KINDS = frozenset({"group", "channel", "direct", "dm"})
# channel:kind:who is the least that a key with a channel has.
_LEAST_PARTS = 3


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What a session key says, in lower case. `key` is without `agent:<id>:`; empty texts are not known.

    Nothing is known of a missing key, nor of a sub-agent's.
    """

    raw: str
    key: str = ""
    channel: str = ""
    chat_type: str = ""


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


def parse_session_key(text: str) -> SessionKey:
    """What the key says: `agent:main:slack:channel:c1` is of the channel slack, and a channel."""
    raw = text.strip().lower()
    parts = raw.split(":")
    if parts[0] == "agent" and len(parts) >= _LEAST_PARTS:
        parts = parts[2:]
    key = ":".join(parts)
    if not key or parts[0] == "subagent":
        return SessionKey(raw)
    if len(parts) >= _LEAST_PARTS and parts[1] in _KINDS:
        kind = next((kind for kind in ("group", "channel") if kind in parts), "direct")
        return SessionKey(raw, key, parts[0], kind)
    kind = next((kind for kind in ("group", "channel") if f":{kind}:" in key), "direct")
    return SessionKey(raw, key, "", kind)


def allows(scope: Scope | None, session_key: str) -> bool:
    """Whether the session may search; without a scope every session may."""
    if scope is None:
        return True
    session = parse_session_key(session_key)
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
