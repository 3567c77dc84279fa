"""A state machine over the wire: any frame, any request, any order, and the daemon stays correct.

`make fuzz` runs it for MEMORYD_FUZZ_SECONDS (180 by default). It prints its seed, and writes every step to a file:

- MEMORYD_FUZZ_SEED=N starts with the same round again;
- MEMORYD_FUZZ_REPLAY=FILE performs the steps of a file against a new daemon.
"""

import itertools
import math
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fuzz.daemon import OWNER_TOKEN, STOP_SECONDS, fuzzed_daemon
from fuzz.frames import connections
from fuzz.messages import METHODS, NOTES, TRANSCRIPTS, UNKNOWN_METHODS, bodies
from fuzz.steps import CHANGES, Burst, Call, Change, Connection, Performer, Release, from_line, to_line
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.entry_service_pb2 import RememberRequest, SuggestCaptureRequest
from rpc.agent_calls import AGENT_CALLS

SECONDS = float(os.environ.get("MEMORYD_FUZZ_SECONDS") or 180)
WARM_UP_SHARE = 0.3
WARM_UPS = 3
EXAMPLES_PER_ROUND, STEPS_PER_EXAMPLE = 40, 12
# A status that a bug causes, as opposed to a request.
FAULTS = {"INTERNAL", "UNKNOWN", "DATA_LOSS"}
RSS_GROWTH = 1.10
STEPS_FILE = Path(__file__).parents[2] / ".hypothesis" / "fuzz-steps.jsonl"

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(SECONDS + 600)]

_listeners = st.sampled_from(["unix", "tcp"])
_tokens = st.sampled_from(["owner", "owner", "owner", "owner", "limited", "none", "wrong", "odd"])
_metadata = st.lists(
    st.one_of(
        st.tuples(
            st.from_regex(r"[a-z0-9._-]{1,20}", fullmatch=True).filter(
                lambda key: not key.startswith("grpc-") and not key.endswith("-bin")
            ),
            st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40),
        ),
        st.tuples(st.just("x-request-id"), st.sampled_from(["", "a", "x" * 200, "x" * 9_000, "id\x7e{}"])),
        st.tuples(st.just("x-odd-bin"), st.binary(max_size=40)),
        st.tuples(st.just("authorization"), st.sampled_from(["Bearer", "Basic x", "", f"bearer {OWNER_TOKEN}"])),
        st.tuples(st.just("x-large"), st.sampled_from([2_000, 7_000, 15_000, 40_000]).map(lambda size: "x" * size)),
    ),
    max_size=2,
).map(tuple)
_methods = st.sampled_from([*METHODS] * 3 + [*UNKNOWN_METHODS])


@st.composite
def _calls(draw):
    method = draw(_methods)
    # A stream that is read to its end lasts until its deadline.
    streams = method in METHODS and METHODS[method].server_streaming
    seconds = [0.1, 0.1, 0.3, 0.01, 0.0] if streams else [1.0] * 12 + [0.3, 0.05, 0.005, 0.0]
    return Call(
        draw(_listeners),
        draw(_tokens),
        method,
        draw(bodies(method)),
        draw(_metadata),
        draw(st.sampled_from(seconds)),
        draw(st.sampled_from([1] * 16 + [2, 5, 0])),
        draw(st.sampled_from([False] * 19 + [True])),
        draw(st.sampled_from([1_000, 2, 1, 1])),
    )


