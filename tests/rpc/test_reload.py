"""Settings reloaded while the daemon serves: calls continue, and the settings in force are reported."""

import asyncio
import io
from dataclasses import replace

import pytest

from fake_providers import Fault, embedding_server
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent.agent import Agent
from memoryd_server.app.daemon import Daemon, _reload_on_signal
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import IndexUnavailable
from memoryd_server.observe.log import LogLevel, make_log
from memoryd_server.rpc.status_response import shared_apart
from memoryd_server.settings.loading import load
from rpc.sync_streams import FULL, follow, rest
from rpc.wire import TIMEOUT, check_refused, kinds, paths, quiet, refused
from waiting import eventually

NOTE = "the first heron\n\nand a second heron"


@pytest.fixture
async def running(home, serve):
    home.write(a=NOTE)
    running = await serve()
    await running.sync()
    return running


async def reload(running, settings=None, **flags):
    """Writes `settings` and has them read again."""
    return await running.daemon.reload(lambda: running.home.settings(settings, **flags))


def search_settings(**search):
    return quiet({"agents": {"defaults": {"memorySearch": search}}})


def with_agents(*ids, **search):
    listed = [{"id": agent_id} for agent_id in ids]
    return quiet({"agents": {"list": listed, "defaults": {"memorySearch": search}}})


async def service(running):
    return (await running.status()).service


async def test_a_start_counts_as_the_first_load(running):
    told = await service(running)
    assert (told.settings_loads, told.settings_error, list(told.settings_awaiting_restart)) == (1, "", [])
    assert told.settings_load_time.seconds > 0


async def test_search_settings_apply_from_the_next_search_without_reopening(running, home):
    for number in range(5):
        home.write(**{f"n{number}": f"heron number {number}"})
    await running.sync()
    memory = running.memory()
    assert len((await running.search("heron")).results) == 6
    report = await reload(running, search_settings(query={"maxResults": 2}, sync={"onSearch": False}))
    assert (report.error, report.awaiting_restart) == ("", ())
    assert "agents.list[main].memorySearch.query.maxResults" in report.changed
    assert len((await running.search("heron")).results) == 2
    assert running.memory() is memory
    assert (await service(running)).settings_loads == 2


async def test_ranking_citations_and_flush_hold_at_once(running):
    settings = search_settings()
    settings["memory"] = {"citations": "on"}
    settings["memoryd"] = {"abstainBelow": 0.9}
    settings["agents"]["defaults"]["compaction"] = {"memoryFlush": {"softThresholdTokens": 12_345}}
    before = running.memory()
    assert (await running.search("heron and ostrich")).results
    await reload(running, settings)
    assert running.memory() is before
    assert "Source: memory/a.md" in (await running.search("heron")).results[0].snippet
    answer = await running.search("heron and ostrich and emu and cassowary")
    assert answer.info.empty_reason == memory_pb2.EMPTY_REASON_ABSTAINED
    decision = await running.stub.FlushDecision(pb.FlushDecisionRequest(total_tokens=1), timeout=TIMEOUT)
    assert decision.inputs.soft_threshold_tokens == 12_345


async def test_limits_and_the_log_level_hold_at_once(home):
    level, log = LogLevel("info"), io.StringIO()
    daemon = Daemon(home.settings(quiet()), make_log(level, "json", log), log_level=level)
    await daemon.start()
    try:
        limits = {"maxConcurrentCalls": 3, "defaultDeadlineSeconds": 4, "shutdownGraceSeconds": 5}
        settings = {**quiet(), "memoryd": {"limits": limits, "log": {"level": "error"}}}
        await daemon.reload(lambda: home.settings(settings))
        assert daemon.authorizer.admission.limits.max_concurrent_calls == 3
        assert daemon.service.ceiling_seconds == 4
        assert daemon.grace_seconds == 5
        assert "reload-settings" not in log.getvalue(), "an event below the new level"
        await daemon.reload(lambda: home.settings(quiet()))
        assert "reload-settings" in log.getvalue()
    finally:
        await daemon.stop()


# What cannot be used


@pytest.mark.parametrize(
    ("text", "words", "changed"),
    [
        # What it says about providers is unknown.
        ("{ not JSON5", "not JSON5", ("remoteEmbeddingsBlockedBy",)),
        ('{"memoryd": {"listem": []}}', "listem", ()),
        ('{"memoryd": {"listen": ["0.0.0.0:7000"]}}', "TLS", ()),
    ],
)
async def test_a_file_that_cannot_be_used_changes_no_setting_and_is_reported(running, home, text, words, changed):
    before = running.daemon.settings
    (home.state_dir / "memoryd.json5").write_text(text)
    load_time = (await service(running)).settings_load_time
    flags = {"state_dir": str(home.state_dir)}
    report = await running.daemon.reload(lambda: load(environ={}, home=home.root, flags=flags))
    assert words in report.error
    assert report.changed == changed
    kept = running.daemon.settings
    assert replace(kept, remote_embeddings_blocked_by=(), warnings=before.warnings) == before
    told = await service(running)
    assert (told.settings_loads, words in told.settings_error, told.settings_load_time) == (2, True, load_time)
    assert [words in line["error"] for line in running.logged("refuse-settings")] == [True]
    assert (await running.search("heron")).results
    assert (await reload(running, quiet())).error == ""
    assert (await service(running)).settings_error == ""


