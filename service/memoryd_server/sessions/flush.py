"""FlushDecision and its prompts; pure.

Whether an agent should write durable notes now, before its host compacts the session.

A flush is due when the tokens that the next turn will need reach a threshold below the window, or when the transcript
has grown large. It happens once in each cycle of compaction, and only in turns in which the agent can write. The
answer depends on nothing but the arguments.

What a flush decision is made from: the session as its host knows it, and the agent's settings.

What to say to the agent for a flush, and the day and zone that it is said for.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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


SILENT_REPLY: Final = "NO_REPLY"
"""The reply that means "nothing to store" and is not delivered."""

_DAY = "YYYY-MM-DD"
_SYSTEM = (
    "This session is close to compaction, which will shorten what you still see of it. "
    "Store now whatever should be remembered beyond it."
)
_USER = (
    "The session will be compacted soon. Write what should last (decisions, facts, preferences, open tasks) "
    f"to today's notes, memory/{_DAY}.md, so that it can be understood without this conversation."
)
_SAFETY_HINTS = (
    f"Write only to memory/{_DAY}.md: no other file, and no variant of its name.",
    "If that file holds text already, append to it; never overwrite or rewrite it.",
    "MEMORY.md and all other curated files are read-only during this flush.",
)
_SILENT_HINT = f"If there is nothing to store, reply with {SILENT_REPLY} and nothing else."
_TIME_LABEL = "Current time:"


@dataclass(frozen=True, slots=True)
class FlushPrompts:
    """The text for the system prompt, the text for the user turn, and the reply that stands for silence."""

    system: str
    user: str
    silent_reply: str = SILENT_REPLY


def local_time(now: datetime, time_zone: str) -> datetime:
    """Returns `now` in the IANA zone.

    Raises:
        ValueError: the zone is unknown, `now` is naive, or it has no date in that zone.
    """
    if now.tzinfo is None:
        raise ValueError("now has no time zone")
    try:
        return now.astimezone(ZoneInfo(time_zone))
    except OverflowError as error:
        raise ValueError(f"{now.isoformat()} has no date in {time_zone}") from error
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {time_zone!r}") from error


def target_path(local: datetime) -> str:
    """Returns the display path of the log of that day."""
    return f"memory/{local.date().isoformat()}.md"


def prompts_for(local: datetime, prompt: str | None, system_prompt: str | None) -> FlushPrompts:
    """Returns the texts, custom or default, with missing hints added and the day and the time filled in.

    `local` is in the zone of a `ZoneInfo`. A hint counts as present when it stands in the text word for word; the one
    on silence does when the text names the silent reply.
    """
    return FlushPrompts(
        system=_dated(_complete(_chosen(system_prompt, _SYSTEM)), local),
        user=_timed(_dated(_complete(_chosen(prompt, _USER)), local), local),
    )


def _chosen(custom: str | None, default: str) -> str:
    return custom.strip() if custom and custom.strip() else default


def _complete(text: str) -> str:
    words = _words(text)
    hints = [hint for hint in _SAFETY_HINTS if _words(hint) not in words]
    if SILENT_REPLY not in text:
        hints.append(_SILENT_HINT)
    return "\n".join((text, *hints))


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _dated(text: str, local: datetime) -> str:
    return text.replace(_DAY, local.date().isoformat())


def _timed(text: str, local: datetime) -> str:
    if _TIME_LABEL in text:
        return text
    return f"{text}\n{_TIME_LABEL} {local.isoformat(sep=' ', timespec='minutes')} ({local.tzinfo})"


class FlushReason(StrEnum):
    """Why to flush (the first two), or why not; the names of the wire's enum."""

    TOKEN_THRESHOLD = "TOKEN_THRESHOLD"  # noqa: S105 -- a count of tokens, no secret
    TRANSCRIPT_SIZE = "TRANSCRIPT_SIZE"
    DISABLED = "DISABLED"
    WORKSPACE_NOT_WRITABLE = "WORKSPACE_NOT_WRITABLE"
    HEARTBEAT_TURN = "HEARTBEAT_TURN"
    CLI_TURN = "CLI_TURN"
    ALREADY_FLUSHED = "ALREADY_FLUSHED"
    TOKENS_UNKNOWN = "TOKENS_UNKNOWN"
    BELOW_THRESHOLD = "BELOW_THRESHOLD"
    NO_THRESHOLD = "NO_THRESHOLD"


