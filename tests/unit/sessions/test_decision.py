"""The flush decision fires in each cycle, once, in time, and says why."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.sessions.flush import FlushInputs, FlushPolicy, FlushReason, TurnKind, WorkspaceAccess, decide_flush

NOW = datetime(2026, 2, 8, 12, 0, tzinfo=UTC)
MIB = 1024 * 1024
POLICY = FlushPolicy(
    enabled=True,
    reserve_tokens_floor=None,
    soft_threshold_tokens=4_000,
    force_flush_transcript_bytes=2 * MIB,
    prompt=None,
    system_prompt=None,
    time_zone="UTC",
)
COUNTS = st.integers(0, 400_000)
INPUTS = st.builds(
    FlushInputs,
    now=st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 -- aware above
    total_tokens=st.none() | COUNTS,
    total_tokens_fresh=st.none() | st.booleans(),
    incoming_prompt_tokens=COUNTS,
    last_output_tokens=COUNTS,
    context_window_tokens=COUNTS,
    reserve_tokens_floor=st.none() | COUNTS,
    effective_reserve_tokens=st.none() | COUNTS,
    soft_threshold_tokens=st.none() | COUNTS,
    transcript_bytes=st.none() | st.integers(0, 4 * MIB),
    compaction_count=st.integers(0, 2),
    last_flush_compaction_count=st.none() | st.integers(0, 2),
    workspace_access=st.sampled_from(WorkspaceAccess),
    turn_kind=st.sampled_from(TurnKind),
    time_zone=st.sampled_from(["", "Europe/Berlin", "Pacific/Kiritimati"]),
)
POLICIES = st.builds(
    FlushPolicy,
    enabled=st.booleans(),
    reserve_tokens_floor=st.none() | COUNTS,
    soft_threshold_tokens=COUNTS,
    force_flush_transcript_bytes=st.sampled_from([0, 2 * MIB]),
    prompt=st.none() | st.text(max_size=20),
    system_prompt=st.none() | st.text(max_size=20),
    time_zone=st.sampled_from(["UTC", "America/New_York"]),
)


def check(flush, reason, policy=POLICY, **inputs):
    decision = decide_flush(FlushInputs(now=NOW, **inputs), policy)
    assert (decision.flush, decision.reason) == (flush, FlushReason[reason])
    return decision


@pytest.mark.parametrize(
    ("inputs", "threshold"),
    [
        ({}, 176_000),
        ({"context_window_tokens": 200_000}, 176_000),
        ({"context_window_tokens": 272_000, "effective_reserve_tokens": 62_500}, 205_500),
        ({"effective_reserve_tokens": 10_000}, 176_000),
        ({"reserve_tokens_floor": 0, "soft_threshold_tokens": 0}, 200_000),
        ({"soft_threshold_tokens": 10_000}, 170_000),
        ({"context_window_tokens": 80_000}, 56_000),
        ({"context_window_tokens": 32_768}, 20_576),
        ({"context_window_tokens": 24_000}, 14_000),
        ({"context_window_tokens": 8_000}, 3_000),
        ({"context_window_tokens": 1}, 1),
        ({"context_window_tokens": 32_768, "soft_threshold_tokens": 20_000}, 12_288),
        ({"context_window_tokens": 32_768, "effective_reserve_tokens": 20_000}, 8_768),
        ({"context_window_tokens": 24_000, "effective_reserve_tokens": 20_000}, 2_000),
        ({"context_window_tokens": 24_000, "effective_reserve_tokens": 24_000}, 0),
        ({"context_window_tokens": 32_768, "reserve_tokens_floor": 20_000}, 8_768),
        ({"context_window_tokens": 24_000, "reserve_tokens_floor": 20_000}, 0),
    ],
)
def test_the_threshold_is_the_window_less_the_larger_reserve_and_the_soft_threshold(inputs, threshold):
    assert decide_flush(FlushInputs(now=NOW, **inputs), POLICY).threshold_tokens == threshold


@pytest.mark.parametrize(("window", "threshold"), [(200_000, 176_000), (32_768, 8_768), (24_000, 0), (8_000, 0)])
def test_a_reserve_in_the_settings_is_not_reduced_in_a_small_window(window, threshold):
    policy = replace(POLICY, reserve_tokens_floor=20_000)
    assert decide_flush(FlushInputs(now=NOW, context_window_tokens=window), policy).threshold_tokens == threshold


@given(st.integers(1, 400_000), st.integers(0, 1_000), st.integers(0, 400_000), st.none() | COUNTS)
def test_the_threshold_grows_with_the_window_and_is_never_above_it(window, more, soft, effective):
    policy = replace(POLICY, soft_threshold_tokens=soft)

    def threshold(tokens):
        inputs = FlushInputs(now=NOW, context_window_tokens=tokens, effective_reserve_tokens=effective)
        return decide_flush(inputs, policy).threshold_tokens

    assert threshold(window) <= threshold(window + more)
    assert (threshold(window) > 0) == (window > (effective or 0))
    assert threshold(window) <= window


@pytest.mark.parametrize(
    ("flush", "reason", "inputs"),
    [
        (True, "TOKEN_THRESHOLD", {"total_tokens": 176_000}),
        (False, "BELOW_THRESHOLD", {"total_tokens": 175_999}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 175_000, "incoming_prompt_tokens": 600, "last_output_tokens": 400}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 160_000, "incoming_prompt_tokens": 20_000, "soft_threshold_tokens": 10_000}),  # noqa: E501 -- one case a line
        (False, "BELOW_THRESHOLD", {"total_tokens": 160_000, "soft_threshold_tokens": 10_000}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 205_500, "context_window_tokens": 272_000, "effective_reserve_tokens": 62_500}),  # noqa: E501 -- one case a line
        (False, "BELOW_THRESHOLD", {"total_tokens": 205_499, "context_window_tokens": 272_000, "effective_reserve_tokens": 62_500}),  # noqa: E501 -- one case a line
        (True, "TOKEN_THRESHOLD", {"total_tokens": 190_000, "total_tokens_fresh": True}),
        (False, "TOKENS_UNKNOWN", {}),
        (False, "TOKENS_UNKNOWN", {"total_tokens": 0, "incoming_prompt_tokens": 500_000}),
        (False, "TOKENS_UNKNOWN", {"incoming_prompt_tokens": 500_000}),
        (False, "TOKENS_UNKNOWN", {"total_tokens": 500_000, "total_tokens_fresh": False}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 20_576, "context_window_tokens": 32_768}),
        (False, "BELOW_THRESHOLD", {"total_tokens": 20_575, "context_window_tokens": 32_768}),
        (False, "NO_THRESHOLD", {"total_tokens": 23_000, "context_window_tokens": 24_000, "reserve_tokens_floor": 20_000}),  # noqa: E501 -- one case a line
        (False, "TOKENS_UNKNOWN", {"context_window_tokens": 24_000}),
        (True, "TRANSCRIPT_SIZE", {"transcript_bytes": 2 * MIB}),
        (False, "TOKENS_UNKNOWN", {"transcript_bytes": 2 * MIB - 1}),
        (True, "TRANSCRIPT_SIZE", {"transcript_bytes": 2 * MIB, "total_tokens": 500_000, "total_tokens_fresh": False}),
        (True, "TRANSCRIPT_SIZE", {"transcript_bytes": 2 * MIB, "total_tokens": 1, "context_window_tokens": 24_000}),
        (True, "TOKEN_THRESHOLD", {"transcript_bytes": 2 * MIB, "total_tokens": 180_000}),
        (False, "WORKSPACE_NOT_WRITABLE", {"total_tokens": 180_000, "workspace_access": WorkspaceAccess.READ_ONLY}),
        (False, "WORKSPACE_NOT_WRITABLE", {"transcript_bytes": 2 * MIB, "workspace_access": WorkspaceAccess.NONE}),
        (False, "HEARTBEAT_TURN", {"total_tokens": 180_000, "turn_kind": TurnKind.HEARTBEAT}),
        (False, "CLI_TURN", {"total_tokens": 180_000, "turn_kind": TurnKind.CLI}),
        (False, "ALREADY_FLUSHED", {"total_tokens": 180_000, "last_flush_compaction_count": 0}),
        (False, "ALREADY_FLUSHED", {"transcript_bytes": 2 * MIB, "compaction_count": 3, "last_flush_compaction_count": 3}),  # noqa: E501 -- one case a line
        (True, "TOKEN_THRESHOLD", {"total_tokens": 180_000, "compaction_count": 3, "last_flush_compaction_count": 2}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 180_000, "last_flush_compaction_count": None}),
    ],
)  # fmt: skip
def test_the_decision_and_its_reason(flush, reason, inputs):
    check(flush, reason, **inputs)


def test_a_disabled_flush_never_fires():
    check(False, "DISABLED", replace(POLICY, enabled=False), total_tokens=180_000, transcript_bytes=9 * MIB)


def test_a_forced_size_of_zero_switches_the_size_path_off():
    check(False, "TOKENS_UNKNOWN", replace(POLICY, force_flush_transcript_bytes=0), transcript_bytes=9 * MIB)


def test_of_several_reasons_against_it_the_first_is_named():
    against = {
        "workspace_access": WorkspaceAccess.READ_ONLY,
        "turn_kind": TurnKind.HEARTBEAT,
        "last_flush_compaction_count": 0,
    }
    check(False, "DISABLED", replace(POLICY, enabled=False), **against)
    check(False, "WORKSPACE_NOT_WRITABLE", **against)
    check(False, "HEARTBEAT_TURN", **against | {"workspace_access": WorkspaceAccess.READ_WRITE})


def test_two_cycles_in_a_row_both_flush():
    first = check(True, "TOKEN_THRESHOLD", total_tokens=180_000, compaction_count=0)
    assert first.flush_compaction_count == 0
    stored = first.flush_compaction_count
    check(False, "ALREADY_FLUSHED", total_tokens=180_000, compaction_count=0, last_flush_compaction_count=stored)
    second = check(
        True, "TOKEN_THRESHOLD", total_tokens=180_000, compaction_count=1, last_flush_compaction_count=stored
    )
    assert second.flush_compaction_count == 1


def test_a_flush_during_which_the_host_compacts_does_not_use_up_the_next_cycle():
    """The count to store is the one before the flush, whatever the flush itself raises it to."""
    stored = check(True, "TOKEN_THRESHOLD", total_tokens=180_000, compaction_count=4).flush_compaction_count
    check(True, "TOKEN_THRESHOLD", total_tokens=180_000, compaction_count=5, last_flush_compaction_count=stored)


def test_a_new_session_flushes_regardless_of_the_last_one():
    check(True, "TOKEN_THRESHOLD", total_tokens=180_000, compaction_count=0, last_flush_compaction_count=7)


def test_a_stale_count_waits_for_a_fresh_one():
    stale = {"total_tokens": 190_000, "total_tokens_fresh": False, "incoming_prompt_tokens": 900}
    decision = check(False, "TOKENS_UNKNOWN", **stale)
    assert (decision.projected_tokens, decision.remaining_tokens) == (0, 176_000)
    check(True, "TOKEN_THRESHOLD", **stale | {"total_tokens_fresh": True})


@pytest.mark.parametrize(
    "against",
    [
        {"workspace_access": WorkspaceAccess.READ_ONLY},
        {"workspace_access": WorkspaceAccess.NONE},
        {"turn_kind": TurnKind.HEARTBEAT},
        {"turn_kind": TurnKind.CLI},
        {"last_flush_compaction_count": 0},
    ],
)
@pytest.mark.parametrize("due", [{"total_tokens": 180_000}, {"transcript_bytes": 2 * MIB}])
def test_a_reason_against_a_flush_applies_on_both_paths(against, due):
    assert decide_flush(FlushInputs(now=NOW, **due), POLICY).flush
    assert not decide_flush(FlushInputs(now=NOW, **due, **against), POLICY).flush


def test_counts_beyond_what_the_wire_carries_are_as_much_as_it_carries():
    most = (1 << 63) - 1
    decision = check(True, "TOKEN_THRESHOLD", total_tokens=most, incoming_prompt_tokens=most, last_output_tokens=most)
    assert decision.projected_tokens == most
    vast = replace(POLICY, reserve_tokens_floor=1 << 70, soft_threshold_tokens=1 << 80)
    decision = check(False, "NO_THRESHOLD", vast, total_tokens=1)
    assert (decision.inputs.reserve_tokens_floor, decision.inputs.soft_threshold_tokens) == (most, most)


def test_the_numbers_of_the_answer_add_up():
    decision = check(True, "TOKEN_THRESHOLD", total_tokens=176_000, incoming_prompt_tokens=700, last_output_tokens=50)
    assert (decision.projected_tokens, decision.remaining_tokens) == (176_750, -750)


def test_every_default_is_echoed():
    inputs = decide_flush(FlushInputs(now=NOW), POLICY).inputs
    assert inputs == FlushInputs(
        now=NOW,
        total_tokens_fresh=True,
        context_window_tokens=200_000,
        reserve_tokens_floor=20_000,
        soft_threshold_tokens=4_000,
        time_zone="UTC",
    )


def test_the_given_values_are_echoed():
    inputs = FlushInputs(
        now=NOW,
        total_tokens=1,
        total_tokens_fresh=False,
        context_window_tokens=2,
        reserve_tokens_floor=0,
        effective_reserve_tokens=0,
        soft_threshold_tokens=0,
        transcript_bytes=0,
        last_flush_compaction_count=0,
        time_zone="Asia/Tokyo",
    )
    assert decide_flush(inputs, POLICY).inputs == inputs


@given(INPUTS, POLICIES)
def test_the_same_inputs_give_the_same_answer(inputs, policy):
    assert decide_flush(inputs, policy) == decide_flush(replace(inputs), replace(policy))


@given(INPUTS, POLICIES)
def test_the_echoed_inputs_give_the_same_answer(inputs, policy):
    decision = decide_flush(inputs, policy)
    assert decide_flush(decision.inputs, policy) == decision


@given(INPUTS, POLICIES)
def test_the_invariants_of_a_decision_hold(inputs, policy):
    decision = decide_flush(inputs, policy)
    yes = {FlushReason.TOKEN_THRESHOLD, FlushReason.TRANSCRIPT_SIZE}
    assert decision.flush == (decision.reason in yes)
    assert decision.threshold_tokens >= 0
    assert decision.remaining_tokens == decision.threshold_tokens - decision.projected_tokens
    assert decision.flush_compaction_count == inputs.compaction_count
    assert decision.prompts.user
    assert decision.prompts.system


@given(INPUTS, POLICIES, st.integers(1, 100_000))
def test_more_tokens_never_turn_a_flush_into_none(inputs, policy, more):
    fuller = replace(inputs, incoming_prompt_tokens=inputs.incoming_prompt_tokens + more)
    assert decide_flush(fuller, policy).flush >= decide_flush(inputs, policy).flush