async def test_a_fault_of_ours_changes_nothing_either(running):
    def load():
        raise ZeroDivisionError("oops")

    assert "ZeroDivisionError: oops" in (await running.daemon.reload(load)).error
    assert (await running.search("heron")).results


async def test_settings_that_need_a_restart_are_named_and_not_applied(running, home):
    other = f"unix:{home.root}/other"
    report = await reload(running, {**quiet(), "memoryd": {"local": {"threads": 2}}}, listen=other)
    assert report.awaiting_restart == ("memoryd.listen", "memoryd.local.threads")
    assert list((await service(running)).settings_awaiting_restart) == list(report.awaiting_restart)
    assert not (home.root / "other").exists()
    await reload(running, quiet())
    assert not (await service(running)).settings_awaiting_restart


# Agents come, go and change


async def test_an_agent_that_is_added_is_served_and_one_that_is_removed_is_not(running, home):
    workspace = home.state_dir / "workspace-bird"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "b.md").write_text("a kestrel")
    await check_refused(running.search("kestrel", agent_id="bird"), "NOT_FOUND", "AGENT_NOT_FOUND")
    report = await reload(running, with_agents("main", "bird"))
    assert "agents.list[bird]" in report.changed
    await running.sync(agent_id="bird")
    assert paths(await running.search("kestrel", agent_id="bird")) == ["memory/b.md"]
    assert paths(await running.search("heron")) == ["memory/a.md"]
    await reload(running, with_agents("main"))
    await check_refused(running.search("kestrel", agent_id="bird"), "NOT_FOUND", "AGENT_NOT_FOUND")
    await reload(running, with_agents("main", "bird"))
    assert paths(await running.search("kestrel", agent_id="bird")) == ["memory/b.md"], "its index was kept"


async def test_memory_that_is_switched_off_and_on(running):
    await reload(running, search_settings(enabled=False))
    await check_refused(running.search("heron"), "FAILED_PRECONDITION", "MEMORY_DISABLED")
    await reload(running, search_settings())
    assert (await running.search("heron")).results


async def test_another_workspace_is_taken_up(running, home):
    other = home.root / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "b.md").write_text("a kestrel")
    before = running.memory()
    await reload(running, quiet(), workspace=str(other))
    assert running.memory() is not before
    assert (await running.status()).workspace == str(other)
    await running.sync()
    assert paths(await running.search("kestrel")) == ["memory/b.md"]
    assert not (await running.search("heron")).results


async def test_extra_paths_that_come_are_indexed_and_those_that_go_are_forgotten(running, home):
    team = home.root / "team"
    team.mkdir()
    (team / "t.md").write_text("an avocet")
    await reload(running, search_settings(extraPaths=["../team"]))
    await running.sync()
    assert paths(await running.search("avocet")) == ["../team/t.md"]
    await reload(running, search_settings())
    assert (await running.synced()).removed_files == 1
    assert not (await running.search("avocet")).results


async def test_a_provider_that_is_added_embeds_and_one_that_is_removed_is_asked_no_more(running):
    with embedding_server() as server:
        remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
        using = {"provider": "openai-compatible", "model": "words", "remote": remote}
        report = await reload(running, search_settings(**using))
        assert "sk-of-this-test" not in str(report)
        await running.sync()
        assert (await running.search("heron")).info.served_mode == memory_pb2.SEARCH_MODE_HYBRID
        await reload(running, search_settings())
        asked = len(server.requests)
        assert (await running.search("heron")).info.served_mode == memory_pb2.SEARCH_MODE_KEYWORD
        assert len(server.requests) == asked


async def test_agents_may_change_places(home, serve):
    for agent_id in "ab":
        workspace = home.state_dir / f"workspace-{agent_id}"
        (workspace / "memory").mkdir(parents=True)
        (workspace / "memory" / "n.md").write_text(f"bird{agent_id}")

    def stores(first, second):
        listed = [
            {"id": agent_id, "memorySearch": {"store": {"path": str(home.state_dir / f"{store}.sqlite")}}}
            for agent_id, store in (("a", first), ("b", second))
        ]
        return quiet({"agents": {"list": [{"id": "main"}, *listed]}})

    running = await serve(stores("one", "two"))
    for agent_id in "ab":
        await running.sync(agent_id=agent_id)
    report = await reload(running, stores("two", "one"))
    assert report.error == ""
    for agent_id in "ab":
        await running.sync(agent_id=agent_id)
        assert paths(await running.search(f"bird{agent_id}", agent_id=agent_id)) == ["memory/n.md"]


