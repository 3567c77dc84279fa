"""An idle agent releases its memory, keeps following its files, and answers as before."""

import os
import threading
from pathlib import Path

import pytest

from rpc.wire import paths
from waiting import eventually

# A pass each second is what gives memory back.
RESTING = {"memoryd": {"idleSeconds": 1, "reconcileSeconds": 1}}
AWAKE = {"memoryd": {"idleSeconds": 3600, "reconcileSeconds": 1}}


def open_files(home, ending):
    found = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return sum(name.startswith(str(home.state_dir)) and name.endswith(ending) for name in found)


def passes_of(running):
    """One entry for each pass from now on."""
    passes = []
    tidy = running.background()._clean_up

    async def counted():
        await tidy()
        passes.append(1)

    running.background()._clean_up = counted
    return passes


@pytest.mark.slow
async def test_an_agent_at_rest_holds_no_reader_and_answers_when_asked(serve, home):
    home.write(a="the red ferry sails at dawn")
    running = await serve(RESTING, background=True)
    await running.synced()
    before = await running.search("ferry")
    assert not running.memory().index.is_idle
    await eventually(lambda: running.memory().index.is_idle)
    await eventually(lambda: open_files(home, ".embeddings.sqlite") == 0)
    await eventually(lambda: not any(t.name == "writer-main" for t in threading.enumerate()))
    again = await running.search("ferry")
    assert paths(again) == paths(before) == ["memory/a.md"]
    assert again.results[0].score == before.results[0].score
    assert not running.memory().index.is_idle


@pytest.mark.slow
async def test_memory_freed_by_an_agent_is_returned_to_the_system_once(serve, home):
    returned = []
    home.write(a="the red ferry sails at dawn")
    running = await serve(RESTING, background=True)
    trimmer = running.threads.freed
    trimmer.after_seconds, trimmer.release = 0.0, lambda: returned.append(1)
    await running.search("ferry")
    await eventually(lambda: running.memory().index.is_idle and returned)
    before = len(returned)
    passes = passes_of(running)
    await eventually(lambda: len(passes) >= 2)
    assert len(returned) == before, "an agent that rests already has nothing to return"


@pytest.mark.slow
async def test_an_agent_at_rest_follows_its_files(serve, home):
    home.write(a="the red ferry sails at dawn")
    running = await serve(RESTING, background=True)
    await running.synced()
    await eventually(lambda: running.memory().index.is_idle)
    home.write(b="a heron waits by the pier")
    await eventually(lambda: running.memory().index.monitor.current.files == 2)
    assert paths(await running.search("heron")) == ["memory/b.md"]
    (home.workspace / "memory" / "a.md").unlink()
    await eventually(lambda: running.memory().index.monitor.current.files == 1)


@pytest.mark.slow
async def test_an_agent_that_is_asked_keeps_what_it_holds(serve, home):
    home.write(a="the red ferry sails at dawn")
    running = await serve(AWAKE, background=True)
    await running.synced()
    await running.search("ferry")
    passes = passes_of(running)
    await eventually(lambda: len(passes) >= 2)
    assert not running.memory().index.is_idle


async def test_health_does_not_wake_who_rests(serve, home):
    home.write(a="the red ferry sails at dawn")
    running = await serve()
    memory = running.memory()
    await running.readiness.check()
    assert not memory.index.is_idle
    await running.release_memory()
    await running.readiness.check()
    assert memory.index.is_idle


async def test_an_index_removed_while_its_agent_is_idle_is_rebuilt(serve, home):
    home.write(a="the red ferry sails at dawn")
    running = await serve(RESTING, background=True)
    await running.synced()
    await eventually(lambda: running.memory().index.is_idle)
    home.store.lose_index()

    async def found():
        return paths(await running.search("ferry")) == ["memory/a.md"]

    await eventually(found)


async def test_agents_share_one_inotify_instance(serve, home):
    agents = [{"id": f"a{n}", "workspace": str(home.root / f"w{n}")} for n in range(8)]
    for n in range(8):
        (home.root / f"w{n}" / "memory").mkdir(parents=True)
    running = await serve({"agents": {"list": agents}}, background=True)
    assert inotify_instances() == 1
    (home.root / "w5" / "memory" / "x.md").write_text("a heron")

    async def found():
        return paths(await running.search("heron", agent_id="a5"))

    await eventually(found)
    assert not paths(await running.search("heron", agent_id="a4"))


def inotify_instances():
    return sum(_points_to(link) == "anon_inode:inotify" for link in Path("/proc/self/fd").iterdir())


def _points_to(link):
    try:
        return str(link.readlink())
    except OSError:
        return ""


async def test_an_agent_whose_disk_hangs_holds_up_no_other(serve, home):
    gate = threading.Event()
    agents = [{"id": "main", "workspace": str(home.workspace)}, {"id": "other", "workspace": str(home.root / "w")}]
    (home.root / "w" / "memory").mkdir(parents=True)
    running = await serve({"agents": {"list": agents}})
    memory = running.memory("main")
    try:
        stuck = [threads.submit(gate.wait) for threads in (memory.index.quick, memory.index.slow) for _ in range(50)]
        other = {"agent_id": "other"}
        await running.append("a heron", path="memory/a.md", **other)
        assert paths(await running.search("heron", **other)) == ["memory/a.md"]
        assert (await running.get("memory/a.md", **other)).text
        assert (await running.status(**other)).index.files == 1
    finally:
        gate.set()
    assert all(future.result(10) for future in stuck)
