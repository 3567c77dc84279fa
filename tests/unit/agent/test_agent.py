"""One agent from start to stop, on real files: what a search sets off, and what it never waits for."""

import asyncio
import dataclasses
import functools
import threading
import time

import pytest

from memoryd_server.agent.agent import Agent
from memoryd_server.agent.lifecycle import Deadline
from memoryd_server.agent.requests import AppendRequest, ListFilesRequest, PageRequest
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.agent.threads import ProviderExecutors, SharedResources
from memoryd_server.app.config import agent_config
from memoryd_server.app.plugins import StorageFactory
from memoryd_server.errors import IndexBusy, MemorydError, RevisionNotReached
from memoryd_server.model import Clock, Source
from memoryd_server.observe import make_log
from memoryd_server.providers.pool import ProviderSelection
from memoryd_server.search.query import SearchMode, SearchQuery
from memoryd_server.settings.loading import load
from memoryd_server.settings.service import DatabaseSettings
from memoryd_server.sources.watcher import SharedInotify, open_inotify
from memoryd_server.sync.progress import SyncMode
from memoryd_server.threads import SharedPool
from memoryd_server.writing.append import AppendJob
from waiting import eventually

QUIET = {"onSessionStart": False, "onSearch": False, "watch": False}
NO_PROVIDER = ProviderSelection(None, "auto", "no embedding provider is configured")


@pytest.fixture
async def memory_of(tmp_path):
    """Starts memories over one workspace; each agent id has its own index."""
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    storage = StorageFactory(make_log("error", "console"), DatabaseSettings())
    threads = SharedResources(
        SharedPool(4, 3, "quick"),
        SharedPool(4, 2, "slow"),
        ProviderExecutors(),
        SharedInotify(open_inotify),
        storage.make,
        storage.make_documents,
    )
    started = []

    def note(_agent, run):
        runs.append(run)
        start.one_ended.set()

    async def start(*, background=False, selection=NO_PROVIDER, **sync):
        flags = {"workspace": str(tmp_path / "workspace"), "state_dir": str(tmp_path / "state")}
        settings = load(environ={}, home=tmp_path, flags=flags)
        config = agent_config(settings.agents["main"], settings)
        names = {"onSessionStart": "on_session_start", "onSearch": "on_search"}
        wanted = {names.get(name, name): value for name, value in {**QUIET, **sync}.items()}
        config = dataclasses.replace(config, sync=dataclasses.replace(config.sync, **wanted))
        memory = Agent(config, selection, threads, Clock(), on_sync_end=note)
        await memory.start(background=background)
        started.append(memory)
        return memory

    runs = []
    start.runs, start.started, start.one_ended = runs, started, asyncio.Event()
    start.folder = tmp_path
    yield start
    for memory in started:
        await memory.stop()
    threads.quick.shutdown()
    threads.slow.shutdown()
    threads.embed.shutdown()


def soon():
    return Deadline.after(30.0, 30.0)


def question(text="heron", seconds=30.0):
    return SearchQuery(
        text=text,
        max_results=6,
        min_score=0.0,
        min_score_is_requested=False,
        sources=(Source.MEMORY,),
        mode=SearchMode.UNSPECIFIED,
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + seconds,
    )


async def ask(memory, text="heron", *, session="", min_revision=None, seconds=30.0):
    answer = await memory.search_builtin(question(text, seconds), session_key=session, min_revision=min_revision)
    return [hit.path for hit in answer.hits]


async def synced(memory, mode=SyncMode.INCREMENTAL):
    run = await memory.index.coordinator.request(SyncTrigger.MANUAL, mode)
    await run.finished.wait()
    assert run.failure is None
    return run


def write(start, path, text):
    file = start.folder / "workspace" / path
    file.write_text(text)
    return file


async def ended(start, count):
    async with asyncio.timeout(10):
        while len(start.runs) < count:
            start.one_ended.clear()
            await start.one_ended.wait()
    return [run.trigger for run in start.runs]


async def test_a_session_starts_one_sync_however_often_it_calls(memory_of):
    memory = await memory_of(background=True, onSessionStart=True)
    await ended(memory_of, 1)
    for _ in range(5):
        await ask(memory, session="agent:main:main")
        await asyncio.sleep(0.01)
    await ended(memory_of, 2)
    await ask(memory, session="agent:main:other")
    await ended(memory_of, 3)
    await ask(memory, session="")
    assert await ended(memory_of, 3) == [SyncTrigger.STARTUP, SyncTrigger.SESSION_START, SyncTrigger.SESSION_START]


async def test_a_search_that_finds_the_index_dirty_starts_a_sync_and_does_not_wait_for_it(memory_of):
    file = write(memory_of, "memory/a.md", "heron")
    memory = await memory_of(background=True, onSearch=True)
    await ended(memory_of, 1)
    file.write_text("heron and kestrel")
    assert await ask(memory, "kestrel") == []
    assert await ask(memory) == ["memory/a.md"]
    assert (await ended(memory_of, 2))[-1] is SyncTrigger.SEARCH
    assert await ask(memory, "kestrel") == ["memory/a.md"]


