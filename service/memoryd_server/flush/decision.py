"""Whether an agent should write durable notes now, before its host compacts the session.

A flush is due when the tokens that the next turn will need reach a threshold below the window, or when the transcript
has grown large. It happens once in each cycle of compaction, and only in turns in which the agent can write. The
answer depends on nothing but the arguments.
"""

from dataclasses import dataclass
from enum import StrEnum

from memoryd_server.flush.inputs import MOST_TOKENS, FlushInputs, FlushPolicy, TurnKind, WorkspaceAccess
from memoryd_server.flush.prompts import FlushPrompts, local_time, prompts_for, target_path


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
