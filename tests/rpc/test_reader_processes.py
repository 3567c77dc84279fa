"""Searches in reader processes: the same answers, no search lost when one ends, and nothing older than the index."""

import asyncio
import os
import signal
import time

import grpc
import httpx
import psutil
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from rpc.sync_streams import FULL
from rpc.wire import HYBRID, KEYWORD, TIMEOUT, VECTOR, by_meaning, check_refused, paths, quiet
from waiting import eventually

pytestmark = pytest.mark.sqlite_only("reader processes search SQLite files")

CALLERS = 32


def with_readers(settings=None, count=2, **memoryd):
    """Return quiet settings with reader processes."""
    settings = quiet(settings)
    return {**settings, "memoryd": {**settings.get("memoryd", {}), "readers": count, **memoryd}}


async def started(serve, settings=None, **memoryd):
    """Return a daemon with an index of its files, whose two reader processes are ready."""
    running = await serve(with_readers(settings, **memoryd), background=True)
    await eventually(lambda: len(running.daemon.readers.pids) == 2)
    await running.synced()
    return running


@pytest.fixture
async def running(home, serve):
    home.write(heron="# Herons\n\nthe grey heron waits in the reeds", gull="# Gulls\n\nthe gull circles over the pier")
    return await started(serve)


def outcomes(running):
    """Return the number of searches by outcome, without zeros."""
    return {outcome: count for outcome, count in running.daemon.readers.measured().searches.items() if count}


def assert_answered(running):
    """Assert that processes answered, and reported no error. On a busy machine, some answers may be late."""
    found = outcomes(running)
    assert found["answered"]
    assert not found.keys() & {"failed", "ended"}


def without_times(answer):
    """Return an answer without what differs between two equal searches."""
    answer.info.ClearField("elapsed")
    for leg in answer.info.legs:
        leg.ClearField("elapsed")
    return answer


class Callers:
    """Callers that search without a pause until the block ends; `answers` has the paths of each answer."""

    def __init__(self, running, query, count=CALLERS, **request):
        self.answers = []
        self._running, self._query, self._count, self._request = running, query, count, request
        self._on = True

    async def _call(self):
        while self._on:
            self.answers.append(paths(await self._running.search(self._query, **self._request)))

    async def more(self, count):
        """Wait for `count` further answers."""
        wanted = len(self.answers) + count
        await eventually(lambda: len(self.answers) >= wanted or self._callers.done())

    async def __aenter__(self):
        self._callers = asyncio.gather(*(self._call() for _ in range(self._count)))
        await self.more(self._count)
        return self

    async def __aexit__(self, *_):
        self._on = False
        await self._callers


REQUESTS = [
    {"query": "heron"},
    {"query": "the grey heron waits", "mode": KEYWORD},
    {"query": "soup and bread", "mode": HYBRID},
    {"query": "the ferry at dawn", "mode": VECTOR, "min_score": 0.0},
    {"query": "number 3", "max_results": 3},
    {"query": "zyzzyva"},
    {"query": "heron", "filter": {"path_prefixes": ["memory/n1"]}},
    {"query": "notes of 2025-03-04"},
]


async def test_answers_are_those_of_the_daemon_itself(home, serve, provider):
    home.many(30)
    home.write(**{f"n{number}": f"# Note {number}\n\nthe heron number {number} eats bread" for number in range(20)})
    home.put("memory/2025-03-04.md", "soup and bread for lunch\n\nthe red ferry sails at dawn")
    running = await started(serve, by_meaning(provider))

    async def answers():
        return [without_times(await running.search(**request)) for request in REQUESTS]

    outside = await answers()
    assert outcomes(running) == {"answered": len(REQUESTS)}
    await running.stop()
    alone = await serve(with_readers(by_meaning(provider), count=0), background=True)
    running = alone
    assert await answers() == outside