async def test_an_agent_that_cannot_be_reopened_keeps_its_old_settings(running, monkeypatch):
    plain = Agent.start

    async def start(self, **options):
        if self.config.chunk_tokens == 111:
            raise IndexUnavailable("no room")
        await plain(self, **options)

    monkeypatch.setattr(Agent, "start", start)
    report = await reload(running, search_settings(chunking={"tokens": 111}))
    assert "agent main keeps its old settings: no room" in report.error
    assert "no room" in (await service(running)).settings_error
    assert (await running.search("heron")).results
    assert running.memory().config.chunk_tokens == 400
    monkeypatch.undo()
    assert (await reload(running, search_settings(chunking={"tokens": 111}))).error == ""
    assert running.memory().config.chunk_tokens == 111


# Calls under way


async def test_calls_during_a_change_are_answered_by_the_old_memory_or_the_new(running, home):
    errors, answers = [], []
    stop = asyncio.Event()

    async def ask():
        while not stop.is_set():
            try:
                answers.append(len((await running.search("heron")).results))
                await running.get("memory/a.md")
                await running.status()
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is one too many
                errors.append(error)

    askers = [asyncio.create_task(ask()) for _ in range(4)]
    for number in range(6):
        await eventually(lambda n=number: len(answers) > 10 * n)
        await reload(running, search_settings(cache={"maxEntries": 1000 + number}))
    stop.set()
    await asyncio.gather(*askers)
    assert errors == []
    assert set(answers) == {1}


async def test_a_call_under_way_ends_before_its_memory_is_closed_and_one_that_comes_waits(running):
    held, go = asyncio.Event(), asyncio.Event()
    memory = running.memory()
    plain = memory.read

    async def read(*arguments):
        held.set()
        await go.wait()
        return await plain(*arguments)

    memory.read = read
    before = asyncio.create_task(running.get("memory/a.md"))
    await held.wait()
    changing = asyncio.create_task(reload(running, search_settings(cache={"maxEntries": 7})))
    await eventually(lambda: running.daemon.agents._changing)
    after = asyncio.create_task(running.search("heron"))
    await running.readiness.check()
    await asyncio.sleep(0.1)
    assert not before.done()
    assert not after.done()
    go.set()
    assert (await before).text.startswith("the first")
    assert (await after).results
    assert (await changing).error == ""
    assert running.memory() is not memory


async def test_a_call_that_does_not_end_is_waited_for_as_long_as_the_grace_says(running):
    memory = running.memory()
    held = asyncio.Event()

    async def read(*_):
        held.set()
        await asyncio.Event().wait()

    memory.read = read
    stuck = asyncio.create_task(refused(running.get("memory/a.md")))
    await held.wait()
    settings = search_settings(cache={"maxEntries": 7})
    settings["memoryd"] = {"limits": {"shutdownGraceSeconds": 0.2, "defaultDeadlineSeconds": 60}}
    async with asyncio.timeout(10):
        assert (await reload(running, settings)).error == ""
    assert (await running.search("heron")).results
    stuck.cancel()


async def test_a_sync_under_way_ends_at_a_files_boundary_and_may_be_tried_again(running, home, pause_sync):
    home.many(300)
    held = pause_sync(running, at=100)
    stream = follow(running)
    await anext(stream)
    await held.until_reached()
    run = running.memory().index.coordinator.active
    changing = asyncio.create_task(reload(running, search_settings(cache={"maxEntries": 7})))
    await eventually(lambda: run.stop_requested)
    held.release()
    with pytest.raises(Exception, match="reopens this agent") as caught:
        await rest(stream)
    assert caught.value.code().name == "ABORTED"
    await changing
    assert (await running.synced()).failed_files == 0
    assert (await running.status()).index.files == 301


async def test_a_watch_of_the_index_ends_with_a_word_to_watch_again(running):
    states = aiter(running.stub.WatchIndex(pb.WatchIndexRequest(), timeout=TIMEOUT))
    await anext(states)
    watching = asyncio.create_task(check_refused(states, "UNAVAILABLE", "SHUTTING_DOWN", retry=True))
    await reload(running, search_settings(cache={"maxEntries": 7}))
    assert "watch again" in (await watching).message
    assert (await anext(aiter(running.stub.WatchIndex(pb.WatchIndexRequest(), timeout=TIMEOUT)))).agent_id == "main"


