"""Status reports an agent's index from the disk, and no secret."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fake_providers import Fault
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.cli.main import main
from rpc.wire import by_meaning, kinds

SECRET = "sk-do-not-tell-anybody"


async def test_dirty_follows_the_disk_and_not_the_events(serve, home):
    home.write(a="one", b="two")
    running = await serve()
    index = (await running.status()).index
    assert (index.dirty, index.pending_files, index.files) == (True, 2, 0)
    assert index.state == memory_pb2.INDEX_STATE_EMPTY
    assert not index.HasField("last_sync_time")
    await running.sync()
    index = (await running.status()).index
    assert (index.dirty, index.pending_files, index.files, index.chunks) == (False, 0, 2, 2)
    assert index.state == memory_pb2.INDEX_STATE_READY
    assert index.HasField("last_sync_time")
    assert not index.HasField("oldest_unindexed_age")
    home.write(c="three")
    index = (await running.status()).index
    assert (index.dirty, index.pending_files) == (True, 1)
    assert index.state == memory_pb2.INDEX_STATE_STALE
    assert 0 <= index.oldest_unindexed_age.ToMilliseconds() < 10_000
    (home.workspace / "memory" / "a.md").unlink()
    assert (await running.status()).index.pending_files == 2


async def test_the_age_is_that_of_the_oldest_waiting_file(serve, home):
    import os  # noqa: PLC0415 -- only this test sets a clock back
    import time  # noqa: PLC0415

    running = await serve()
    home.write(new="new")
    old = home.put("memory/old.md", "old")
    os.utime(old, (time.time() - 3_600,) * 2)
    # The change time cannot be set back, and it is what counts: the file was not here an hour ago.
    assert (await running.status()).index.oldest_unindexed_age.ToMilliseconds() < 60_000


async def test_a_status_holds_what_the_contract_names(serve, home):
    home.write(a="one")
    running = await serve()
    completed = await running.synced()
    status = await running.status()
    assert status.service.version
    assert status.service.start_time.seconds > 0
    assert (status.agent_id, status.workspace) == ("main", str(home.workspace))
    assert status.configured_backend == status.active_backend == memory_pb2.BACKEND_BUILTIN
    assert not status.degradations
    assert status.index.revision == completed.index_revision > 0
    assert status.index.schema_version > 0
    assert status.index.size_bytes > 0
    assert status.index.analyzer_version
    assert status.index.path == home.store.location
    (source,) = status.index.sources
    assert (source.source, source.files_on_disk, source.files_indexed, source.chunks, source.files_failed) == (
        memory_pb2.SOURCE_MEMORY,
        1,
        1,
        1,
        0,
    )
    assert (status.embedding.requested_provider, status.embedding.provider) == ("auto", "")
    assert status.embedding.reason
    assert status.vector.engine == "none"
    assert status.fulltext.available
    assert status.fulltext.tokenizer
    assert (status.cache.enabled, status.cache.entries, status.cache.max_entries) == (True, 0, 50_000)
    assert not status.qmd.configured
    assert not status.qmd.available
    assert not status.HasField("active_sync")


async def test_failed_files_are_repeated_until_they_are_repaired(serve, home):
    home.write(good="fine", **{f"big{n:02}": "x" * 200 for n in range(25)})
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 100}}})
    completed = await running.synced()
    assert (completed.indexed_files, completed.failed_files) == (1, 25)
    for _ in range(2):
        status = await running.status()
        assert len(status.failed_files) == 20
        assert all("bytes" in failure.error for failure in status.failed_files)
        assert (status.index.sources[0].files_failed, status.index.sources[0].files_indexed) == (25, 1)
        await running.sync()
    home.write(**{f"big{n:02}": "small" for n in range(25)})
    await running.sync()
    status = await running.status()
    assert not status.failed_files
    assert status.index.sources[0].files_failed == 0


async def test_sessions_without_their_flag_are_a_warning_that_names_the_flag(serve):
    running = await serve({"agents": {"defaults": {"memorySearch": {"sources": ["memory", "sessions"]}}}})
    status = await running.status()
    (warning,) = status.service.settings_warnings
    assert "memorySearch.sources" in warning
    assert "experimental.sessionMemory" in warning
    assert [memory_pb2.Source.Name(counts.source) for counts in status.index.sources] == ["SOURCE_MEMORY"]


@pytest.mark.sqlite_only("PostgreSQL does not use sqlite-vec")
async def test_sqlite_vec_that_does_not_load_is_one_warning_in_the_log(serve, home, provider):
    home.write(a="one")
    settings = by_meaning(provider, store={"vector": {"extensionPath": str(home.root / "no-such-extension")}})
    settings["agents"]["list"] = [{"id": "main"}, {"id": "work"}]
    running = await serve(settings)
    await running.synced()
    await running.search("one")
    for agent_id in ("main", "work"):
        status = await running.status(agent_id=agent_id, probe=True)
        assert kinds(status.degradations) == ["VECTOR_EXTENSION_MISSING"]
    (warning,) = running.logged("skip-sqlite-vec")
    assert (warning["level"], warning["error"]) == ("warning", status.vector.load_error)


async def shown(running, *options):
    """What `memoryd status` prints."""
    arguments = ["status", "--address", running.address, *options]
    done = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def is_file(path):
    return Path(path).is_file()


def line(text, name):
    (found,) = [line for line in text.splitlines() if line.startswith(f"  {name} ")]
    return " ".join(found.split())


async def test_a_deep_status_shows_the_probe_and_the_vector_engine(serve, provider):
    running = await serve(by_meaning(provider))
    status = await running.status(probe=True)
    probe, engine = status.embedding.probe, status.vector
    dimensions = len(provider.vector("ping"))
    assert (probe.ok, probe.dimensions, probe.error) == (True, dimensions, "")
    assert probe.elapsed.ToNanoseconds() > 0
    name = "sqlite-vec" if running.home.store.is_sqlite else "pgvector"
    assert (engine.engine, engine.load_error) == (name, "")
    # PostgreSQL loads its extension itself.
    assert is_file(engine.extension_path) is running.home.store.is_sqlite
    text = await shown(running, "--deep")
    assert f"Probe answered with {dimensions} dimensions, in 0." in line(text, "Probe")
    assert f"Vector {', '.join(filter(None, (f'{name} {engine.version}', engine.extension_path)))}" in line(
        text, "Vector"
    )
    (report,) = json.loads(await shown(running, "--deep", "--json"))
    assert report["status"]["embedding"]["probe"]["dimensions"] == dimensions
    assert report["status"]["vector"]["extensionPath"] == engine.extension_path
    assert "Probe" not in await shown(running)


async def test_a_probe_that_fails_is_shown_with_its_reason(serve, provider):
    running = await serve(by_meaning(provider))
    provider.refuse = lambda _texts: Fault(status=401, body={"error": {"message": "no such key"}})
    text = line(await shown(running, "--deep"), "Probe")
    assert text.startswith("Probe failed: ")
    assert "401" in text


async def test_a_status_without_a_provider_says_why_and_a_deep_one_names_the_vector_engine(serve):
    running = await serve()
    plain, deep = await running.status(), await running.status(probe=True)
    assert (plain.vector.engine, plain.vector.version, plain.vector.extension_path) == ("none", "", "")
    is_sqlite = running.home.store.is_sqlite
    assert (deep.vector.engine, deep.vector.load_error) == ("sqlite-vec" if is_sqlite else "pgvector", "")
    assert (bool(deep.vector.version), is_file(deep.vector.extension_path)) == (True, is_sqlite)
    for options in ((), ("--deep",)):
        text = await shown(running, *options)
        assert "Provider none (requested: auto): no embedding provider is configured" in line(text, "Provider")
        assert "openai" in line(text, "Provider")
    assert deep.vector.extension_path in line(text, "Vector")
    (report,) = json.loads(await shown(running, "--deep", "--json"))
    assert report["status"]["embedding"]["reason"] == deep.embedding.reason != ""


async def test_problems_with_the_sources_are_reported(serve, home):
    running = await serve({"agents": {"defaults": {"memorySearch": {"extraPaths": ["nowhere"]}}}})
    issues = (await running.status()).source_issues
    assert any("nowhere" in issue for issue in issues)
    assert any("no memory files" in issue for issue in issues)


async def test_a_workspace_that_does_not_exist_is_an_issue_and_no_error(serve, home):
    running = await serve(workspace=str(home.root / "absent"))
    assert any("absent" in issue for issue in (await running.status()).source_issues)
    assert (await running.synced()).failed_files == 0


async def test_no_secret_is_reported_by_any_reply(serve, home):
    home.write(a="zebra")
    remote = {"apiKey": SECRET, "baseUrl": "https://127.0.0.1:1/v1", "headers": {"X-Key": SECRET}}
    running = await serve({"agents": {"defaults": {"memorySearch": {"provider": "openai", "remote": remote}}}})
    replies = [
        *await running.sync(),
        await running.status(),
        await running.status(probe=True),
        # The search waits for the provider as long as its deadline allows.
        await running.stub.MemorySearch(pb.MemorySearchRequest(query="zebra", explain=True), timeout=3),
        await running.files(),
        await running.stub.ListAgents(pb.ListAgentsRequest()),
        await running.stub.FlushDecision(pb.FlushDecisionRequest()),
    ]
    assert not [reply for reply in replies if SECRET.encode() in reply.SerializeToString()]
    assert SECRET not in running.log.getvalue()


@pytest.mark.parametrize(
    ("settings", "degraded"),
    [
        ({}, []),
        ({"agents": {"defaults": {"memorySearch": {"provider": "none"}}}}, []),
        ({"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}}, ["VECTOR_LEG_SKIPPED"]),
        ({"memory": {"backend": "qmd", "qmd": {"command": "/nowhere/qmd"}}}, ["BACKEND_FALLBACK"]),
        (
            {
                "agents": {
                    "defaults": {
                        "memorySearch": {
                            "sources": ["memory", "sessions"],
                            "experimental": {"sessionMemory": True},
                        }
                    }
                }
            },
            [],
        ),
    ],
)
async def test_a_configured_feature_that_is_not_in_use_is_a_degradation(serve, settings, degraded):
    running = await serve(settings)
    status = await running.status()
    assert kinds(status.degradations) == degraded
    assert all(d.reason and d.wanted for d in status.degradations)
    assert status.active_backend == memory_pb2.BACKEND_BUILTIN
    assert status.qmd.configured is ("BACKEND_FALLBACK" in degraded)
    answer = await running.search("x", session_key="agent:main:main")
    assert kinds(answer.info.degradations) == degraded


async def test_watchers_are_reported_by_root(serve, home):
    native = await serve(background=True)
    (watcher,) = (await native.status()).watchers
    assert (watcher.root, watcher.mode, watcher.reason) == (".", memory_pb2.WATCHER_MODE_NATIVE, "")


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"memoryd": {"watcher": {"mode": "polling"}}}, memory_pb2.WATCHER_MODE_POLLING),
        ({"memoryd": {"watcher": {"mode": "off"}}}, memory_pb2.WATCHER_MODE_OFF),
        (
            {"agents": {"defaults": {"memorySearch": {"sync": {"watch": False}}}}},
            memory_pb2.WATCHER_MODE_OFF,
        ),
    ],
)
async def test_a_root_that_is_not_watched_natively_says_so(serve, home, settings, mode):
    running = await serve(settings, background=True)
    watchers = (await running.status()).watchers
    assert [watcher.mode for watcher in watchers] == [mode]
    assert all(watcher.reason for watcher in watchers)
