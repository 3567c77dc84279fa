"""FlushDecision over the wire: what is unset is not zero, every input comes back, and bad ones are all named."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd.v1 import memory_service_pb2 as pb
from properties import examples
from rpc.wire import check_refused, refused

MIB = 1024 * 1024
NOW = {"seconds": 1_770_552_000}  # 2026-02-08 12:00 UTC
READ_ONLY, NONE = pb.WORKSPACE_ACCESS_READ_ONLY, pb.WORKSPACE_ACCESS_NONE
HEARTBEAT, CLI = pb.TURN_KIND_HEARTBEAT, pb.TURN_KIND_CLI
WIDE = {"context_window_tokens": 272_000, "effective_reserve_tokens": 62_500}


async def ask(running, **request):
    return await running.stub.FlushDecision(pb.FlushDecisionRequest(**{"now": NOW, **request}), timeout=5)


async def check(running, flush, reason, **request):
    reply = await ask(running, **request)
    assert (reply.flush, pb.FlushReason.Name(reply.reason)) == (flush, f"FLUSH_REASON_{reason}")
    return reply


@pytest.mark.parametrize(
    ("flush", "reason", "request_"),
    [
        # The numbers that users reported: the larger reserve counts; the prompt about to be sent counts.
        (True, "TOKEN_THRESHOLD", {"total_tokens": 205_500, **WIDE}),
        (False, "BELOW_THRESHOLD", {"total_tokens": 205_499, **WIDE}),
        (
            True,
            "TOKEN_THRESHOLD",
            {"total_tokens": 160_000, "incoming_prompt_tokens": 20_000, "soft_threshold_tokens": 10_000},
        ),
        (False, "BELOW_THRESHOLD", {"total_tokens": 160_000, "soft_threshold_tokens": 10_000}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 176_000}),
        (False, "BELOW_THRESHOLD", {"total_tokens": 175_999}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 175_000, "last_output_tokens": 1_000}),
        (False, "TOKENS_UNKNOWN", {}),
        (False, "TOKENS_UNKNOWN", {"total_tokens": 0, "incoming_prompt_tokens": 500_000}),
        (False, "TOKENS_UNKNOWN", {"total_tokens": 500_000, "total_tokens_fresh": False}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 500_000, "total_tokens_fresh": True}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 20_576, "context_window_tokens": 32_768}),
        (False, "BELOW_THRESHOLD", {"total_tokens": 20_575, "context_window_tokens": 32_768}),
        (
            False,
            "NO_THRESHOLD",
            {"total_tokens": 23_000, "context_window_tokens": 24_000, "reserve_tokens_floor": 20_000},
        ),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 200_000, "reserve_tokens_floor": 0, "soft_threshold_tokens": 0}),
        (
            False,
            "BELOW_THRESHOLD",
            {"total_tokens": 199_999, "reserve_tokens_floor": 0, "soft_threshold_tokens": 0},
        ),
        (True, "TRANSCRIPT_SIZE", {"transcript_bytes": 2 * MIB}),
        (False, "TOKENS_UNKNOWN", {"transcript_bytes": 2 * MIB - 1}),
        (False, "WORKSPACE_NOT_WRITABLE", {"total_tokens": 180_000, "workspace_access": READ_ONLY}),
        (False, "WORKSPACE_NOT_WRITABLE", {"total_tokens": 180_000, "workspace_access": NONE}),
        (False, "HEARTBEAT_TURN", {"total_tokens": 180_000, "turn_kind": HEARTBEAT}),
        (False, "CLI_TURN", {"total_tokens": 180_000, "turn_kind": CLI}),
        # Unset is no flush at all; 0 is a flush before the first compaction.
        (True, "TOKEN_THRESHOLD", {"total_tokens": 180_000}),
        (False, "ALREADY_FLUSHED", {"total_tokens": 180_000, "last_flush_compaction_count": 0}),
        (True, "TOKEN_THRESHOLD", {"total_tokens": 180_000, "compaction_count": 1, "last_flush_compaction_count": 0}),
        (
            False,
            "ALREADY_FLUSHED",
            {"total_tokens": 180_000, "compaction_count": 1, "last_flush_compaction_count": 1},
        ),
    ],
)
async def test_the_decision_and_its_reason(serve, flush, reason, request_):
    await check(await serve(), flush, reason, **request_)


async def test_two_cycles_in_a_row_both_flush(serve):
    running = await serve()
    last = {}
    for compactions in range(3):
        session = {"total_tokens": 180_000, "compaction_count": compactions, **last}
        reply = await check(running, True, "TOKEN_THRESHOLD", **session)
        last = {"last_flush_compaction_count": reply.flush_compaction_count}
        await check(running, False, "ALREADY_FLUSHED", **{**session, **last})


async def test_the_largest_counts_are_no_fault(serve):
    most = (1 << 63) - 1
    counts = dict.fromkeys(("total_tokens", "incoming_prompt_tokens", "last_output_tokens"), most)
    reply = await check(await serve(), True, "TOKEN_THRESHOLD", **counts)
    assert (reply.projected_tokens, reply.remaining_tokens) == (most, 176_000 - most)


async def test_the_numbers_add_up(serve):
    reply = await ask(await serve(), total_tokens=100_000, incoming_prompt_tokens=2_000, last_output_tokens=300, **WIDE)
    assert (reply.threshold_tokens, reply.projected_tokens) == (205_500, 102_300)
    assert reply.remaining_tokens == 205_500 - 102_300


async def test_every_input_comes_back_with_its_defaults(serve):
    running = await serve({"agents": {"defaults": {"userTimezone": "Asia/Tokyo"}}})
    echo = (await ask(running)).inputs
    assert (echo.agent_id, echo.time_zone) == ("main", "Asia/Tokyo")
    assert (echo.context_window_tokens, echo.reserve_tokens_floor, echo.soft_threshold_tokens) == (
        200_000,
        20_000,
        4_000,
    )
    assert (echo.workspace_access, echo.turn_kind) == (pb.WORKSPACE_ACCESS_READ_WRITE, pb.TURN_KIND_USER)
    assert echo.total_tokens_fresh
    for unknown in ("total_tokens", "effective_reserve_tokens", "transcript_bytes", "last_flush_compaction_count"):
        assert not echo.HasField(unknown)
    assert echo.now.seconds == NOW["seconds"]


async def test_the_echo_asked_again_gives_the_same_answer(serve):
    running = await serve()
    request = {
        "total_tokens": 0,
        "total_tokens_fresh": False,
        "incoming_prompt_tokens": 1,
        "last_output_tokens": 2,
        "context_window_tokens": 3,
        "reserve_tokens_floor": 0,
        "effective_reserve_tokens": 0,
        "soft_threshold_tokens": 0,
        "transcript_bytes": 0,
        "compaction_count": 4,
        "last_flush_compaction_count": 0,
        "workspace_access": NONE,
        "turn_kind": CLI,
        "time_zone": "Europe/Berlin",
        "agent_id": "main",
    }
    reply = await ask(running, **request)
    assert reply.inputs == pb.FlushDecisionRequest(**{"now": NOW, **request})
    assert await running.stub.FlushDecision(reply.inputs) == reply


async def test_the_settings_of_the_agent_are_the_defaults(serve):
    compaction = {"reserveTokensFloor": 30_000, "memoryFlush": {"softThresholdTokens": 6_000}}
    running = await serve({"agents": {"defaults": {"compaction": compaction}}})
    assert (await ask(running)).threshold_tokens == 164_000
    assert (await ask(running, reserve_tokens_floor=0)).threshold_tokens == 194_000
    assert (await ask(running, context_window_tokens=40_000)).threshold_tokens == 4_000
    off = {"agents": {"defaults": {"compaction": {"memoryFlush": {"enabled": False}}}}}
    await running.stop()
    await check(await serve(off), False, "DISABLED", total_tokens=180_000)


@pytest.mark.parametrize(
    ("time_zone", "seconds", "day"),
    [
        ("UTC", NOW["seconds"], "2026-02-08"),
        ("Pacific/Kiritimati", NOW["seconds"], "2026-02-09"),
        ("America/Los_Angeles", NOW["seconds"] - 6 * 3_600, "2026-02-07"),
        ("UTC", -1, "1969-12-31"),
    ],
)
async def test_the_log_is_that_of_the_caller_s_day(serve, time_zone, seconds, day):
    reply = await ask(await serve(), time_zone=time_zone, now={"seconds": seconds})
    assert reply.target_path == f"memory/{day}.md"
    assert reply.target_path in reply.prompts.user
    assert reply.prompts.silent_reply == "NO_REPLY"
    assert "NO_REPLY" in reply.prompts.system


async def test_without_a_clock_the_daemon_s_day_counts(serve):
    running = await serve({"agents": {"defaults": {"userTimezone": "Asia/Tokyo"}}})
    today = {dt.datetime.now(ZoneInfo("Asia/Tokyo")).date()}
    reply = await running.stub.FlushDecision(pb.FlushDecisionRequest())
    today.add(dt.datetime.now(ZoneInfo("Asia/Tokyo")).date())
    assert reply.target_path in {f"memory/{day}.md" for day in today}


COUNTS = [
    "total_tokens",
    "incoming_prompt_tokens",
    "last_output_tokens",
    "context_window_tokens",
    "reserve_tokens_floor",
    "effective_reserve_tokens",
    "soft_threshold_tokens",
    "transcript_bytes",
    "compaction_count",
    "last_flush_compaction_count",
]


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        (dict.fromkeys(COUNTS, -1), set(COUNTS)),
        ({"total_tokens": -(2**63)}, {"total_tokens"}),
        ({"time_zone": "Mars/Olympus"}, {"time_zone"}),
        ({"time_zone": "../../etc/passwd"}, {"time_zone"}),
        ({"time_zone": "/etc/passwd"}, {"time_zone"}),
        ({"time_zone": "Europe"}, {"time_zone"}),
        ({"time_zone": "nul\0"}, {"time_zone"}),
        ({"time_zone": " "}, {"time_zone"}),
        ({"workspace_access": 9, "turn_kind": -1}, {"workspace_access", "turn_kind"}),
        ({"now": {"seconds": 253_402_300_799}, "time_zone": "Pacific/Kiritimati"}, {"now"}),
        ({"now": {"seconds": -62_135_596_800}, "time_zone": "America/New_York"}, {"now"}),
        (
            {"now": {"seconds": 10**15}, "compaction_count": -1, "time_zone": "x"},
            {"now", "compaction_count", "time_zone"},
        ),
        ({"now": {"nanos": -1}}, {"now"}),
    ],
)
async def test_bad_inputs_are_all_named(serve, request_, violations):
    await check_refused(ask(await serve(), **request_), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations)


async def test_no_request_is_a_fault(serve):
    @settings(
        max_examples=examples(120),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(COUNTS, st.integers(-(2**63), 2**63 - 1)),
                "time_zone": st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
                | st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "tzdata.zi", "zone.tab", "a/b", "."]),
                "now": st.fixed_dictionaries(
                    {"seconds": st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**11), 10**12)},
                    optional={"nanos": st.integers(-(2**31), 2**31 - 1)},
                ),
                "workspace_access": st.integers(-1, 5),
                "turn_kind": st.integers(-1, 5),
            },
        )
    )
    def collect(request):
        requests.append(request)

    requests = []
    collect()
    running = await serve()
    for request in requests:
        call = running.stub.FlushDecision(pb.FlushDecisionRequest(**request))
        try:
            reply = await call
        except Exception:  # noqa: BLE001 -- its kind is what the next line looks at
            assert (await refused(call)).reason == "INVALID_REQUEST"
        else:
            assert reply.remaining_tokens == reply.threshold_tokens - reply.projected_tokens
