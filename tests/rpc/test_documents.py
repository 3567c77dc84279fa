"""With documents in PostgreSQL, every call works without a workspace, also after a restart on another machine."""

import itertools
import json
import shutil

import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.errors import SettingsError
from postgres_server import postgres_server, running_server  # noqa: F401 -- a fixture
from rpc.editing import all_versions, digest, forget, kind, move, restore, write
from rpc.wire import TIMEOUT, Home, check_refused, kinds, paths

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

NUMBERS = itertools.count()
SESSIONS = {
    "agents": {
        "defaults": {"memorySearch": {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}}
    }
}
NOTE = "# Harbour\n\nthe crane lifts containers\n"


@pytest.fixture
def url(postgres_server):  # noqa: F811 -- the fixture
    """The URL of an empty database."""
    return postgres_server.create_database(f"documents{next(NUMBERS)}")


@pytest.fixture
def home(tmp_path):
    """A home without a workspace."""
    return homeless(tmp_path)


def homeless(folder):
    home = Home(folder)
    shutil.rmtree(home.workspace)
    return home


def with_documents(url, settings=None, **more):
    """Return settings that keep the memory files in a database."""
    merged = json.loads(json.dumps(settings or {}))
    store = {"url": url, "documents": "database"}
    merged["memoryd"] = {**merged.get("memoryd", {}), "writes": "edit", "store": store, **more}
    return merged


def said(role, text):
    return json.dumps({"type": "message", "message": {"role": role, "content": text}})


async def push(running, session_id, *records, **fields):
    request = pb.SessionAppendRequest(session_id=session_id, records=records, **fields)
    return await running.stub.SessionAppend(request, timeout=TIMEOUT)


async def archive(running, transcript, **fields):
    request = pb.SessionArchiveRequest(transcript=transcript, **fields)
    return await running.stub.SessionArchive(request, timeout=TIMEOUT)


async def context(running, **fields):
    return await running.stub.SessionContext(pb.SessionContextRequest(**fields), timeout=TIMEOUT)


async def text_of(running, path):
    return (await running.get(path)).text


async def listed(running):
    return [file.path for file in (await running.files()).files]


