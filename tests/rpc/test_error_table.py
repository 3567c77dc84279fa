"""Walks the contract's table of errors: each condition gives its code, its reason, and details that programs read."""

import asyncio
import contextlib
import os
import socket
import stat

import grpc
import pytest

from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.rpc.errors import _CODES
from memoryd_server.rpc.wire import make_cursor, make_page_token
from rpc.agent_calls import AGENT_CALLS, call, for_agent
from rpc.wire import TIMEOUT, check_refused, kinds_of
from waiting import eventually

VECTOR = memory_pb2.SEARCH_MODE_VECTOR
FULL = sync_event_pb2.SYNC_MODE_FULL
SETTINGS = {
    "agents": {
        "list": [
            {"id": "main", "default": True},
            {"id": "off", "memorySearch": {"enabled": False}},
        ]
    }
}


@pytest.mark.parametrize("method", AGENT_CALLS)
async def test_an_unknown_agent_is_not_found_and_the_known_are_listed(serve, method):
    running = await serve(SETTINGS)
    found = await check_refused(call(running, method, for_agent(method, "mian")), "NOT_FOUND", "AGENT_NOT_FOUND")
    assert "'mian'" in found.message
    assert "main, off" in found.message


async def test_the_memory_slot_none_disables_every_call(serve):
    running = await serve({"plugins": {"slots": {"memory": "none"}}, "memoryd": {"entries": {"enabled": True}}})
    for method, request in AGENT_CALLS.items():
        await check_refused(
            call(running, method, request), "FAILED_PRECONDITION", "MEMORY_DISABLED", mentions="plugins.slots.memory"
        )
    agents = (await running.stub.ListAgents(pb.ListAgentsRequest())).agents
    assert [(agent.agent_id, agent.enabled) for agent in agents] == [("main", False)]


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason"),
    [
        ("MemoryGet", pb.MemoryGetRequest(path="memory/absent.md"), "NOT_FOUND", "FILE_NOT_FOUND"),
        ("MemoryGet", pb.MemoryGetRequest(path="memory/no/such/folder.md"), "NOT_FOUND", "FILE_NOT_FOUND"),
        ("MemoryGet", pb.MemoryGetRequest(path="memory/" + "n" * 300 + ".md"), "NOT_FOUND", "FILE_NOT_FOUND"),
        (
            "MemorySearch",
            pb.MemorySearchRequest(query="x", mode=VECTOR),
            "FAILED_PRECONDITION",
            "EMBEDDING_NOT_CONFIGURED",
        ),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(path="memory/a.md", content="x"),
            "FAILED_PRECONDITION",
            "EDITS_DISABLED",
        ),
        ("MemoryHistory", pb.MemoryHistoryRequest(version_id="x"), "NOT_FOUND", "VERSION_NOT_FOUND"),
        ("Sync", pb.SyncRequest(cursor="not a cursor"), "INVALID_ARGUMENT", "CURSOR_MALFORMED"),
        ("Sync", pb.SyncRequest(cursor="abc"), "INVALID_ARGUMENT", "CURSOR_MALFORMED"),
        ("Sync", pb.SyncRequest(cursor="é"), "INVALID_ARGUMENT", "CURSOR_MALFORMED"),
        ("Sync", pb.SyncRequest(cursor=make_cursor("0" * 32, 3)), "OUT_OF_RANGE", "CURSOR_EXPIRED"),
    ],
)
async def test_a_condition_gives_its_code_and_reason(serve, method, request_, code, reason):
    await check_refused(call(await serve(), method, request_), code, reason)


