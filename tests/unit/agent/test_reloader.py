"""The reload of an index after changes of other replicas: once for several changes, and again while a search waits."""

import asyncio

import pytest

from memoryd_server.agent.reloader import IndexReloader
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import IndexUnavailable, RevisionNotReached
from waiting import eventually


class SharedIndex:
    """An index at `revision`, as a database has it; `loads` and `comparisons` count what a daemon does with it."""

    def __init__(self, turns):
        self.monitor = IndexMonitor()
        self.revision = 1
        self.loads = self.comparisons = self.running = self.most_running = 0
        self.failure = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.reloader = IndexReloader(self.load, self.compare, self.monitor, turns=turns, tasks=BackgroundTasks())

    async def load(self):
        self.loads += 1
        revision = self.revision
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await self.gate.wait()
        self.running -= 1
        if self.failure is not None:
            raise self.failure
        self.monitor.record_counts(revision, files=1, chunks=1, whole=True)

    async def compare(self, index_changed):
        self.comparisons += not index_changed

    def change(self, revision):
        self.revision = revision
        self.reloader.note_change()


@pytest.fixture
async def new_index():
    turns, made = asyncio.Semaphore(1), []

    def new_index():
        made.append(SharedIndex(turns))
        made[-1].reloader.start()
        return made[-1]

    yield new_index
    for index in made:
        index.gate.set()
        await index.reloader.stop()


async def test_changes_during_a_reload_are_loaded_by_one_more(new_index):
    index = new_index()
    index.gate.clear()
    index.change(2)
    await eventually(lambda: index.loads == 1)
    for revision in range(3, 8):
        index.change(revision)
    index.gate.set()
    await eventually(lambda: index.monitor.current.revision == 7)
    assert index.loads == 2
    assert index.comparisons == 0


async def test_a_change_of_files_alone_is_looked_for(new_index):
    index = new_index()
    index.change(2)
    await eventually(lambda: index.monitor.current.revision == 2)
    index.reloader.note_change()
    await eventually(lambda: index.comparisons == 1)
    assert index.loads == 2


async def test_the_agents_of_a_daemon_are_reloaded_in_turn(new_index):
    indexes = [new_index() for _ in range(5)]
    for index in indexes:
        index.gate.clear()
        index.change(2)
    await eventually(lambda: any(index.loads for index in indexes))
    assert sum(index.loads for index in indexes) == 1
    for index in indexes:
        index.gate.set()
    await eventually(lambda: all(index.monitor.current.revision == 2 for index in indexes))


async def test_a_search_loads_the_index_before_it_waits_and_again_while_it_waits(new_index):
    index = new_index()
    index.revision = 2
    await index.reloader.reached_within(5, 2)
    assert index.loads == 1
    waiting = asyncio.ensure_future(index.reloader.reached_within(10, 3))
    await eventually(lambda: index.loads == 2)
    # No notification arrives.
    index.revision = 3
    await waiting
    assert index.loads == 3


async def test_a_search_does_not_wait_for_the_turn_of_its_agent(new_index):
    busy, index = new_index(), new_index()
    busy.gate.clear()
    busy.change(2)
    await eventually(lambda: busy.loads == 1)
    index.revision = 2
    await index.reloader.reached_within(5, 2)


async def test_searches_that_wait_share_their_reloads(new_index):
    index = new_index()
    index.gate.clear()
    index.revision = 2
    first = asyncio.ensure_future(index.reloader.reached_within(10, 2))
    await eventually(lambda: index.loads == 1)
    others = [asyncio.ensure_future(index.reloader.reached_within(10, 2)) for _ in range(20)]
    await asyncio.sleep(0)
    first.cancel()
    index.gate.set()
    await asyncio.gather(*others)
    assert index.loads <= 2
    assert index.most_running == 1


async def test_a_revision_that_does_not_come_is_reported_in_time(new_index):
    index = new_index()
    with pytest.raises(RevisionNotReached):
        await index.reloader.reached_within(0.1, 2)
    index.failure = IndexUnavailable("the server cannot be reached")
    with pytest.raises(IndexUnavailable):
        await index.reloader.reached_within(0.1, 2)
    index.gate.clear()
    with pytest.raises(RevisionNotReached):
        await index.reloader.reached_within(0.1, 2)


async def test_counts_of_an_earlier_revision_are_ignored():
    monitor = IndexMonitor()
    monitor.record_counts(5, files=3, chunks=3, whole=True)
    monitor.record_counts(4, files=2, chunks=2, whole=True)
    monitor.update(revision=3)
    assert (monitor.current.revision, monitor.current.files) == (5, 3)


async def test_known_counts_are_no_change():
    monitor = IndexMonitor()
    monitor.record_counts(5, files=3, chunks=3, whole=True)
    woken = asyncio.ensure_future(monitor.next_change())
    monitor.record_counts(5, files=3, chunks=3, whole=True)
    await asyncio.sleep(0)
    assert not woken.done()
    monitor.record_counts(6, files=3, chunks=3, whole=True)
    await woken
