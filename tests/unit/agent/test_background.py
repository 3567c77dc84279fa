"""Events become passes: one for a burst, some for a stream, and one even when no event comes."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from memoryd_server.agent.background import MOST_DEBOUNCES, BackgroundSync
from memoryd_server.agent.config import SyncConfig
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.errors import IndexUnavailable
from memoryd_server.sync.progress import SyncPhase
from waiting import eventually

DEBOUNCE = 0.05
CHANGED = ("a changed file",)


def config(**changes):
    given = {
        "on_session_start": False,
        "on_search": False,
        "watch": True,
        "poll": False,
        "poll_seconds": 1.0,
        "debounce_seconds": DEBOUNCE,
        "interval_seconds": 0.0,
        "reconcile_seconds": 3600.0,
        "files_per_transaction": 100,
        "max_file_bytes": 1_000_000,
    }
    return SyncConfig(**{**given, **changes})


class FakeWatcher:
    def __init__(self, on_change, on_transcripts):
        self.on_change, self.on_transcripts = on_change, on_transcripts
        self.checks, self.stopped, self.broken = 0, False, None
        self.untold = []

    def start(self):
        pass

    def stop(self):
        self.stopped = True

    def check(self):
        self.checks += 1
        if self.broken:
            raise self.broken

    def record_missed(self, files):
        self.untold.append(files)

    def status(self):
        return ()


async def from_threads(event, times):
    """Call `event` so often from four threads, which begin together."""
    begin = threading.Barrier(4)

    def call():
        begin.wait(10)
        for _ in range(times // 4):
            event()

    await asyncio.gather(*(asyncio.to_thread(call) for _ in range(4)))


@pytest.fixture
async def watch(fixture):
    """Starts background syncs whose first one has ended; `compare` says what a look at the disk finds."""
    fixture.engine.free = True
    started = []
    threads = ThreadPoolExecutor(2)

    async def watch(
        *,
        differs=lambda: False,
        waiting=lambda: (),
        database="",
        clean_up=None,
        turns=None,
        idle_at_first=False,
        awaited=1,
        **changes,
    ):
        fixture.engine.compare = lambda: SimpleNamespace(
            plan=SimpleNamespace(needs_run=differs(), changed=CHANGED, waiting=waiting())
        )
        watchers = []

        def make(on_change, on_transcripts):
            watchers.append(FakeWatcher(on_change, on_transcripts))
            return watchers[-1]

        background = BackgroundSync(
            config(**changes),
            fixture.engine,
            fixture.coordinator,
            fixture.monitor,
            make_watcher=make,
            threads=threads,
            clean_up=clean_up,
            first_turns=turns,
            idle_at_first=idle_at_first,
            transcript_window_seconds=DEBOUNCE,
            first_turn_seconds=0.2,
            database=database,
            database_poll_seconds=0.01,
        )
        await background.start()
        started.append(background)
        await passes(fixture, awaited)
        return background, watchers[0] if watchers else None

    yield watch
    for background in started:
        await background.stop()
    threads.shutdown()


async def passes(fixture, count):
    async with asyncio.timeout(10):
        while len(fixture.ended) < count:
            await fixture.monitor.next_change()
            await asyncio.sleep(0)


def triggers(fixture):
    return [run.trigger for run in fixture.ended]


async def test_the_first_sync_needs_no_event(fixture, watch):
    await watch()
    assert triggers(fixture) == [SyncTrigger.STARTUP]


async def test_a_burst_of_events_from_other_threads_is_one_pass(fixture, watch):
    _, watcher = await watch()
    await from_threads(watcher.on_change, 500)
    await passes(fixture, 2)
    await asyncio.sleep(3 * DEBOUNCE)
    assert triggers(fixture) == [SyncTrigger.STARTUP, SyncTrigger.WATCH]


async def test_a_steady_stream_of_events_is_synced_all_the_same(fixture, watch):
    _, watcher = await watch()
    began = asyncio.get_running_loop().time()
    while len(fixture.ended) < 3:
        watcher.on_change()
        await asyncio.sleep(DEBOUNCE / 5)
        assert asyncio.get_running_loop().time() - began < 20 * MOST_DEBOUNCES * DEBOUNCE
    assert triggers(fixture)[1:3] == [SyncTrigger.WATCH] * 2


async def test_an_event_during_a_run_is_followed_by_another(fixture, watch):
    _, watcher = await watch()
    fixture.engine.free = False
    run = await fixture.coordinator.request(SyncTrigger.MANUAL)
    fixture.engine.began = type(fixture.engine.began)(0)
    await asyncio.sleep(0.02)
    watcher.on_change()
    await asyncio.sleep(2 * DEBOUNCE)
    assert not run.finished.is_set()
    fixture.engine.free = True
    await passes(fixture, 3)
    assert triggers(fixture) == [SyncTrigger.STARTUP, SyncTrigger.MANUAL, SyncTrigger.WATCH]


async def test_a_reconcile_pass_syncs_changes_without_events(fixture, watch):
    found = iter([False, True, *[False] * 1000])
    await watch(differs=lambda: next(found), watch=False, reconcile_seconds=0.02)
    await passes(fixture, 2)
    await asyncio.sleep(0.1)
    assert triggers(fixture) == [SyncTrigger.STARTUP, SyncTrigger.RECONCILE]


@pytest.mark.parametrize("broken", [OSError("beyond repair"), RuntimeError("can't start new thread")])
async def test_a_watcher_beyond_repair_does_not_end_the_reconciling(fixture, watch, broken):
    found = iter([False, False, True, *[False] * 1000])
    background, watcher = await watch(differs=lambda: next(found), reconcile_seconds=0.02)
    watcher.broken = broken
    await passes(fixture, 2)
    assert watcher.checks >= 2
    assert triggers(fixture)[-1] is SyncTrigger.RECONCILE
    assert str(broken) in background.trouble
    watcher.broken = None
    await eventually(lambda: background.trouble == "")


async def test_a_failed_comparison_is_reported_and_repeated(fixture, watch):
    found = iter([ZeroDivisionError("a bug"), True, *[False] * 1000])

    def differs():
        answer = next(found)
        if isinstance(answer, Exception):
            raise answer
        return answer

    background, _ = await watch(differs=differs, watch=False, reconcile_seconds=0.02)
    await eventually(lambda: "a bug" in background.trouble)
    await passes(fixture, 2)
    assert triggers(fixture)[-1] is SyncTrigger.RECONCILE


async def test_tidying_that_fails_or_hangs_does_not_end_the_reconciling(fixture, watch):
    calls, fails, hangs, go = [], True, asyncio.Event(), asyncio.Event()

    async def tidy():
        calls.append(len(calls))
        if fails:
            raise ValueError("untidy")
        hangs.set()
        await go.wait()

    background, _ = await watch(clean_up=tidy, watch=False, reconcile_seconds=0.02)
    await eventually(lambda: "untidy" in background.trouble)
    fails = False
    await hangs.wait()
    count = len(calls)
    found = iter([True, *[False] * 1000])
    fixture.engine.compare = lambda: SimpleNamespace(
        plan=SimpleNamespace(needs_run=next(found), changed=(), waiting=())
    )
    await passes(fixture, 2)
    assert len(calls) == count, "it was not begun again while it was under way"
    go.set()
    await eventually(lambda: len(calls) > count)
    assert background.trouble == ""


async def test_the_watcher_hears_of_the_changes_that_only_a_look_has_found(fixture, watch):
    found = iter([False, True, *[False] * 1000])
    _, watcher = await watch(differs=lambda: next(found), reconcile_seconds=0.02)
    await passes(fixture, 2)
    await eventually(lambda: CHANGED in watcher.untold)


async def test_a_run_that_makes_vectors_is_notified_of_changed_files(fixture, watch):
    """It takes the files in at once; a run at any earlier stage finds them by itself."""
    differs = [False]
    await watch(differs=lambda: differs[0], watch=False, reconcile_seconds=0.02)
    fixture.engine.free = False
    fixture.engine.phase = SyncPhase.EMBEDDING
    run = await fixture.coordinator.request(SyncTrigger.MANUAL)
    await eventually(lambda: run.progress.progress.phase is SyncPhase.EMBEDDING)
    assert not fixture.engine.should_yield()
    differs[0] = True
    await eventually(fixture.engine.should_yield)
    differs[0] = False
    fixture.engine.free = True
    await passes(fixture, 3)
    assert triggers(fixture)[1:] == [SyncTrigger.MANUAL, SyncTrigger.RECONCILE]


async def test_an_index_that_cannot_be_compared_is_synced(fixture, watch):
    def fails():
        raise IndexUnavailable("damaged")

    await watch(differs=fails, watch=False, reconcile_seconds=0.02)
    await passes(fixture, 3)
    assert triggers(fixture)[1:3] == [SyncTrigger.RECONCILE] * 2


async def test_an_interval_syncs_without_a_look(fixture, watch):
    await watch(watch=False, interval_seconds=0.02)
    await passes(fixture, 3)
    assert triggers(fixture)[1:3] == [SyncTrigger.INTERVAL] * 2


async def test_a_sync_asked_for_soon_is_not_started_twice(fixture, watch):
    background, _ = await watch()
    for _ in range(5):
        background.sync_soon(SyncTrigger.SEARCH)
    await passes(fixture, 2)
    await asyncio.sleep(0.02)
    assert triggers(fixture) == [SyncTrigger.STARTUP, SyncTrigger.SEARCH]


async def test_nothing_starts_after_the_stop(fixture, watch):
    background, watcher = await watch(reconcile_seconds=0.02, differs=lambda: False)
    watcher.on_change()
    await background.stop()
    assert watcher.stopped
    before = len(fixture.ended)
    watcher.on_change()
    await asyncio.sleep(0.02)
    assert len(fixture.ended) == before


async def test_many_events_of_transcripts_are_one_look_and_a_sync_only_when_one_is_due(watch, fixture):
    due, looks = [], []

    def look():
        looks.append(None)
        return bool(due)

    _, watcher = await watch()
    fixture.engine.compare = lambda: SimpleNamespace(
        plan=SimpleNamespace(needs_run=look(), changed=CHANGED, waiting=())
    )
    await from_threads(watcher.on_transcripts, 100)
    await eventually(lambda: looks)
    await asyncio.sleep(3 * DEBOUNCE)
    assert len(looks) == 1
    assert triggers(fixture) == [SyncTrigger.STARTUP]
    due.append(None)
    watcher.on_transcripts()
    await passes(fixture, 2)
    assert triggers(fixture) == [SyncTrigger.STARTUP, SyncTrigger.WATCH]


async def test_first_syncs_come_in_turn_and_one_that_takes_long_leaves_its_turn_to_others(fixture, watch):
    turns = asyncio.Semaphore(1)
    await turns.acquire()
    await watch(turns=turns, awaited=0)
    await asyncio.sleep(0.05)
    assert not fixture.ended
    fixture.engine.free = False
    turns.release()
    await eventually(lambda: fixture.coordinator.active is not None)
    assert turns.locked()
    async with asyncio.timeout(10):
        await turns.acquire()
    assert fixture.coordinator.active is not None
    fixture.engine.free = True
    await passes(fixture, 1)


@pytest.mark.parametrize("rests", [True, False])
async def test_an_unused_agent_becomes_idle_after_the_first_sync(fixture, watch, rests):
    ended = []

    async def tidy():
        ended.append(len(fixture.ended))

    await watch(clean_up=tidy, idle_at_first=rests)
    if rests:
        await eventually(lambda: ended)
    assert ended == [1] * rests


async def test_unexpected_exception_of_a_sync_at_an_interval_ends_no_loop_and_is_reported(fixture, watch):
    reported, start = [], fixture.coordinator.start
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    failures = [ValueError("a fault"), ValueError("the same")]

    def failing_at_first(trigger):
        if trigger is SyncTrigger.INTERVAL and failures:
            raise failures.pop(0)
        return start(trigger)

    fixture.coordinator.start = failing_at_first
    await watch(watch=False, interval_seconds=0.02)
    await passes(fixture, 2)
    assert triggers(fixture)[-1] is SyncTrigger.INTERVAL
    assert reported == ["a fault"]


async def test_unexpected_exception_of_a_reconcile_step_is_reported_once(fixture, watch):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    _, watcher = await watch(reconcile_seconds=0.01)
    watcher.broken = ValueError("a fault")
    before = watcher.checks
    await eventually(lambda: watcher.checks > before + 3)
    assert reported == ["a fault"]


async def test_a_change_of_the_session_database_is_followed_by_a_pass(fixture, watch, tmp_path):
    database = tmp_path / "openclaw-agent.sqlite"
    database.write_bytes(b"x")
    differs = iter([True])
    await watch(differs=lambda: next(differs, False), database=str(database), awaited=2)
    assert triggers(fixture) == [SyncTrigger.STARTUP, SyncTrigger.WATCH]
    differs = iter([True])
    (tmp_path / "openclaw-agent.sqlite-wal").write_bytes(b"x")
    await passes(fixture, 3)


async def test_events_that_are_not_due_yet_are_checked_again_without_a_further_change(fixture, watch, tmp_path):
    checks = []

    def waiting():
        checks.append(len(checks))
        return (SimpleNamespace(database="x"),) if len(checks) < 4 else ()

    database = tmp_path / "openclaw-agent.sqlite"
    database.write_bytes(b"x")
    await watch(waiting=waiting, database=str(database))
    await eventually(lambda: len(checks) >= 4)
    count = len(checks)
    await asyncio.sleep(0.1)
    assert len(checks) == count


async def test_without_watching_the_session_database_is_not_polled(fixture, watch, tmp_path):
    checks = []
    await watch(waiting=lambda: checks.append(1) or (), database=str(tmp_path / "x.sqlite"), watch=False)
    await asyncio.sleep(0.1)
    assert checks == []


async def test_a_session_database_that_is_missing_starts_no_check_until_it_is_there(fixture, watch, tmp_path):
    checks = []
    database = tmp_path / "openclaw-agent.sqlite"
    await watch(waiting=lambda: checks.append(1) or (), database=str(database))
    await asyncio.sleep(0.1)
    assert checks == []
    database.write_bytes(b"x")
    await eventually(lambda: checks)