# Selected by their number, because Hypothesis prints what it selects from.
TEXTS = (
    b"the heron nests by the weir\n",
    b"# Pier\n\n" + b"a crane on pier seven\n" * 200,
    b"\xff\xfe\x00broken",
    b"\xef\xbb\xbf# BOM\r\n\r\ntext\r",
    b"",
    b"word " * 20_000,
    b"x" * 100_000,
    b"---\nkey: value\n---\n\n```\ncode\n",
    b'{"type":"message","message":{"role":"user","content":"a heron, password=hunter2"}}\n' * 5,
    b'{"type":"message","message":{"role":"user","content":[{"type":"text","text":' + b"[" * 500 + b"\n",
    b"\0" * 1_000,
    b"*.md\n!a.md\n",
    b"[" * 200 + b"\n",
)
_texts = st.integers(0, len(TEXTS) - 1).map(TEXTS.__getitem__) | st.binary(max_size=300)
_paths = st.sampled_from(
    [*NOTES, "memory/c.md", "memory/new/d.md", "memory", "memory/deep", ".memoryignore"]
) | st.sampled_from(
    ["memory/\udcff.md", "memory/\n.md", "memory/" + "n" * 200 + ".md", "memory/a.txt", "memory/\u202e.md", "x/y/z.md"]
)
_kinds = st.sampled_from(["write", "append", "replace", *CHANGES])
_changes = st.builds(Change, _kinds, st.just("workspace"), _paths, _texts) | st.builds(
    Change, _kinds, st.just("sessions"), st.sampled_from([*TRANSCRIPTS, "new.jsonl"]), _texts
)
_connections = st.builds(
    Connection,
    _listeners,
    connections(OWNER_TOKEN),
    st.sampled_from([0.03, 0.0]),
    st.sampled_from([65_535, 65_535, 0, 1, 100]),
    st.booleans(),
)


class Run:
    """One run: its daemon, the statuses so far, and the file of its steps."""

    def __init__(self, daemon, file):
        self.daemon = daemon
        self.performer = Performer(daemon)
        # How often each RPC answered with each status; frames are one row.
        self.codes = {}
        self.steps = 0
        self.until = 0.0
        self._file = file

    @property
    def is_over(self):
        return time.monotonic() > self.until

    def perform(self, step):
        """Perform a step, after writing it to the file, and check the statuses and the health."""
        self._file.write(to_line(step) + "\n")
        self._file.flush()
        self.steps += 1
        codes = self.performer.perform(step)
        calls = step.calls if isinstance(step, Burst) else [step] * len(codes)
        for call, code in zip(calls, codes, strict=True):
            name = call.method.rpartition("/")[2] if isinstance(call, Call) else "frames"
            self.codes.setdefault(name, Counter())[code] += 1
        faults = [code for code in codes if code.partition(" ")[0] in FAULTS and " of gRPC " not in code]
        assert not faults, (faults, step)
        if self.steps % 50 == 0:
            self.daemon.limit_files()
        self.daemon.check_serving()

    def settle(self):
        """Close every connection, restore the files, and return the memory of the idle daemon."""
        began = time.monotonic()
        self.performer.close()
        self.daemon.reset()
        self.daemon.check_answers()
        answered = time.monotonic()
        self.daemon.wait_until_idle()
        print(f"answers after {answered - began:.1f} s, idle after {time.monotonic() - began:.1f} s")
        states = self.daemon.thread_states()
        assert set(states) <= {"S"}, states
        rss = self.daemon.rss
        self.performer = Performer(self.daemon)
        return rss


def machine_of(run):
    """Return the state machine of a run."""

    class FuzzMachine(RuleBasedStateMachine):
        def _perform(self, step):
            if not run.is_over:
                run.perform(step)

        @rule(step=_calls())
        def call(self, step):
            self._perform(step)

        @rule(calls=st.lists(_calls(), min_size=2, max_size=8))
        def calls_in_parallel(self, calls):
            self._perform(Burst(tuple(calls)))

        @rule(step=_connections)
        def frames(self, step):
            self._perform(step)

        @rule(step=_changes)
        def change_file(self, step):
            self._perform(step)

        def teardown(self):
            self._perform(Release())

        @invariant()
        def is_running(self):
            run.daemon.process.status()

    return FuzzMachine


