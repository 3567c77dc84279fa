"""What a flush decision is made from: the session as its host knows it, and the agent's settings."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

DEFAULT_CONTEXT_WINDOW_TOKENS: Final = 200_000

MOST_TOKENS: Final = (1 << 63) - 1
"""The largest count that the wire carries; what is beyond it counts as it."""

_T = TypeVar("_T")


class WorkspaceAccess(StrEnum):
    """Whether the agent's tools may write in its workspace during the turn."""

    READ_WRITE = "READ_WRITE"
    READ_ONLY = "READ_ONLY"
    NONE = "NONE"


class TurnKind(StrEnum):
    """What started the turn."""

    USER = "USER"
    HEARTBEAT = "HEARTBEAT"
    CLI = "CLI"


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """An agent's settings for flushes.

    `force_flush_transcript_bytes` of 0 switches the size path off. A prompt of None or blank means the default text.
    `time_zone` is an IANA name.
    """

    enabled: bool
    reserve_tokens_floor: int
    soft_threshold_tokens: int
    force_flush_transcript_bytes: int
    prompt: str | None
    system_prompt: str | None
    time_zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushInputs:
    """The state of a session. Counts are at least 0; None means that the host does not say, which is not 0.

    `now` is aware. An empty `time_zone` means the policy's.
    """

    now: datetime
    total_tokens: int | None = None
    total_tokens_fresh: bool | None = None
    incoming_prompt_tokens: int = 0
    last_output_tokens: int = 0
    context_window_tokens: int = 0
    reserve_tokens_floor: int | None = None
    effective_reserve_tokens: int | None = None
    soft_threshold_tokens: int | None = None
    transcript_bytes: int | None = None
    compaction_count: int = 0
    last_flush_compaction_count: int | None = None
    workspace_access: WorkspaceAccess = WorkspaceAccess.READ_WRITE
    turn_kind: TurnKind = TurnKind.USER
    time_zone: str = ""

    def filled(self, policy: FlushPolicy) -> "FlushInputs":
        """Returns the inputs with every default filled in. What has no default, such as the token count, stays None."""
        return replace(
            self,
            total_tokens_fresh=_given(self.total_tokens_fresh, default=True),
            context_window_tokens=self.context_window_tokens or DEFAULT_CONTEXT_WINDOW_TOKENS,
            reserve_tokens_floor=_given(
                self.reserve_tokens_floor, default=min(policy.reserve_tokens_floor, MOST_TOKENS)
            ),
            soft_threshold_tokens=_given(
                self.soft_threshold_tokens, default=min(policy.soft_threshold_tokens, MOST_TOKENS)
            ),
            time_zone=self.time_zone or policy.time_zone,
        )


def _given(value: _T | None, *, default: _T) -> _T:
    return default if value is None else value