def files_below(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


async def test_written_documents_are_found_read_and_listed(serve, home, url):
    running = await serve(with_documents(url))
    appended = await running.append("the ferry leaves at noon", path="memory/log.md", idempotency_key="k")
    assert (appended.path, appended.start_line, appended.end_line) == ("memory/log.md", 1, 1)
    again = await running.append("the ferry leaves at noon", path="memory/log.md", idempotency_key="k")
    assert again.already_appended
    created = await write(running, "MEMORY.md", content=NOTE)
    found = await running.search("crane", min_revision=created.index_revision)
    assert paths(found) == ["MEMORY.md"]
    assert kinds(found.info.degradations) == []
    assert paths(await running.search("ferry")) == ["memory/log.md"]
    assert await text_of(running, "memory/log.md") == "the ferry leaves at noon\n"
    assert await listed(running) == ["MEMORY.md", "memory/log.md"]
    assert not home.workspace.exists()


async def test_a_write_of_an_outdated_content_changes_nothing(serve, url):
    running = await serve(with_documents(url))
    await write(running, "memory/a.md", content=NOTE)
    await check_refused(write(running, "memory/a.md", "other", content="x"), "ABORTED", "CONTENT_CHANGED")
    await check_refused(write(running, "memory/a.md", content="x"), "ABORTED", "CONTENT_CHANGED")
    assert await text_of(running, "memory/a.md") == NOTE
    changed = pb.TextReplacement(old_text="crane", new_text="ferry")
    done = await write(running, "memory/a.md", NOTE, replace=changed)
    assert done.content_sha256 == digest(NOTE.replace("crane", "ferry"))
    assert paths(await running.search("ferry", min_revision=done.index_revision)) == ["memory/a.md"]
    assert paths(await running.search("crane")) == []


async def test_moves_deletions_and_restores_are_in_the_history(serve, url):
    running = await serve(with_documents(url))
    await write(running, "memory/a.md", content=NOTE)
    await move(running, "memory/a.md", "memory/deep/b.md", NOTE)
    await check_refused(running.get("memory/a.md"), "NOT_FOUND", "FILE_NOT_FOUND")
    deleted = await write(running, "memory/deep/b.md", NOTE, delete_file=pb.FileDeletion())
    assert paths(await running.search("crane", min_revision=deleted.index_revision)) == []
    done = await restore(running, deleted.version_id)
    assert paths(await running.search("crane", min_revision=done.index_revision)) == ["memory/deep/b.md"]
    assert await text_of(running, "memory/deep/b.md") == NOTE
    versions = await all_versions(running, include_diffs=True)
    assert [kind(version) for version in versions] == ["RESTORE", "DELETE_FILE", "MOVE", "CREATE"]
    assert "-the crane lifts containers" in versions[1].diff


@pytest.mark.parametrize("delete_source", [False, True])
async def test_a_forgotten_document_is_found_by_no_later_sync(serve, home, url, delete_source):
    running = await serve(with_documents(url))
    await write(running, "memory/a.md", content=NOTE)
    await write(running, "memory/a.md", NOTE, content=NOTE + "more\n")
    done = await forget(running, path="memory/a.md", delete_source=delete_source)
    assert done.chunks
    assert done.history_contents
    assert done.source_files == int(delete_source)
    await running.synced(mode="SYNC_MODE_FULL")
    assert paths(await running.search("crane")) == []
    assert await all_versions(running) == []
    await running.stop()

    running = await serve(with_documents(url))
    await running.synced(mode="SYNC_MODE_FULL")
    assert paths(await running.search("crane")) == []
    if delete_source:
        await check_refused(running.get("memory/a.md"), "NOT_FOUND", "FILE_NOT_FOUND")
    else:
        assert await text_of(running, "memory/a.md") == NOTE + "more\n"


@pytest.mark.parametrize("delete_source", [False, True])
async def test_a_pushed_session_is_indexed_archived_and_forgotten(serve, home, url, delete_source):
    running = await serve(with_documents(url, SESSIONS))
    pushed = await push(running, "abc", said("user", "where is the xylophone?"), said("assistant", "in the mill"))
    assert (pushed.path, pushed.records) == ("sessions/abc.jsonl", 2)
    await running.synced(mode="SYNC_MODE_FULL")
    assert paths(await running.search("xylophone")) == ["sessions/abc.jsonl"]
    assert "in the mill" in await text_of(running, "sessions/abc.jsonl")

    archived = await archive(running, "abc", slug="talk")
    assert archived.messages == 2
    assert "User: where is the xylophone?" in await text_of(running, archived.path)
    assert (await archive(running, "abc", slug="talk")).already_archived
    await write(running, archived.path, await stored(running, archived.path), delete_file=pb.FileDeletion())

    done = await forget(running, session_id="abc", delete_source=delete_source)
    assert done.source_files == int(delete_source)
    await running.synced(mode="SYNC_MODE_FULL")
    assert paths(await running.search("xylophone")) == []
    # Sent again by a caller that does not know of it.
    await push(running, "abc", said("user", "the xylophone is back"))
    await running.synced(mode="SYNC_MODE_FULL")
    assert paths(await running.search("xylophone")) == (["sessions/abc.jsonl"] if delete_source else [])
    assert not (home.state_dir / "agents" / "main" / "sessions").exists()


async def stored(running, path):
    """Return the whole text of a file."""
    return (await running.get(path, line_count=10_000)).text


async def test_records_are_appended_only_where_the_caller_expects_it(serve, url):
    running = await serve(with_documents(url, SESSIONS))
    first, second = said("user", "one"), said("assistant", "two")
    await push(running, "abc", first, expected_records=0)
    assert (await push(running, "abc", first, expected_records=0)).already_appended
    refused = await check_refused(push(running, "abc", second, expected_records=0), "ABORTED", "CONTENT_CHANGED")
    assert refused.metadata["records"] == "1"
    assert (await push(running, "abc", second, expected_records=1)).records == 2


async def test_a_session_loads_its_documents(serve, url):
    running = await serve(with_documents(url))
    await write(running, "MEMORY.md", content=NOTE)
    today = await running.append("the ferry leaves at noon")
    answer = await context(running, session_key="agent:main:main")
    texts = {file.path: file.text for file in answer.files if file.exists}
    assert texts["MEMORY.md"] == NOTE
    assert texts[today.path] == "the ferry leaves at noon\n"


async def test_an_agent_without_search_writes_and_loads_its_documents(serve, home, url):
    off = {"agents": {"defaults": {"memorySearch": {"enabled": False}}}}
    running = await serve(with_documents(url, off))
    await running.append("the ferry leaves at noon", path="memory/log.md")
    await write(running, "MEMORY.md", content=NOTE)
    answer = await context(running, session_key="agent:main:main")
    assert NOTE in [file.text for file in answer.files]
    assert [kind(version) for version in await all_versions(running)] == ["CREATE"]
    await running.stop()

    running = await serve(with_documents(url))
    await running.synced()
    assert paths(await running.search("ferry")) == ["memory/log.md"]
    assert not home.workspace.exists()


async def test_everything_survives_a_restart_of_the_daemon(serve, home, url):
    settings = with_documents(url, SESSIONS)
    running = await serve(settings)
    await write(running, "MEMORY.md", content=NOTE)
    await running.append("the ferry leaves at noon", path="memory/log.md", idempotency_key="k")
    await push(running, "abc", said("user", "where is the xylophone?"))
    await running.synced(mode="SYNC_MODE_FULL")
    await running.stop()

    running = await serve(settings)
    assert paths(await running.search("crane")) == ["MEMORY.md"]
    assert paths(await running.search("xylophone")) == ["sessions/abc.jsonl"]
    assert (
        await running.append("the ferry leaves at noon", path="memory/log.md", idempotency_key="k")
    ).already_appended
    assert await text_of(running, "memory/log.md") == "the ferry leaves at noon\n"
    assert [kind(version) for version in await all_versions(running)] == ["CREATE"]
    outcome = await running.synced()
    assert (outcome.indexed_files, outcome.removed_files) == (0, 0)
    assert not home.workspace.exists()
    kept = files_below(home.state_dir / "memory") if (home.state_dir / "memory").exists() else []
    assert kept == []


async def test_a_daemon_on_another_machine_continues_with_the_same_documents(serve, home, url, tmp_path):
    settings = with_documents(url)
    first = await serve(settings)
    await write(first, "MEMORY.md", content=NOTE)
    await first.stop()
    other = homeless(tmp_path / "other")
    second = await serve(settings, at=other)
    assert paths(await second.search("crane")) == ["MEMORY.md"]
    done = await write(second, "MEMORY.md", NOTE, content="# Garden\n")
    assert paths(await second.search("garden", min_revision=done.index_revision)) == ["MEMORY.md"]
    assert [kind(version) for version in await all_versions(second)] == ["REPLACE_CONTENT", "CREATE"]
    assert not other.workspace.exists()


async def test_files_of_an_existing_workspace_are_neither_read_nor_changed(serve, url, tmp_path):
    home = Home(tmp_path)
    home.write(a=NOTE)
    home.put("MEMORY.md", "from the folder\n")
    home.say("abc.jsonl", said("user", "a crane in a file") + "\n")
    running = await serve(with_documents(url, SESSIONS), background=True)
    await running.synced()
    assert paths(await running.search("crane")) == []
    await check_refused(running.get("MEMORY.md"), "NOT_FOUND", "FILE_NOT_FOUND")
    await write(running, "MEMORY.md", content="from the database\n")
    assert await text_of(running, "MEMORY.md") == "from the database\n"
    assert (home.workspace / "MEMORY.md").read_text() == "from the folder\n"
    assert files_below(home.workspace) == ["MEMORY.md", "memory/a.md"]


async def test_status_names_the_database_without_credentials_and_no_watcher(serve, url):
    secret = url.replace("postgresql://memoryd@", "postgresql://memoryd:s3cr3t@")
    assert secret != url
    running = await serve(with_documents(secret), background=True)
    await running.synced()
    status = await running.status()
    (agent,) = (await running.stub.ListAgents(pb.ListAgentsRequest(), timeout=TIMEOUT)).agents
    for shown in (status.workspace, agent.workspace):
        assert shown.startswith("postgresql://")
        assert "s3cr3t" not in shown
        assert "memoryd@" not in shown
    assert list(status.watchers) == []
    assert kinds(status.degradations) == []


async def test_a_workspace_with_files_is_reported_while_the_database_has_none(serve, home, url):
    home.put("memory/a.md", NOTE)
    running = await serve(with_documents(url))
    await running.synced()
    (issue,) = (await running.status()).source_issues
    assert f"`memoryd import folder {home.workspace} --agent main`" in issue
    assert 'memoryd.store.documents to "folder"' in issue
    chunks = with_documents(url, {"agents": {"defaults": {"memorySearch": {"chunking": {"tokens": 200}}}}})
    await running.daemon.reload(lambda: home.settings(chunks))
    # The agent was opened again.
    await running.synced()
    assert [(line["agent"], line["problem"]) for line in running.logged("warn-workspace")] == [("main", issue)]
    await write(running, "memory/b.md", content=NOTE)
    assert list((await running.status()).source_issues) == []


async def test_an_empty_workspace_is_not_reported(serve, home, url):
    home.put("memory/a.txt", NOTE)
    home.put("notes.md", NOTE)
    running = await serve(with_documents(url))
    await running.synced()
    assert list((await running.status()).source_issues) == ["no memory files found"]
    assert running.logged("warn-workspace") == []


async def test_an_extra_path_is_reported_as_not_read(serve, url, tmp_path):
    extra = {"agents": {"defaults": {"memorySearch": {"extraPaths": [str(tmp_path)]}}}}
    running = await serve(with_documents(url, extra))
    (tmp_path / "notes.md").write_text(NOTE)
    await running.synced()
    assert paths(await running.search("crane")) == []
    assert kinds((await running.status()).degradations) == ["SOURCE_SKIPPED"]


async def test_a_daemon_with_qmd_does_not_start(serve, url):
    with pytest.raises(SettingsError, match=r"memoryd\.store\.documents"):
        await serve(with_documents(url, {"memory": {"backend": "qmd"}}))


async def test_a_reload_with_qmd_is_refused_and_changes_nothing(serve, home, url):
    running = await serve(with_documents(url))
    qmd = with_documents(url, {"memory": {"backend": "qmd"}})
    report = await running.daemon.reload(lambda: home.settings(qmd))
    assert 'memory.backend is "qmd"' in report.error
    await write(running, "memory/a.md", content=NOTE)
    assert (await running.status()).configured_backend == memory_pb2.BACKEND_BUILTIN


async def test_a_reload_keeps_the_documents_and_the_place_until_a_restart(serve, home, url):
    running = await serve(with_documents(url))
    await write(running, "memory/a.md", content=NOTE)
    folder = with_documents(url, {"agents": {"defaults": {"memorySearch": {"chunking": {"tokens": 200}}}}})
    folder["memoryd"]["store"]["documents"] = "folder"
    report = await running.daemon.reload(lambda: home.settings(folder))
    assert report.awaiting_restart == ("memoryd.store.documents",)
    # The agent was opened again, because its chunks have another size.
    await running.synced()
    assert paths(await running.search("crane")) == ["memory/a.md"]
    assert await text_of(running, "memory/a.md") == NOTE
    assert not home.workspace.exists()


async def test_writes_fail_while_the_server_is_away_and_continue_when_it_is_back(serve, home):
    with running_server(durable=True) as server:
        running = await serve(with_documents(server.url))
        await write(running, "memory/a.md", content=NOTE)
        server.stop()
        for call in (running.append("x", path="memory/log.md"), running.get("memory/a.md")):
            await check_refused(call, "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
        server.start()
        await running.append("the ferry leaves", path="memory/log.md")
        assert await text_of(running, "memory/log.md") == "the ferry leaves\n"
        assert await text_of(running, "memory/a.md") == NOTE
        await running.stop()