async def test_syncs_and_watching_follow_their_settings(home, serve):
    home.write(a=NOTE)
    running = await serve({"memoryd": {"watcher": {"mode": "off"}, "reconcileSeconds": 3600}}, background=True)
    await eventually(lambda: found(running, "heron"))
    memory = running.memory()
    assert [w.mode for w in (await running.status()).watchers] == [memory_pb2.WATCHER_MODE_OFF]
    debounce = {"agents": {"defaults": {"memorySearch": {"sync": {"watchDebounceMs": 50}}}}}
    await reload(running, {**debounce, "memoryd": {"reconcileSeconds": 3600}})
    assert running.memory() is memory
    assert [w.mode for w in (await running.status()).watchers] == [memory_pb2.WATCHER_MODE_NATIVE]
    home.write(b="a kestrel")
    await eventually(lambda: found(running, "kestrel"))
    await reload(running, {"memoryd": {"watcher": {"mode": "off"}, "reconcileSeconds": 1}})
    home.write(c="an avocet")
    await eventually(lambda: found(running, "avocet"))


async def found(running, query):
    return bool((await running.search(query)).results)


async def test_reloads_come_one_after_the_other(running):
    reports = await asyncio.gather(
        *(reload(running, search_settings(cache={"maxEntries": 10 + number})) for number in range(4))
    )
    assert sorted(report.loads for report in reports) == [2, 3, 4, 5]
    assert (await running.search("heron")).results


async def test_a_stop_during_a_reload_waits_for_it_and_closes_what_it_opened(running, home):
    changing = asyncio.create_task(reload(running, search_settings(cache={"maxEntries": 7})))
    await asyncio.sleep(0)
    await running.stop_daemon()
    await changing
    assert (await running.daemon.reload(home.settings)).loads == 2, "nothing is read after the stop"


async def test_a_full_sync_of_one_agent_goes_on_while_another_agent_changes(home, serve, pause_sync):
    bird = home.state_dir / "workspace-bird"
    (bird / "memory").mkdir(parents=True)
    (bird / "memory" / "b.md").write_text("a kestrel")
    home.many(50)
    running = await serve(with_agents("main", "bird"))
    held = pause_sync(running, at=10)
    stream = follow(running, mode=FULL)
    await anext(stream)
    await held.until_reached()
    other = with_agents("main", "bird")
    other["agents"]["list"][1]["memorySearch"] = {"cache": {"maxEntries": 7}}
    assert (await reload(running, other)).error == ""
    held.release()
    assert (await rest(stream))[-1].completed.indexed_files == 50


async def test_a_limited_token_learns_nothing_of_reloads():
    service = memory_pb2.ServiceStatus(settings_loads=3, settings_error="x", settings_awaiting_restart=["y"])
    service.settings_load_time.seconds = 5
    assert shared_apart(pb.StatusResponse(service=service)).service == memory_pb2.ServiceStatus()


@pytest.mark.slow
async def test_a_provider_that_hangs_does_not_hold_a_reload_up(home, serve):
    home.write(a=NOTE)
    with embedding_server() as server:
        remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
        using = {"provider": "openai-compatible", "model": "words", "remote": remote}
        running = await serve(search_settings(**using))
        await running.sync()
        server.refuse = lambda _: Fault(delay_seconds=3)
        hanging = asyncio.create_task(running.search("a question nobody asked"))
        await asyncio.sleep(0.2)
        settings = search_settings()
        settings["memoryd"] = {"limits": {"shutdownGraceSeconds": 0.2}}
        async with asyncio.timeout(10):
            assert (await reload(running, settings)).error == ""
        assert kinds((await running.search("heron")).info.degradations) == []
        await asyncio.gather(hanging, return_exceptions=True)


async def test_unexpected_exception_of_background_work_is_in_the_log(serve):
    running = await serve()

    async def fail():
        raise ValueError("a fault")

    asyncio.get_running_loop().create_task(fail())
    (line,) = await eventually(lambda: running.logged("fail-background-task"))
    assert (line["level"], line["what"]) == ("error", "Task exception was never retrieved")
    assert "ValueError: a fault" in line["exception"]


async def test_reloads_go_on_where_one_could_not_be_announced(serve):
    running, asked, announced = await serve(), asyncio.Event(), []

    def announce(report):
        announced.append(report)
        if len(announced) == 1:
            raise BrokenPipeError("nobody reads the output")

    tasks = BackgroundTasks()
    tasks.repeat("reload", lambda: _reload_on_signal(asked, running.daemon, running.home.settings, announce))
    for count in (1, 2):
        asked.set()
        await eventually(lambda count=count: len(announced) == count)
    await tasks.stop()
    assert "nobody reads" in running.logged("fail-background-task")[0]["exception"]