@pytest.mark.parametrize(
    ("method", "request_", "violations"),
    [
        ("MemorySearch", pb.MemorySearchRequest(), {"query"}),
        ("MemorySearch", pb.MemorySearchRequest(query=" \n\t\u3000"), {"query"}),
        ("MemorySearch", pb.MemorySearchRequest(query="é" * 2_049), {"query"}),
        (
            "MemorySearch",
            pb.MemorySearchRequest(
                query="",
                max_results=0,
                min_score=1.5,
                sources=[77],
                mode=9,
                max_snippet_chars=0,
                session_key="k" * 1_025,
                citations=8,
                min_revision=-1,
                max_total_chars=0,
                now={"seconds": 300_000_000_000},
            ),
            {
                "query",
                "max_results",
                "min_score",
                "sources",
                "mode",
                "max_snippet_chars",
                "session_key",
                "citations",
                "min_revision",
                "max_total_chars",
                "now",
            },
        ),
        ("MemorySearch", pb.MemorySearchRequest(query="x", min_score=float("nan")), {"min_score"}),
        ("MemorySearch", pb.MemorySearchRequest(query="x", max_staleness={"nanos": -1}), {"max_staleness"}),
        ("MemoryRecall", pb.MemoryRecallRequest(text="x", max_staleness={"seconds": -5}), {"max_staleness"}),
        ("MemoryGet", pb.MemoryGetRequest(path="MEMORY.md", max_staleness={"seconds": -5}), {"max_staleness"}),
        (
            "MemorySearch",
            pb.MemorySearchRequest(query="x", min_score=-0.01, max_results=-5),
            {"min_score", "max_results"},
        ),
        (
            "Sync",
            pb.SyncRequest(
                mode=7,
                trigger=sync_event_pb2.SYNC_TRIGGER_WATCH,
                on_disconnect=5,
                heartbeat_interval={"seconds": 61},
                reason="r" * 257,
                cursor="c" * 257,
                session_key="s" * 1_025,
                transcript="x.jsonl",
                sources=[9],
            ),
            {
                "mode",
                "trigger",
                "on_disconnect",
                "heartbeat_interval",
                "reason",
                "cursor",
                "session_key",
                "transcript",
                "sources",
            },
        ),
        ("Sync", pb.SyncRequest(heartbeat_interval={"nanos": 999_999_999}), {"heartbeat_interval"}),
        ("WatchIndex", pb.WatchIndexRequest(heartbeat_interval={}), {"heartbeat_interval"}),
        (
            "MemoryAppend",
            pb.MemoryAppendRequest(
                text=" ",
                idempotency_key="k" * 129,
                heading="two\nlines",
                time_zone="Mars/Olympus",
                now={"seconds": -100_000_000_000},
                path="memory/" + "x" * 4_096,
            ),
            {"text", "idempotency_key", "heading", "time_zone", "now", "path"},
        ),
        ("MemoryAppend", pb.MemoryAppendRequest(text="nul\0"), {"text"}),
        ("MemoryAppend", pb.MemoryAppendRequest(text="é" * (128 * 1024 + 1)), {"text"}),
        ("MemoryAppend", pb.MemoryAppendRequest(text="x", idempotency_key="é"), {"idempotency_key"}),
        ("MemoryAppend", pb.MemoryAppendRequest(text="x", idempotency_key="a\tb"), {"idempotency_key"}),
        ("MemoryAppend", pb.MemoryAppendRequest(text="x", heading="h" * 201), {"heading"}),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(path=" ", expected_sha256="A" * 64, content="nul\0", idempotency_key="é"),
            {"path", "expected_sha256", "content", "idempotency_key"},
        ),
        ("MemoryWrite", pb.MemoryWriteRequest(path="MEMORY.md"), {"operation"}),
        ("MemoryWrite", pb.MemoryWriteRequest(path="MEMORY.md", content="é" * (3 * 2**19 + 1)), {"content"}),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(path="MEMORY.md", replace={"old_text": "", "new_text": "x" * (2**20 + 1)}),
            {"expected_sha256", "replace.old_text", "replace.new_text"},
        ),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(path="MEMORY.md", insert={"after_line": -1, "text": ""}),
            {"expected_sha256", "insert.after_line", "insert.text"},
        ),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(path="MEMORY.md", insert={"text": "\0" * (2**20 + 1)}, expected_sha256="0" * 64),
            {"insert.text"},
        ),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(path="MEMORY.md", delete_lines={"end_line": 3}, expected_sha256="0" * 63),
            {"expected_sha256", "delete_lines.start_line"},
        ),
        (
            "MemoryWrite",
            pb.MemoryWriteRequest(
                path="MEMORY.md", delete_lines={"start_line": 3, "end_line": 2}, expected_sha256="0" * 64
            ),
            {"delete_lines.end_line"},
        ),
        ("MemoryWrite", pb.MemoryWriteRequest(path="MEMORY.md", delete_file={}), {"expected_sha256"}),
        ("MemoryMove", pb.MemoryMoveRequest(), {"path", "new_path", "expected_sha256"}),
        (
            "MemoryMove",
            pb.MemoryMoveRequest(path="MEMORY.md", new_path="MEMORY.md", expected_sha256="0" * 64),
            {"new_path"},
        ),
        (
            "MemoryRestore",
            pb.MemoryRestoreRequest(expected_sha256="x", idempotency_key="k" * 129, path="p" * 4_097),
            {"version_id", "expected_sha256", "idempotency_key", "path"},
        ),
        (
            "MemoryHistory",
            pb.MemoryHistoryRequest(path="MEMORY.md", version_id="x" * 129, page_size=-1),
            {"path", "version_id", "page_size"},
        ),
        ("MemoryHistory", pb.MemoryHistoryRequest(page_token="AAAA"), {"page_token"}),
        ("MemoryHistory", pb.MemoryHistoryRequest(page_token=make_page_token("files", "7")), {"page_token"}),
        ("MemoryHistory", pb.MemoryHistoryRequest(page_token=make_page_token("history", "9" * 30)), {"page_token"}),
        ("ListFiles", pb.ListFilesRequest(page_size=-1, page_token="x" * 8_193), {"page_size", "page_token"}),
        ("ListFiles", pb.ListFilesRequest(page_token="not one"), {"page_token"}),
        ("ListAgents", pb.ListAgentsRequest(page_size=-1), {"page_size"}),
        ("ListAgents", pb.ListAgentsRequest(page_token="é"), {"page_token"}),
    ],
)
async def test_bad_fields_are_all_named_at_once(serve, method, request_, violations):
    running = await serve({"memoryd": {"writes": "edit"}})
    found = await check_refused(
        call(running, method, request_), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations
    )
    assert all(found.violations.values())
    assert all(field in found.message for field in violations)


