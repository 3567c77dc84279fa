"""Decide whether an agent should write durable notes now, before its host compacts the session. Pure.

A flush is due when the tokens that the next turn will need reach a threshold below the window, or when the transcript
has grown large. It happens once per compaction cycle, and only in turns in which the agent can write. The decision
depends only on the arguments. It comes with the prompts for the agent, filled in with the day and time of its zone.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DEFAULT_CONTEXT_WINDOW_TOKENS: Final = 200_000

MOST_DEFAULT_RESERVE_TOKENS: Final = 20_000
_DEFAULT_RESERVE_DIVISOR = 4
_MOST_SOFT_DIVISOR = 2

MOST_TOKENS: Final = (1 << 63) - 1
"""The largest count that the wire can carry; larger counts are reduced to it."""

_T = TypeVar("_T")


class WorkspaceAccess(StrEnum):
    """Whether the agent's tools can write to its workspace during the turn."""

    READ_WRITE = "READ_WRITE"
    READ_ONLY = "READ_ONLY"
    NONE = "NONE"


class TurnKind(StrEnum):
    """The origin of the turn."""

    USER = "USER"
    HEARTBEAT = "HEARTBEAT"
    CLI = "CLI"


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """An agent's settings for flushes.

    A `reserve_tokens_floor` of None means a reserve that fits the window; see `FlushInputs.with_defaults`.
    `force_flush_transcript_bytes` of 0 disables the size limit. A prompt of None or blank means the default text.
    `time_zone` is an IANA name.
    """

    enabled: bool
    reserve_tokens_floor: int | None
    soft_threshold_tokens: int
    force_flush_transcript_bytes: int
    prompt: str | None
    system_prompt: str | None
    time_zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushInputs:
    """The state of a session. Counts are at least 0; None means that the host did not send the count, which is not 0.

    `now` has a time zone. An empty `time_zone` means the policy's.
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

    def with_defaults(self, policy: FlushPolicy) -> "FlushInputs":
        """Return the inputs with every default filled in. Fields without a default, such as token counts, stay None.

        If neither the session nor the policy sets a reserve, it is at most a quarter of the window, and the soft
        threshold is at most half of the rest, so that a flush is possible in a window of any size.
        """
        window = self.context_window_tokens or DEFAULT_CONTEXT_WINDOW_TOKENS
        floor = _default(self.reserve_tokens_floor, default=policy.reserve_tokens_floor)
        soft = _default(self.soft_threshold_tokens, default=min(policy.soft_threshold_tokens, MOST_TOKENS))
        if floor is None:
            floor = min(MOST_DEFAULT_RESERVE_TOKENS, window // _DEFAULT_RESERVE_DIVISOR)
            rest = max(0, window - max(floor, self.effective_reserve_tokens or 0))
            soft = min(soft, rest // _MOST_SOFT_DIVISOR)
        return replace(
            self,
            total_tokens_fresh=_default(self.total_tokens_fresh, default=True),
            context_window_tokens=window,
            reserve_tokens_floor=min(floor, MOST_TOKENS),
            soft_threshold_tokens=soft,
            time_zone=self.time_zone or policy.time_zone,
        )


def _default(value: _T | None, *, default: _T) -> _T:
    return default if value is None else value


SILENT_REPLY: Final = "NO_REPLY"
"""The reply that means "nothing to store" and is not delivered."""

_DAY = "YYYY-MM-DD"
_SYSTEM = (
    "This session is close to compaction, which will shorten what you still see of it. "
    "Store now what should be remembered after it."
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
    """The text for the system prompt, the text for the user turn, and the reply that means silence."""

    system: str
    user: str
    silent_reply: str = SILENT_REPLY


def local_time(now: datetime, time_zone: str) -> datetime:
    """Return `now` in the IANA zone.

    Raises:
        ValueError: the zone is unknown, `now` has no time zone, or it has no date in that zone.
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
    """Return the display path of the log of that day."""
    return f"memory/{local.date().isoformat()}.md"