async def test_a_search_after_an_append_starts_no_sync_for_the_events_of_the_append(memory_of):
    file = write(memory_of, "memory/a.md", "heron")
    memory = await memory_of(background=True, onSearch=True, watch=True, debounce_seconds=60.0)
    await ended(memory_of, 1)
    await memory.append(AppendRequest(text="kestrel", path="memory/a.md"), soon())
    await eventually(lambda: memory.index.monitor.current.dirty)
    assert await ask(memory, "kestrel") == ["memory/a.md"]
    # A sync of the search would begin in a task.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert memory.index.coordinator.active is None
    assert await ended(memory_of, 2) == [SyncTrigger.STARTUP, SyncTrigger.APPEND]
    # A file that another program has changed since is another matter.
    file.write_text("heron and sparrow")
    await ask(memory)
    assert (await ended(memory_of, 3))[-1] is SyncTrigger.SEARCH


async def test_a_search_never_waits_for_the_sync_under_way(memory_of):
    write(memory_of, "memory/a.md", "heron")
    memory = await memory_of()
    await synced(memory)
    gate = threading.Event()
    memory.index.writer_thread.submit(gate.wait)
    run = await memory.index.coordinator.request(SyncTrigger.MANUAL)
    try:
        assert await asyncio.wait_for(ask(memory), 5) == ["memory/a.md"]
        assert not run.finished.is_set()
    finally:
        gate.set()
    await run.finished.wait()


async def test_a_deleted_file_is_not_shown_though_the_index_still_has_it(memory_of):
    file = write(memory_of, "memory/a.md", "heron")
    memory = await memory_of()
    await synced(memory)
    file.unlink()
    assert await ask(memory) == []
    file.symlink_to("/etc/passwd")
    assert await ask(memory) == []


async def test_a_revision_that_comes_too_late_is_said_so(memory_of):
    memory = await memory_of()
    with pytest.raises(RevisionNotReached, match="no sync has completed"):
        await ask(memory, min_revision=1, seconds=0.05)
    revision = (await synced(memory)).outcome.revision
    with pytest.raises(RevisionNotReached, match=f"revision {revision} and did not reach {revision + 1} in time;"):
        await ask(memory, min_revision=revision + 1, seconds=0.05)


async def test_a_search_may_wait_for_a_revision(memory_of):
    memory = await memory_of()
    write(memory_of, "memory/a.md", "heron")
    waiting = asyncio.ensure_future(ask(memory, min_revision=1))
    await asyncio.sleep(0)
    await synced(memory)
    assert await waiting == ["memory/a.md"]


async def append(memory, job):
    until = time.monotonic() + 30
    work = functools.partial(memory.workspace.documents.writer.append, job)
    return await memory.workspace.writes.write(job.path, work, lock_deadline=until, deadline=until)


async def test_appended_text_is_found_at_the_revision_of_its_receipt(memory_of):
    memory = await memory_of()
    for number in range(3):
        text = f"number{number}x"
        await append(memory, AppendJob(text, path="memory/a.md"))
        revision = await memory.index.coordinator.index_files(SyncTrigger.APPEND, time.monotonic() + 30, "memory/a.md")
        assert await ask(memory, text, min_revision=revision) == ["memory/a.md"]


async def test_fifty_appends_at_once_cost_few_passes_and_are_all_found(memory_of):
    memory = await memory_of()

    async def take_in(number):
        await append(memory, AppendJob(f"number{number}x", path="memory/a.md", idempotency_key=f"k{number}"))
        return await memory.index.coordinator.index_files(SyncTrigger.APPEND, time.monotonic() + 30, "memory/a.md")

    revisions = await asyncio.gather(*(take_in(number) for number in range(50)))
    assert None not in revisions
    for number in range(50):
        assert await ask(memory, f"number{number}x") == ["memory/a.md"]


async def test_a_report_is_computed_from_the_disk(memory_of):
    memory = await memory_of()
    write(memory_of, "memory/a.md", "heron")
    report = (await memory.status(soon())).index
    assert (report.dirty, report.pending_files, report.counts.files) == (True, 1, 0)
    assert report.oldest_unindexed_age_seconds is not None
    await synced(memory)
    report = (await memory.status(soon())).index
    assert (report.dirty, report.pending_files, report.counts.files) == (False, 0, 1)
    assert report.oldest_unindexed_age_seconds is None
    assert [file.state for file in await memory.files(ListFilesRequest(page=PageRequest()), soon())] == ["INDEXED"]
    (memory_of.folder / "workspace/memory/a.md").unlink()
    assert [file.state for file in await memory.files(ListFilesRequest(page=PageRequest()), soon())] == ["GONE"]


async def test_the_index_is_given_up_at_the_stop(memory_of):
    memory = await memory_of()
    with pytest.raises(IndexBusy):
        await memory_of()
    await memory.stop()
    memory_of.started.remove(memory)
    again = await memory_of()
    assert again.index.is_open


async def test_an_index_that_cannot_be_opened_whole_is_given_up(memory_of, monkeypatch):
    def fails(*_):
        raise MemorydError("no")

    monkeypatch.setattr("memoryd_server.app.plugins.EmbeddingCache", fails)
    with pytest.raises(MemorydError, match="no"):
        await memory_of()
    monkeypatch.undo()
    assert (await memory_of()).index.is_open