def warm_up(run):
    """Call every RPC concurrently, with small and large requests, so that pools, arenas and caches have their size."""
    run.until = math.inf
    for number, text in enumerate(TEXTS * 2):
        run.perform(Change("write", "workspace", f"memory/warm-{number % 8}.md", text))
    large = "the heron nests by the weir " * 20_000
    requests = [
        *((method, AGENT_CALLS.get(method.rpartition("/")[2])) for method in METHODS),
        ("/memoryd.v1.MemoryService/MemoryAppend", pb.MemoryAppendRequest(text=large)),
        ("/memoryd.v1.EntryService/SuggestCapture", SuggestCaptureRequest(user_messages=[large] * 4)),
        ("/memoryd.v1.MemoryService/MemorySearch", pb.MemorySearchRequest(query="heron weir pier", max_results=50)),
        ("/memoryd.v1.EntryService/Remember", RememberRequest(text="the heron likes the weir")),
    ]
    for method, request in requests * WARM_UPS:
        body = b"" if request is None else request.SerializeToString()
        calls = [Call(listener, "owner", method, body, seconds=0.3) for listener in ("unix", "tcp")]
        run.perform(Burst(tuple(calls * 4)))


def fuzz(run, seeds, seconds):
    """Run rounds of the state machine, each with its own seed, until the time is over."""
    run.until = time.monotonic() + seconds
    options = settings(
        max_examples=EXAMPLES_PER_ROUND,
        stateful_step_count=STEPS_PER_EXAMPLE,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    while not run.is_over:
        number = next(seeds)
        try:
            run_state_machine_as_test(seed(number)(machine_of(run)), settings=options)
        except BaseException:
            print(f"\nthe round with MEMORYD_FUZZ_SEED={number} failed; the steps are in {STEPS_FILE}")
            raise


@pytest.fixture
def run(tmp_path):
    STEPS_FILE.parent.mkdir(exist_ok=True)
    with fuzzed_daemon(tmp_path) as daemon, STEPS_FILE.open("w") as file:
        run = Run(daemon, file)
        yield run
        run.performer.close()


def check_end(run, warm):
    """Check that the daemon has lost nothing: memory, threads, statuses, and an orderly end."""
    daemon = run.daemon
    rss = run.settle()
    run.performer.close()
    print(f"{run.steps} steps; RSS {warm / 1e6:.0f} MB after the warm-up, {rss / 1e6:.0f} MB at the end")
    for name, codes in sorted(run.codes.items()):
        print(f"  {name or '(no name)'}:", ", ".join(f"{code} {count}" for code, count in codes.most_common()))
    daemon.check_serving()
    faults = {code: daemon.metrics("memoryd_rpc_calls_total", code=code) for code in FAULTS}
    assert not any(faults.values()), (faults, failures(daemon))
    assert not failures(daemon), failures(daemon)
    assert rss <= warm * RSS_GROWTH, (warm, rss)
    code, seconds = daemon.stop()
    assert code == 0
    assert seconds <= STOP_SECONDS, seconds
    assert not failures(daemon), failures(daemon)


def failures(daemon):
    """Return what the log says about unexpected exceptions."""
    signs = ('"fail-call"', "Traceback", '"level": "error"')
    return [line[:2_000] for line in daemon.log().splitlines() if any(sign in line for sign in signs)][:3]


@pytest.mark.skipif("MEMORYD_FUZZ_REPLAY" in os.environ, reason="MEMORYD_FUZZ_REPLAY is set")
def test_daemon_survives_any_frame_request_and_order(run):
    first = int(os.environ.get("MEMORYD_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    print(f"\nfuzzing for {SECONDS:g} s with MEMORYD_FUZZ_SEED={first}")
    seeds = itertools.count(first)
    warm_up(run)
    fuzz(run, seeds, SECONDS * WARM_UP_SHARE)
    warm = run.settle()
    fuzz(run, seeds, SECONDS * (1 - WARM_UP_SHARE))
    check_end(run, warm)


@pytest.mark.skipif("MEMORYD_FUZZ_REPLAY" not in os.environ, reason="MEMORYD_FUZZ_REPLAY is not set")
def test_steps_of_an_earlier_run_are_survived(tmp_path):
    lines = Path(os.environ["MEMORYD_FUZZ_REPLAY"]).read_text().splitlines()
    with fuzzed_daemon(tmp_path) as daemon, (tmp_path / "steps").open("w") as file:
        run = Run(daemon, file)
        for line in lines:
            run.perform(from_line(line))
        check_end(run, run.daemon.rss)