@dataclass(frozen=True, slots=True)
class FlushDecision:
    """The decision, the numbers that it was made from, and what to say to the agent.

    `projected_tokens` is 0 when the total is unknown. `remaining_tokens` is negative once past the threshold.
    `flush_compaction_count` is what the host stores when the flush has succeeded: the count before any compaction that
    the flush itself causes, or the next cycle would count as flushed. `inputs` has every default filled in.
    """

    flush: bool
    reason: FlushReason
    threshold_tokens: int
    projected_tokens: int
    remaining_tokens: int
    prompts: FlushPrompts
    target_path: str
    flush_compaction_count: int
    inputs: FlushInputs


def decide(inputs: FlushInputs, policy: FlushPolicy) -> FlushDecision:
    """Returns whether to flush now, and why or why not. Prompts and path are filled in either case.

    Raises:
        ValueError: the time zone is unknown, or `now` is naive or has no date in it.
    """
    filled = inputs.filled(policy)
    threshold = _threshold(filled)
    projected = _projected(filled)
    trigger = _trigger(filled, policy, threshold, projected)
    refusal = _refusal(filled, policy)
    local = local_time(filled.now, filled.time_zone)
    return FlushDecision(
        flush=refusal is None and trigger is not None,
        reason=refusal or trigger or _why_not(threshold, projected),
        threshold_tokens=threshold,
        projected_tokens=projected,
        remaining_tokens=threshold - projected,
        prompts=prompts_for(local, policy.prompt, policy.system_prompt),
        target_path=target_path(local),
        flush_compaction_count=filled.compaction_count,
        inputs=filled,
    )


def _threshold(filled: FlushInputs) -> int:
    reserve = max(filled.reserve_tokens_floor or 0, filled.effective_reserve_tokens or 0)
    return max(0, filled.context_window_tokens - reserve - (filled.soft_threshold_tokens or 0))


def _projected(filled: FlushInputs) -> int:
    if not filled.total_tokens or not filled.total_tokens_fresh:
        return 0
    return min(MOST_TOKENS, filled.total_tokens + filled.last_output_tokens + filled.incoming_prompt_tokens)


def _refusal(filled: FlushInputs, policy: FlushPolicy) -> FlushReason | None:
    """Returns why no flush may happen however full the session is, the most lasting reason first."""
    if not policy.enabled:
        return FlushReason.DISABLED
    if filled.workspace_access is not WorkspaceAccess.READ_WRITE:
        return FlushReason.WORKSPACE_NOT_WRITABLE
    if filled.turn_kind is TurnKind.HEARTBEAT:
        return FlushReason.HEARTBEAT_TURN
    if filled.turn_kind is TurnKind.CLI:
        return FlushReason.CLI_TURN
    # A count of 0 is a flush before the first compaction; None is no flush at all.
    if filled.last_flush_compaction_count == filled.compaction_count:
        return FlushReason.ALREADY_FLUSHED
    return None


def _trigger(filled: FlushInputs, policy: FlushPolicy, threshold: int, projected: int) -> FlushReason | None:
    if threshold > 0 and projected >= threshold:
        return FlushReason.TOKEN_THRESHOLD
    limit = policy.force_flush_transcript_bytes
    if limit > 0 and (filled.transcript_bytes or 0) >= limit:
        return FlushReason.TRANSCRIPT_SIZE
    return None


def _why_not(threshold: int, projected: int) -> FlushReason:
    if projected == 0:
        return FlushReason.TOKENS_UNKNOWN
    return FlushReason.BELOW_THRESHOLD if threshold > 0 else FlushReason.NO_THRESHOLD