def make_prompts(local: datetime, prompt: str | None, system_prompt: str | None) -> FlushPrompts:
    """Return the texts, custom or default, with missing hints added and the day and the time filled in.

    `local` is in the zone of a `ZoneInfo`. A hint is present if the text contains it word for word; the hint on
    silence, if the text contains the silent reply.
    """
    return FlushPrompts(
        system=_fill_date(_add_hints(_custom_or(system_prompt, _SYSTEM)), local),
        user=_add_time(_fill_date(_add_hints(_custom_or(prompt, _USER)), local), local),
    )


def _custom_or(custom: str | None, default: str) -> str:
    return custom.strip() if custom and custom.strip() else default


def _add_hints(text: str) -> str:
    words = _words(text)
    hints = [hint for hint in _SAFETY_HINTS if _words(hint) not in words]
    if SILENT_REPLY not in text:
        hints.append(_SILENT_HINT)
    return "\n".join((text, *hints))


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _fill_date(text: str, local: datetime) -> str:
    return text.replace(_DAY, local.date().isoformat())


def _add_time(text: str, local: datetime) -> str:
    if _TIME_LABEL in text:
        return text
    return f"{text}\n{_TIME_LABEL} {local.isoformat(sep=' ', timespec='minutes')} ({local.tzinfo})"


class FlushReason(StrEnum):
    """The reason to flush (the first two) or not to; the names of the wire's enum."""

    TOKEN_THRESHOLD = "TOKEN_THRESHOLD"  # noqa: S105 -- a count of tokens, not a secret
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
    """The decision, the numbers behind it, and the prompts for the agent.

    `projected_tokens` is 0 if the total is unknown. `remaining_tokens` is negative past the threshold. The host stores
    `flush_compaction_count` when the flush has succeeded: the count before any compaction that the flush itself causes,
    or the next cycle would count as flushed. `inputs` has every default filled in.
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


def decide_flush(inputs: FlushInputs, policy: FlushPolicy) -> FlushDecision:
    """Return whether to flush now, and the reason. Prompts and path are filled in either case.

    Raises:
        ValueError: the time zone is unknown, or `now` has no time zone or no date in it.
    """
    filled = inputs.with_defaults(policy)
    threshold = _threshold(filled)
    projected = _projected_tokens(filled)
    trigger = _trigger(filled, policy, threshold, projected)
    refusal = _refusal(filled, policy)
    local = local_time(filled.now, filled.time_zone)
    return FlushDecision(
        flush=refusal is None and trigger is not None,
        reason=refusal or trigger or _no_trigger_reason(threshold, projected),
        threshold_tokens=threshold,
        projected_tokens=projected,
        remaining_tokens=threshold - projected,
        prompts=make_prompts(local, policy.prompt, policy.system_prompt),
        target_path=target_path(local),
        flush_compaction_count=filled.compaction_count,
        inputs=filled,
    )


def _threshold(filled: FlushInputs) -> int:
    reserve = max(filled.reserve_tokens_floor or 0, filled.effective_reserve_tokens or 0)
    return max(0, filled.context_window_tokens - reserve - (filled.soft_threshold_tokens or 0))


def _projected_tokens(filled: FlushInputs) -> int:
    if not filled.total_tokens or not filled.total_tokens_fresh:
        return 0
    return min(MOST_TOKENS, filled.total_tokens + filled.last_output_tokens + filled.incoming_prompt_tokens)


def _refusal(filled: FlushInputs, policy: FlushPolicy) -> FlushReason | None:
    """Return why the session may not be flushed, whatever its size; the most permanent reason first. None if it may."""
    if not policy.enabled:
        return FlushReason.DISABLED
    if filled.workspace_access is not WorkspaceAccess.READ_WRITE:
        return FlushReason.WORKSPACE_NOT_WRITABLE
    if filled.turn_kind is TurnKind.HEARTBEAT:
        return FlushReason.HEARTBEAT_TURN
    if filled.turn_kind is TurnKind.CLI:
        return FlushReason.CLI_TURN
    # A count of 0 means a flush before the first compaction; None means no flush.
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


def _no_trigger_reason(threshold: int, projected: int) -> FlushReason:
    if projected == 0:
        return FlushReason.TOKENS_UNKNOWN
    return FlushReason.BELOW_THRESHOLD if threshold > 0 else FlushReason.NO_THRESHOLD