async def test_a_killed_process_loses_no_search_and_is_restarted(running):
    async with Callers(running, "heron") as callers:
        before = running.daemon.readers.pids
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await callers.more(100)
        await eventually(lambda: len(set(running.daemon.readers.pids) - set(before)) == 2)
        await callers.more(100)
    assert {tuple(each) for each in callers.answers} == {("memory/heron.md",)}
    assert [event["ended_with"] for event in running.logged("restart-reader")] == ["signal SIGKILL"] * 2
    assert outcomes(running)["answered"] > 100


async def test_a_rebuild_and_a_repair_fail_no_search(running, home):
    async with Callers(running, "heron") as callers:
        for _ in range(5):
            await running.synced(mode=FULL)
            await callers.more(CALLERS)
        home.store.remove_indexes()
        await callers.more(CALLERS)
        await eventually(lambda: callers.answers[-1])
        await running.synced(mode=FULL)
    # Until the sync that fills the re-created index, answers are empty and say so.
    assert {tuple(each) for each in callers.answers} <= {("memory/heron.md",), ()}
    assert paths(await running.search("heron")) == ["memory/heron.md"]


async def test_forgotten_text_is_not_found_afterwards(running, home):
    async with Callers(running, "heron"):
        for number in range(10):
            path = f"memory/secret{number}.md"
            await running.append(f"the ibis number{number}x of the marsh", path=path)
            assert path in paths(await running.search(f"number{number}x"))
            await running.stub.MemoryForget(pb.MemoryForgetRequest(path=path, delete_source=True), timeout=TIMEOUT)
            assert path not in paths(await running.search(f"number{number}x"))
    assert_answered(running)


@pytest.mark.slow
async def test_searches_find_what_was_just_appended(home, serve, provider):
    home.write(heron="the grey heron waits in the reeds")
    running = await started(serve, by_meaning(provider))
    assert paths(await running.search("heron", mode=VECTOR, min_score=0.0))
    async with Callers(running, "heron", count=8):
        for number in range(10):
            path = f"memory/new{number}.md"
            written = await running.append(f"a stork{number} builds a nest{number}", path=path)
            for mode in (KEYWORD, HYBRID):
                assert path in paths(await running.search(f"stork{number} nest{number}", mode=mode))
            # The vector is made after the append, by a sync.
            await running.synced()
            for _ in range(4):
                found = await running.search(f"a stork{number} builds a nest{number}", mode=VECTOR)
                assert path in paths(found)
                assert found.info.index_revision >= written.index_revision
    assert_answered(running)


async def test_removed_vectors_give_no_hits(home, serve, provider):
    home.write(heron="the grey heron waits in the reeds", stork="the stork builds a nest")
    running = await started(serve, by_meaning(provider))
    assert "memory/stork.md" in paths(await running.search("stork nest", mode=VECTOR, min_score=0.0))
    (home.workspace / "memory" / "stork.md").unlink()
    await running.synced()
    assert paths(await running.search("stork nest", mode=VECTOR, min_score=0.0)) == ["memory/heron.md"]
    assert_answered(running)


async def test_reloaded_settings_apply_to_the_next_search(running, home):
    home.write(**{f"n{number}": f"the heron and gull number {number}" for number in range(6)})
    await running.synced()

    async def reload(search=None, **memoryd):
        settings = with_readers({"agents": {"defaults": {"memorySearch": search or {}}}}, **memoryd)
        return await running.daemon.reload(lambda: home.settings(settings))

    assert paths(await running.search("heron"))
    await reload(abstainBelow=1.0)
    assert paths(await running.search("heron somewhere else entirely")) == []
    await reload()
    assert paths(await running.search("heron somewhere else entirely"))
    home.put("extra/kite.md", "the kite over the hill")
    await reload({"extraPaths": [str(home.workspace / "extra")]})
    await running.synced()
    assert paths(await running.search("kite"))
    await reload()
    assert paths(await running.search("kite")) == []
    assert_answered(running)
    report = await reload(readers=4)
    assert list(report.awaiting_restart) == ["memoryd.readers"]


