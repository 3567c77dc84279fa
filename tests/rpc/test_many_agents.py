"""A daemon with more agents than it opens before it listens: each answers its calls, and none blocks another."""

import asyncio
import threading

import pytest

from memoryd_server.agent import agents
from memoryd_server.errors import IndexBusy
from rpc.wire import check_refused, paths, quiet, refused, start
from waiting import eventually

AGENTS = 6
LAST = f"a{AGENTS - 1}"


@pytest.fixture
def few_first(monkeypatch):
    """One index is open before the daemon listens, and the others follow one by one."""
    monkeypatch.setattr(agents, "OPENED_FIRST", 1)
    monkeypatch.setattr(agents, "OPENED_DURING_CALLS", 1)


@pytest.fixture
def gate(before_open, home):
    """Block the opening of the index of each agent in `gate.shut` until `gate.open`."""
    gate = Gate()

    def wait(store):
        if home.store.agent_of(store) in gate.shut:
            gate.reached.set()
            assert gate.released.wait(30)

    before_open(wait)
    yield gate
    gate.open()


class Gate:
    def __init__(self):
        self.shut = set()
        self.reached, self.released = threading.Event(), threading.Event()

    def open(self):
        self.released.set()


def many(home):
    agents = [{"id": f"a{number}", "workspace": str(home.root / f"w{number}")} for number in range(AGENTS)]
    # The default agent is at the workspace of the flags.
    home.write(x="the heron of pier 0")
    for number in range(1, AGENTS):
        folder = home.root / f"w{number}" / "memory"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "x.md").write_text(f"the heron of pier {number}")
    return {"agents": {"list": agents}}


def opened(running):
    return sorted(running.daemon.agents.opened())


async def test_every_agent_is_opened_without_a_call(serve, home, few_first):
    running = await serve(many(home))
    await eventually(lambda: len(opened(running)) == AGENTS)
    for number in range(AGENTS):
        await running.synced(agent_id=f"a{number}")
        assert paths(await running.search("heron", agent_id=f"a{number}")) == ["memory/x.md"]


async def test_words_that_were_met_are_remembered_once_for_all_agents(serve, home):
    running = await serve(many(home))
    for number in range(AGENTS):
        await running.synced(agent_id=f"a{number}")
    memories = running.daemon.agents.opened().values()
    assert len({id(memory._search.engine._analyzer) for memory in memories}) == 1
    assert running.threads.analyzer._pieces[""].keys() >= {"heron", "pier", "5"}


async def test_the_default_agent_is_opened_before_all_others(serve, home, few_first, gate):
    gate.shut = {f"a{number}" for number in range(AGENTS - 1)}
    settings = many(home)
    settings["agents"]["list"][-1]["default"] = True
    running = await serve(settings)
    assert opened(running) == [LAST]


async def test_an_agent_that_is_asked_is_opened_before_those_that_wait(serve, home, few_first, gate):
    gate.shut = {"a1"}
    running = await serve(many(home))
    await asyncio.to_thread(gate.reached.wait, 10)
    assert opened(running) == ["a0"]
    await running.synced(agent_id=LAST)
    assert paths(await running.search("heron", agent_id=LAST)) == ["memory/x.md"]
    assert opened(running) == ["a0", LAST]
    waiting = asyncio.ensure_future(running.status(agent_id="a1"))
    gate.open()
    assert (await waiting).agent_id == "a1"
    await eventually(lambda: len(opened(running)) == AGENTS)


async def test_many_who_ask_for_an_agent_that_waits_open_it_once(serve, home, few_first, gate, before_open):
    gate.shut = {"a1", LAST}
    opens = []
    before_open(lambda store: opens.append(home.store.agent_of(store)))
    running = await serve(many(home))
    asking = [asyncio.ensure_future(running.search("heron", agent_id=LAST)) for _ in range(5)]
    await eventually(lambda: LAST in opens)
    gate.open()
    await asyncio.gather(*asking)
    await eventually(lambda: len(opened(running)) == AGENTS)
    assert sorted(opens) == [f"a{number}" for number in range(AGENTS)]


async def test_an_agent_whose_turn_has_not_come_is_locked_all_the_same(serve, home, few_first, gate):
    gate.shut = {"a1"}
    running = await serve(many(home))
    with pytest.raises(IndexBusy), home.store.held(LAST):
        pass
    gate.open()
    await running.stop()
    with home.store.held(LAST):
        pass


async def test_a_daemon_does_not_start_where_one_of_the_last_indexes_is_held(serve, home, few_first):
    with home.store.held(LAST), pytest.raises(IndexBusy, match=LAST):
        await start(home, quiet(many(home)))
    assert (await (await serve(many(home))).status(agent_id="a0")).agent_id == "a0"