PATHS = {
    "climbs": "../outside.md",
    "climbs from inside": "memory/../../outside.md",
    "a dot": "./MEMORY.md",
    "doubled slash": "memory//note.md",
    "nul": "memory/note.md\0.md",
    "absolute outside": "/etc/passwd.md",
    "no markdown": "memory/secret.txt",
    "beside memory": "notes.md",
    "not markdown by case": "memory/note.MD",
    "the folder": "memory",
    "a folder named like a file": "memory/folder.md",
    "link to a file": "memory/link.md",
    "link to a file inside": "memory/inner.md",
    "broken link": "memory/broken.md",
    "link in the middle": "memory/linked/note.md",
    "link in the middle, absent": "memory/linked/absent.md",
    "below a file": "memory/note.md/deeper.md",
    "pipe": "memory/pipe.md",
    "socket": "memory/socket.md",
    "device": "memory/device.md",
}


@pytest.fixture
def treacherous(home):
    """A workspace with everything that must not be opened."""
    outside = home.root / "outside"
    outside.mkdir()
    (outside / "note.md").write_text("SECRET")
    (home.root / "outside.md").write_text("SECRET")
    home.write(note="fine")
    home.put("memory/secret.txt", "SECRET")
    home.put("notes.md", "SECRET")
    folder = home.workspace / "memory"
    (folder / "folder.md").mkdir()
    (folder / "link.md").symlink_to(outside / "note.md")
    (folder / "inner.md").symlink_to(folder / "note.md")
    (folder / "broken.md").symlink_to(outside / "nothing.md")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    os.mkfifo(folder / "pipe.md")
    # By its name alone: a socket's whole path may hold some hundred bytes only.
    with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.md")
    try:
        os.mknod(folder / "device.md", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        (folder / "device.md").symlink_to("/dev/zero")
    return home


@pytest.mark.parametrize("name", PATHS)
async def test_a_path_that_is_no_memory_file_is_refused_whether_it_exists_or_not(serve, treacherous, name):
    running = await serve()
    found = await check_refused(running.get(PATHS[name]), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert "SECRET" not in found.message
    assert found.metadata["path"] in PATHS[name]


@pytest.mark.parametrize("name", PATHS)
async def test_nothing_is_appended_to_a_path_that_is_no_memory_file(serve, treacherous, name):
    running = await serve()
    await check_refused(running.append("SPOILT", path=PATHS[name]), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    spoilt = [path for path in treacherous.root.rglob("*") if path.is_file() and b"SPOILT" in path.read_bytes()]
    assert [path for path in spoilt if path.is_relative_to(treacherous.workspace.parent / "outside")] == []
    assert [path for path in spoilt if path.is_relative_to(treacherous.workspace)] == []


async def test_a_memory_folder_that_is_a_link_is_refused_and_not_indexed(serve, home):
    outside = home.root / "outside"
    outside.mkdir()
    (outside / "note.md").write_text("SECRET zebra")
    (home.workspace / "memory").rmdir()
    (home.workspace / "memory").symlink_to(outside, target_is_directory=True)
    (home.workspace / "MEMORY.md").symlink_to(outside / "note.md")
    running = await serve()
    for path in ("memory/note.md", "memory/absent.md", "MEMORY.md"):
        await check_refused(running.get(path), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
        await check_refused(running.append("x", path=path), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    await running.sync()
    assert not (await running.search("zebra")).results
    assert (outside / "note.md").read_text() == "SECRET zebra"


async def test_a_full_sync_during_a_run_is_aborted_with_a_hint_when_to_retry(serve, home, pause_sync):
    home.write(a="one")
    running = await serve()
    held = pause_sync(running)
    stream = aiter(running.stub.Sync(pb.SyncRequest()))
    await anext(stream)
    await check_refused(call(running, "Sync", pb.SyncRequest(mode=FULL)), "ABORTED", "SYNC_CONFLICT", retry=True)
    held.release()
    assert kinds_of([event async for event in stream])[-1] == "completed"


@pytest.mark.parametrize(("ceiling", "options"), [(30, {"timeout": 0.5}), (0.3, {}), (0.3, {"timeout": TIMEOUT})])
async def test_a_revision_that_is_not_reached_in_time_is_reported_by_memoryd_itself(serve, ceiling, options):
    running = await serve({"memoryd": {"limits": {"defaultDeadlineSeconds": ceiling}}})
    request = pb.MemorySearchRequest(query="x", min_revision=900)
    found = await check_refused(
        running.stub.MemorySearch(request, **options), "DEADLINE_EXCEEDED", "REVISION_NOT_REACHED", mentions="900"
    )
    assert found.metadata == {"index_revision": str((await running.status()).index.revision)}


def calls(running):
    return running.gate.admission.calls


async def test_a_call_too_many_is_refused_and_the_next_one_is_not(serve):
    running = await serve({"memoryd": {"limits": {"maxConcurrentCalls": 1}}})
    holder = running.stub.MemorySearch(pb.MemorySearchRequest(query="x", min_revision=9))
    await eventually(lambda: calls(running) == 1)
    await check_refused(running.search("x"), "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
    holder.cancel()
    await eventually(lambda: calls(running) == 0)
    await running.search("x")


@pytest.mark.parametrize(
    ("method", "slow", "request_"),
    [
        ("Status", "index.read", pb.StatusRequest()),
        ("ListFiles", "index.read", pb.ListFilesRequest()),
        ("MemoryGet", "_files.read", pb.MemoryGetRequest(path="MEMORY.md")),
    ],
)
async def test_work_that_takes_longer_than_a_call_may_is_reported_by_memoryd_itself(
    serve, monkeypatch, method, slow, request_
):
    running = await serve({"memoryd": {"limits": {"defaultDeadlineSeconds": 0.2}}})

    async def never(*_):
        await asyncio.Event().wait()

    part, _, name = slow.rpartition(".")
    monkeypatch.setattr(getattr(running.memory(), part), name, never)
    await check_refused(call(running, method, request_), "DEADLINE_EXCEEDED", "DEADLINE_TOO_SHORT", retry=True)


async def test_a_bug_is_internal_and_the_caller_learns_only_its_request_id(serve, monkeypatch):
    running = await serve()

    def broken(*_, **__):
        raise RuntimeError("a secret detail in /some/where")

    monkeypatch.setattr(running.memory(), "status", broken)
    request = running.stub.Status(pb.StatusRequest(), metadata=(("x-request-id", "my-id"),))
    found = await check_refused(request, "INTERNAL", "INTERNAL", mentions="my-id")
    assert found.metadata == {"request_id": "my-id"}
    assert "secret" not in found.message
    (logged,) = running.logged("fail-call")
    assert logged["request_id"] == "my-id"
    assert "a secret detail" in logged["exception"]


async def test_a_bug_in_a_stream_is_internal_too(serve, monkeypatch):
    running = await serve()
    monkeypatch.setattr(running.memory().index.coordinator, "request", None)
    await check_refused(running.stub.Sync(pb.SyncRequest()), "INTERNAL", "INTERNAL")


async def test_a_bug_in_a_sync_run_ends_its_stream_and_is_logged(serve, home, monkeypatch):
    home.write(note="text")
    running = await serve()
    monkeypatch.setattr(running.preparer(), "prepare", lambda *_: 1 / 0)
    await check_refused(running.stub.Sync(pb.SyncRequest()), "UNAVAILABLE", "INDEX_UNAVAILABLE")
    (logged,) = running.logged("end-sync")
    assert "ZeroDivisionError" in logged["exception"]


async def test_a_call_while_the_daemon_stops_gets_a_retry_hint(serve):
    running = await serve()
    await running.search("x")
    await running.server.close_gate()
    await check_refused(running.search("x"), "UNAVAILABLE", "SHUTTING_DOWN", retry=True)
    await check_refused(running.stub.WatchIndex(pb.WatchIndexRequest()), "UNAVAILABLE", "SHUTTING_DOWN", retry=True)


def test_every_reason_of_the_contract_has_a_code():
    from memoryd.v1 import error_reason_pb2  # noqa: PLC0415 -- only this test needs the enum

    names = {name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.keys()}  # noqa: SIM118 -- no dict
    assert set(_CODES) == names - {"UNSPECIFIED"}
    assert set(_CODES.values()) <= set(grpc.StatusCode)