@pytest.mark.slow
async def test_the_daemon_searches_itself_while_the_processes_hang(running):
    assert paths(await running.search("heron")) == ["memory/heron.md"]
    stopped = running.daemon.readers.pids
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    async with Callers(running, "heron") as callers:
        await callers.more(100)
        # A rebuild does not wait for a process that cannot close the index: it is killed.
        await running.synced(mode=FULL)
        await callers.more(100)
        await eventually(lambda: len(set(running.daemon.readers.pids) - set(stopped)) == 2)
    assert {tuple(each) for each in callers.answers} == {("memory/heron.md",)}
    assert outcomes(running)["late"]
    assert running.logged("kill-reader")


async def test_deadlines_and_cancellations_leave_the_processes_usable(running, home):
    home.many(100)
    await running.synced()
    request = pb.MemorySearchRequest(query="harbour crane containers gulls")
    calls = [running.stub.MemorySearch(request, timeout=0.001 * (1 + number % 20)) for number in range(200)]
    for call in calls[::3]:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    codes = {each.code() for each in ended if isinstance(each, grpc.aio.AioRpcError)}
    assert codes <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
    before = outcomes(running).get("answered", 0)
    for _ in range(20):
        assert paths(await running.search("heron")) == ["memory/heron.md"]
    assert outcomes(running)["answered"] >= before + 20


async def test_explained_searches_are_made_by_the_daemon(running):
    answer = await running.search("heron", explain=True)
    assert answer.results[0].HasField("score_detail")
    assert outcomes(running) == {}


async def test_metrics_count_processes_and_searches(home, serve):
    home.write(heron="the grey heron")
    running = await started(serve, metrics={"listen": "127.0.0.1:0"})
    for _ in range(3):
        await running.search("heron")
    async with httpx.AsyncClient(trust_env=False) as client:
        lines = (await client.get(running.daemon.metrics_url)).text.splitlines()
    assert {"memoryd_reader_processes 2.0", 'memoryd_reader_searches_total{outcome="answered"} 3.0'} <= set(lines)


async def test_an_idle_agent_has_no_file_open_in_the_processes(running):
    await running.search("heron")
    processes = list(map(psutil.Process, running.daemon.readers.pids))

    def opened():
        return [file.path for process in processes for file in process.open_files() if "memoryd.sqlite" in file.path]

    assert opened()
    await running.release_memory()
    await eventually(lambda: not opened())
    assert paths(await running.search("heron")) == ["memory/heron.md"]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_processes_that_would_not_see_later_commits_do_not_answer(running, suffix):
    await running.search("heron")
    # The processes open the index again without the file that the daemon has open.
    await running.release_memory()
    path = running.daemon.agents.configs()["main"].index_path
    path.with_name(path.name + suffix).unlink()
    await running.search("heron")
    for number in range(4):
        path = f"memory/new{number}.md"
        await running.append(f"a stork{number} builds a nest", path=path)
        assert paths(await running.search(f"stork{number}")) == [path]
    before = outcomes(running)["answered"]
    await running.synced(mode=FULL)
    assert "memory/heron.md" in paths(await running.search("heron"))
    assert outcomes(running)["answered"] > before


async def test_a_stop_ends_the_processes_soon(running):
    pids = running.daemon.readers.pids
    os.kill(pids[0], signal.SIGSTOP)
    began = time.monotonic()
    await running.stop_daemon()
    assert time.monotonic() - began < 2
    assert not any(map(psutil.pid_exists, pids))


async def test_a_command_without_a_daemon_starts_no_process(home, serve):
    home.write(heron="the grey heron")
    running = await serve(with_readers())
    await running.synced()
    assert paths(await running.search("heron")) == ["memory/heron.md"]
    assert (running.daemon.readers.pids, outcomes(running)) == ((), {})


async def test_a_process_that_cannot_start_is_reported(home, serve, monkeypatch):
    home.write(heron="the grey heron")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    running = await serve(with_readers(), background=True)
    await eventually(lambda: len(running.logged("restart-reader")) >= 2)
    await running.synced()
    assert paths(await running.search("heron")) == ["memory/heron.md"]
    assert running.logged("restart-reader")[0]["ended_with"].startswith("exit code 1: ")


async def test_a_large_request_is_refused_as_without_processes(running):
    await check_refused(running.search(""), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=["query"])
