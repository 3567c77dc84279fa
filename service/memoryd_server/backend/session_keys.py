"""The grammar of session keys, and what a key says about its session. Pure.

A key is `agent:<agent id>:<rest>` or the rest alone. The rest is `main`, `main:thread:<thread>`,
`<channel>:<kind>:<peer>` with further parts, `subagent:<name>` or any other text.
"""

from dataclasses import dataclass

from memoryd_server.search.query import CitationMode

_AGENT = "agent"
_MAIN = "main"
_THREAD = "thread"
_SUBAGENT = "subagent"
_SHARED_KINDS = ("group", "channel")
_KINDS = frozenset({*_SHARED_KINDS, "direct", "dm"})
_CHANNEL_PARTS = 3
_THREAD_PARTS = 3


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session key in lower case, without blanks around it.

    `raw` is the whole key. `agent_id` is None if the key does not begin with `agent:`. `parts` are the parts of the
    rest, separated by colons.
    """

    raw: str
    agent_id: str | None
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "SessionKey":
        """Return the key of `text`; every text is a key."""
        raw = text.strip().lower()
        parts = tuple(raw.split(":"))
        if parts[0] != _AGENT:
            return cls(raw, None, parts)
        return cls(raw, "".join(parts[1:2]), parts[2:])

    def is_main_session(self, agent_id: str) -> bool:
        """Return whether the key names the agent's private main session, or a thread of it.

        That is `main` or `agent:<agent_id>:main`. False for groups, channels, chats with a peer, scheduled jobs,
        sub-agents, another agent's main session and an empty key: nothing says that these are private.
        """
        if self.agent_id not in (None, agent_id):
            return False
        is_thread = len(self.parts) >= _THREAD_PARTS and self.parts[1] == _THREAD and all(self.parts)
        return self.parts[:1] == (_MAIN,) and (len(self.parts) == 1 or is_thread)

    @property
    def is_direct(self) -> bool:
        """Whether no part of the rest is `group` or `channel`. True for an empty key, as in OpenClaw."""
        return not set(_SHARED_KINDS) & set(self.parts)

    @property
    def key(self) -> str:
        """The rest, or the whole key if there is no rest; empty for a sub-agent."""
        parts = self._known_parts
        return "" if parts[0] == _SUBAGENT else ":".join(parts)

    @property
    def channel(self) -> str:
        """The channel of a key `<channel>:<kind>:<peer>`, for example `slack`; else empty."""
        return self._known_parts[0] if self.key and self._has_channel else ""

    @property
    def chat_type(self) -> str:
        """`group`, `channel` or `direct`; empty for an empty key and for a sub-agent."""
        if not self.key:
            return ""
        if self._has_channel:
            return next((kind for kind in _SHARED_KINDS if kind in self._known_parts), "direct")
        return next((kind for kind in _SHARED_KINDS if f":{kind}:" in self.key), "direct")

    @property
    def _known_parts(self) -> tuple[str, ...]:
        return self.parts or tuple(self.raw.split(":"))

    @property
    def _has_channel(self) -> bool:
        parts = self._known_parts
        return len(parts) >= _CHANNEL_PARTS and parts[1] in _KINDS


def wants_citations(mode: CitationMode, session_key: SessionKey) -> bool:
    """Return whether snippets carry citations; `auto` means in direct chats only."""
    return mode is CitationMode.ON or (mode is CitationMode.AUTO and session_key.is_direct)