async def test_an_agent_that_cannot_be_opened_delays_no_other(serve, home, few_first):
    for name in ("a0", "a2"):
        home.store.block(name)
    running = await serve(many(home))
    await check_refused(running.search("heron", agent_id="a2"), "UNAVAILABLE", "INDEX_UNAVAILABLE")
    await eventually(lambda: opened(running) == ["a1", "a3", "a4", LAST])
    await check_refused(running.search("heron", agent_id="a0"), "UNAVAILABLE", "INDEX_UNAVAILABLE")


async def test_a_bug_that_meets_one_agent_leaves_those_behind_it_alone(serve, home, few_first, before_open):
    def spoilt(store):
        if home.store.agent_of(store) == "a2":
            raise ValueError("spoilt")

    before_open(spoilt)
    running = await serve(many(home))
    await eventually(lambda: opened(running) == ["a0", "a1", "a3", "a4", LAST])
    await check_refused(running.search("heron", agent_id="a2"), "UNAVAILABLE", "INDEX_UNAVAILABLE", mentions="spoilt")


async def test_a_daemon_that_is_stopped_while_it_opens_refuses_who_waits_and_opens_no_more(
    serve, home, few_first, gate
):
    gate.shut = {"a1"}
    running = await serve(many(home))
    await asyncio.to_thread(gate.reached.wait, 10)
    stopping = asyncio.ensure_future(running.stop_daemon())
    await eventually(running.daemon.agents.stopping.is_set)
    assert not stopping.done()
    gate.open()
    await stopping
    assert opened(running) == ["a0", "a1"]
    if home.store.is_sqlite:
        assert not home.store.index("a2").exists()


def other_chunks(settings):
    """Settings under which every agent is reopened."""
    return quiet(
        {**settings, "agents": {**settings["agents"], "defaults": {"memorySearch": {"chunking": {"tokens": 99}}}}}
    )


@pytest.mark.faults
async def test_a_stop_during_a_reload_opens_no_further_agent(serve, home, gate, before_open):
    settings = many(home)
    running = await serve(settings)
    await eventually(lambda: len(opened(running)) == AGENTS)
    opens = []
    before_open(lambda store: opens.append(home.store.agent_of(store)))
    gate.shut = {"a1"}
    reloading = asyncio.ensure_future(running.daemon.reload(lambda: home.settings(other_chunks(settings))))
    await asyncio.to_thread(gate.reached.wait, 10)
    waiting = asyncio.ensure_future(refused(running.search("heron", agent_id=LAST)))
    await eventually(lambda: running.gate.admission.calls)
    stopping = asyncio.ensure_future(running.stop_daemon())
    await eventually(running.daemon.agents.stopping.is_set)
    gate.open()
    await stopping
    assert (await reloading).error == ""
    assert opens == ["a0", "a1"]
    assert (await waiting).reason == "SHUTTING_DOWN"


@pytest.mark.faults
async def test_a_reload_that_waits_for_a_call_ends_when_the_daemon_stops(serve, home):
    settings = many(home)
    running = await serve({**settings, "memoryd": {"limits": {"shutdownGraceSeconds": 60}}})
    call = asyncio.ensure_future(running.search("heron", agent_id="a1", min_revision=10**12))
    await eventually(lambda: running.daemon.agents._uses.is_used("a1"))
    reloading = asyncio.ensure_future(running.daemon.reload(lambda: home.settings(other_chunks(settings))))
    await eventually(lambda: opened(running) == [])
    stopping = asyncio.ensure_future(running.stop_daemon())
    await asyncio.wait_for(reloading, 20)
    assert not call.done()
    call.cancel()
    await asyncio.wait_for(stopping, 20)


async def test_settings_that_are_reloaded_while_agents_wait_come_into_force_behind_them(serve, home, few_first, gate):
    gate.shut = {"a1"}
    settings = many(home)
    running = await serve(settings)
    await asyncio.to_thread(gate.reached.wait, 10)
    settings["agents"]["list"].pop()
    reloading = asyncio.ensure_future(running.daemon.reload(lambda: home.settings(quiet(settings))))
    await asyncio.sleep(0)
    gate.open()
    await reloading
    assert opened(running) == [f"a{number}" for number in range(AGENTS - 1)]


async def test_unused_agents_become_idle_after_their_first_sync_and_the_others_do_not(serve, home, few_first):
    settings = many(home)
    running = await serve(settings, background=True)
    memories = running.daemon.agents.opened
    await eventually(lambda: len(opened(running)) == AGENTS)
    await eventually(lambda: all(memories()[f"a{number}"].index.is_idle for number in range(1, AGENTS)))
    assert all(memory.index.monitor.current.files == 1 for memory in memories().values() if memory.index.is_idle)
    assert not memories()["a0"].index.is_idle
    assert paths(await running.search("heron", agent_id=LAST)) == ["memory/x.md"]
