"""MemoryWrite and MemoryMove change what the caller has seen and nothing else, keep it, and index the change."""

import asyncio
import time
from hashlib import sha256

import pytest

from disks import unwritable
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.store.history import WriteKind, WriteRecord
from rpc.callers import bearer, new_token
from rpc.editing import (
    EDITS,
    all_versions,
    content,
    digest,
    files_of,
    history,
    kind,
    move,
    restore,
    write,
)
from rpc.qmd_calls import ask, qmd_settings, ready
from rpc.wire import TIMEOUT, check_refused, paths

PATH = "memory/a.md"
THREE = "one\ntwo\nthree\n"
BINARY = b"\xff\r\ntwo\r\n"
NO_SEARCH = {"agents": {"defaults": {"memorySearch": {"enabled": False}}}}


def now_ms():
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        ((THREE, {"replace": {"old_text": "two", "new_text": "2\n2"}}, "one\n2\n2\nthree\n", "REPLACE_TEXT"), (2, 3)),
        ((None, {"content": THREE}, THREE, "CREATE"), (1, 3)),
        ((None, {"content": ""}, "", "CREATE"), (1, 0)),
        ((THREE, {"content": "new"}, "new", "REPLACE_CONTENT"), (1, 1)),
        ((THREE, {"content": ""}, "", "REPLACE_CONTENT"), (1, 0)),
        ((THREE, {"content": THREE}, THREE, "REPLACE_CONTENT"), (1, 3)),
        ((THREE, {"replace": {"old_text": "two\n"}}, "one\nthree\n", "REPLACE_TEXT"), (2, 1)),
        ((THREE, {"insert": {"after_line": 0, "text": "zero"}}, f"zero\n{THREE}", "INSERT_LINES"), (1, 1)),
        ((THREE, {"insert": {"after_line": 3, "text": "4\n5\n"}}, f"{THREE}4\n5\n", "INSERT_LINES"), (4, 5)),
        (("one", {"insert": {"after_line": 1, "text": "two"}}, "one\ntwo\n", "INSERT_LINES"), (2, 2)),
        ((THREE, {"delete_lines": {"start_line": 1, "end_line": 2}}, "three\n", "DELETE_LINES"), (1, 0)),
        ((THREE, {"delete_lines": {"start_line": 1, "end_line": 3}}, "", "DELETE_LINES"), (1, 0)),
        ((THREE, {"delete_file": {}}, None, "DELETE_FILE"), (0, 0)),
        ((BINARY, {"replace": {"old_text": "two", "new_text": "2"}}, b"\xff\r\n2\r\n", "REPLACE_TEXT"), (2, 2)),
    ],
)
async def test_each_operation_changes_the_file_and_can_be_undone(serve, home, case, lines):
    before, operation, after, what = case
    if before is not None:
        home.put(PATH, before)
    running = await serve(EDITS)
    done = await write(running, PATH, before, **operation)
    wanted = after if isinstance(after, bytes | None) else after.encode()
    assert content(home, PATH) == wanted
    assert (done.path, done.content_sha256, done.already_written) == (PATH, digest(after), False)
    assert (done.start_line, done.end_line) == lines
    assert done.index_revision > 0
    (version,) = (await history(running, PATH)).versions
    assert (version.version_id, kind(version), version.caller) == (done.version_id, what, "local")
    assert (version.before_sha256, version.after_sha256) == (digest(before), digest(after))
    undone = await restore(running, done.version_id, after)
    assert undone.content_sha256 == digest(before)
    assert content(home, PATH) == (before if isinstance(before, bytes | None) else before.encode())


async def test_the_hash_of_a_read_is_the_hash_to_write_with(serve, home):
    home.put(PATH, THREE)
    running = await serve(EDITS)
    seen = await running.get(PATH, start_line=2, line_count=1)
    assert seen.content_sha256 == digest(THREE)
    request = pb.MemoryWriteRequest(path=PATH, expected_sha256=seen.content_sha256, content="new\n")
    done = await running.stub.MemoryWrite(request, timeout=TIMEOUT)
    assert done.content_sha256 == (await running.get(PATH)).content_sha256


async def test_a_changed_file_is_not_written_and_its_hash_is_returned(serve, home):
    home.put(PATH, "what an editor saved\n")
    running = await serve(EDITS)
    operations = [
        {"content": "new"},
        {"replace": {"old_text": "what", "new_text": "x"}},
        {"insert": {"text": "x"}},
        {"delete_lines": {"start_line": 1, "end_line": 1}},
        {"delete_file": {}},
    ]
    for seen in ("older\n", None):
        for operation in operations if seen else operations[:1]:
            found = await check_refused(write(running, PATH, seen, **operation), "ABORTED", "CONTENT_CHANGED")
            assert found.metadata == {"path": PATH, "content_sha256": digest("what an editor saved\n")}
    found = await check_refused(move(running, PATH, "memory/b.md", "older\n"), "ABORTED", "CONTENT_CHANGED")
    assert found.metadata["path"] == PATH
    assert files_of(home) == {PATH: b"what an editor saved\n"}
    assert (await history(running)).versions == []


async def test_a_file_that_does_not_exist_has_an_empty_hash(serve, home):
    running = await serve(EDITS)
    for call in (write(running, PATH, "x", content="y"), move(running, PATH, "memory/b.md", "x")):
        found = await check_refused(call, "ABORTED", "CONTENT_CHANGED")
        assert found.metadata == {"path": PATH, "content_sha256": ""}
    assert files_of(home) == {}


@pytest.mark.parametrize(
    ("operation", "field", "words"),
    [
        ({"replace": {"old_text": "four", "new_text": "x"}}, "replace.old_text", "does not occur"),
        ({"replace": {"old_text": "t", "new_text": "x"}}, "replace.old_text", "lines 2, 3"),
        ({"insert": {"after_line": 4, "text": "x"}}, "insert.after_line", "3"),
        ({"delete_lines": {"start_line": 2, "end_line": 4}}, "delete_lines.end_line", "3"),
        ({"content": "x" * 1_001}, "content", "maxFileBytes"),
    ],
)
async def test_an_operation_that_does_not_fit_the_file_changes_nothing(serve, home, operation, field, words):
    home.put(PATH, THREE)
    running = await serve({"memoryd": {"writes": "edit", "limits": {"maxFileBytes": 1_000}}})
    found = await check_refused(
        write(running, PATH, THREE, **operation), "INVALID_ARGUMENT", "INVALID_REQUEST", violations={field}
    )
    assert words in found.violations[field]
    assert files_of(home) == {PATH: THREE.encode()}
    assert (await history(running)).versions == []


async def test_a_move_keeps_the_bytes_and_refuses_a_taken_path(serve, home):
    home.put(PATH, b"\xff heron\n")
    home.put("memory/taken.md", "crane\n")
    running = await serve(EDITS)
    await running.synced()
    found = await check_refused(move(running, PATH, "memory/taken.md", b"\xff heron\n"), "ABORTED", "CONTENT_CHANGED")
    assert found.metadata == {"path": "memory/taken.md", "content_sha256": digest("crane\n")}
    done = await move(running, PATH, "memory/new/b.md", b"\xff heron\n")
    assert (done.path, done.content_sha256, done.already_moved) == ("memory/new/b.md", digest(b"\xff heron\n"), False)
    assert files_of(home) == {"memory/new/b.md": b"\xff heron\n", "memory/taken.md": b"crane\n"}
    assert paths(await running.search("heron", min_revision=done.index_revision)) == ["memory/new/b.md"]


async def test_a_write_is_found_immediately_and_a_deleted_file_is_not(serve, home):
    home.many(5)
    running = await serve(EDITS)
    await running.synced()
    done = await write(running, PATH, content="the heron nests\n")
    assert paths(await running.search("heron", min_revision=done.index_revision)) == [PATH]
    done = await write(running, PATH, "the heron nests\n", replace={"old_text": "heron", "new_text": "kestrel"})
    assert paths(await running.search("kestrel", min_revision=done.index_revision)) == [PATH]
    assert paths(await running.search("heron", min_revision=done.index_revision)) == []
    done = await write(running, PATH, "the kestrel nests\n", delete_file={})
    assert paths(await running.search("kestrel", min_revision=done.index_revision)) == []
    listed = [file.path for file in (await running.files()).files]
    assert len(listed) == 5
    assert PATH not in listed
    done = await restore(running, done.version_id)
    assert paths(await running.search("kestrel", min_revision=done.index_revision)) == [PATH]


@pytest.mark.parametrize(
    "other",
    [
        {"content": "other\n"},
        {"insert": {"text": "text"}},
        {"path": "memory/b.md"},
        {"expected_sha256": digest("x")},
    ],
)
async def test_a_key_used_again_for_another_write_is_refused(serve, home, other):
    running = await serve(EDITS)
    request = {"path": PATH, "content": "text\n", "idempotency_key": "k"}
    await running.stub.MemoryWrite(pb.MemoryWriteRequest(**request), timeout=TIMEOUT)
    if "insert" in other:
        other = {**other, "content": None, "expected_sha256": digest("text\n")}
    made = {name: value for name, value in {**request, **other}.items() if value is not None}
    await check_refused(
        running.stub.MemoryWrite(pb.MemoryWriteRequest(**made), timeout=TIMEOUT),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
        violations={"idempotency_key"},
    )
    assert files_of(home) == {PATH: b"text\n"}


async def test_a_repeated_key_returns_the_first_answer_also_after_a_restart(serve, home):
    home.put("memory/b.md", THREE)
    running = await serve(EDITS)
    first = await write(running, PATH, content="text\n", idempotency_key="w")
    moved = await move(running, PATH, "memory/c.md", "text\n", idempotency_key="m")
    restored = await restore(running, first.version_id, "text\n", path="memory/c.md", idempotency_key="r")
    # What another write does in between is not undone by a repetition.
    await write(running, PATH, content="newer\n")
    await running.stop()
    again = await serve(EDITS)
    repeated = await write(again, PATH, content="text\n", idempotency_key="w")
    assert (repeated.already_written, repeated.version_id) == (True, first.version_id)
    assert (repeated.content_sha256, repeated.start_line, repeated.end_line) == (digest("text\n"), 1, 1)
    repeated = await move(again, PATH, "memory/c.md", "text\n", idempotency_key="m")
    assert (repeated.already_moved, repeated.version_id, repeated.path) == (True, moved.version_id, "memory/c.md")
    repeated = await restore(again, first.version_id, "text\n", path="memory/c.md", idempotency_key="r")
    assert (repeated.already_restored, repeated.version_id) == (True, restored.version_id)
    assert files_of(home) == {PATH: b"newer\n", "memory/b.md": THREE.encode()}
    assert len(await all_versions(again)) == 4


async def test_edits_share_their_keys_and_appends_have_their_own(serve, home):
    running = await serve(EDITS)
    assert not (await running.append("text", path=PATH, idempotency_key="k")).already_appended
    done = await write(running, PATH, "text\n", content="new\n", idempotency_key="k")
    assert not done.already_written
    for call in (
        move(running, PATH, "memory/b.md", "new\n", idempotency_key="k"),
        restore(running, done.version_id, "new\n", idempotency_key="k"),
    ):
        await check_refused(call, "INVALID_ARGUMENT", "INVALID_REQUEST", violations={"idempotency_key"})
    assert files_of(home) == {PATH: b"new\n"}


async def test_the_same_key_writes_once_even_in_concurrent_calls(serve, home):
    running = await serve(EDITS)
    calls = (write(running, PATH, content="once\n", idempotency_key="k") for _ in range(20))
    done = await asyncio.gather(*calls)
    assert sorted(each.already_written for each in done) == [False] + [True] * 19
    assert len({each.version_id for each in done}) == 1
    assert len(await all_versions(running)) == 1


async def test_disabled_edits_change_no_byte_and_leave_the_history_readable(serve, home):
    home.put(PATH, THREE)
    running = await serve(EDITS)
    done = await write(running, PATH, THREE, content="new\n")
    await running.stop()
    before = files_of(home)
    again = await serve()
    for call in (
        write(again, PATH, "new\n", content="x"),
        write(again, PATH, "new\n", delete_file={}),
        write(again, "memory/b.md", content="x"),
        move(again, PATH, "memory/b.md", "new\n"),
        restore(again, done.version_id, "new\n"),
    ):
        await check_refused(call, "FAILED_PRECONDITION", "EDITS_DISABLED", mentions="memoryd.writes")
    assert files_of(home) == before
    (version,) = (await history(again, PATH, include_diffs=True)).versions
    assert "-two\n" in version.diff
    assert (await again.append("more", path=PATH)).end_line == 2


@pytest.mark.parametrize("more", [{}, NO_SEARCH])
async def test_a_reload_enables_and_disables_edits(serve, home, more):
    running = await serve(more)
    opened = running.daemon.agents.opened()
    for enabled in (True, False, True):
        settings = {**more, **(EDITS if enabled else {})}
        assert not (await running.daemon.reload(lambda settings=settings: home.settings(settings))).error
        (agent,) = (await running.stub.ListAgents(pb.ListAgentsRequest())).agents
        assert agent.may_edit is enabled
        call = write(running, f"memory/{len(files_of(home))}.md", content="x\n")
        if enabled:
            await call
        else:
            await check_refused(call, "FAILED_PRECONDITION", "EDITS_DISABLED")
    assert len(files_of(home)) == 2
    # The agent was not opened again.
    assert [running.daemon.agents.opened().get(name) for name in opened] == list(opened.values())


async def test_callers_are_named_in_the_history_and_may_edit_with_the_scope_only(serve, home):
    running = await serve(EDITS, listen="127.0.0.1:0")
    _, named = new_token(home, name="editor", scopes=["edit"])
    unnamed_id, unnamed = new_token(home, scopes=["edit"])
    _, admin = new_token(home)
    for number, token in enumerate((named, unnamed, admin)):
        listed = await running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))
        assert listed.agents[0].may_edit is (token is not admin)
        request = pb.MemoryWriteRequest(path=f"memory/{number}.md", content="x")
        made = running.stub.MemoryWrite(request, timeout=TIMEOUT, **bearer(token))
        if token is admin:
            found = await check_refused(made, "PERMISSION_DENIED", "SCOPE_MISSING")
            assert found.metadata == {"scope": "edit"}
        else:
            await made
    versions = await running.stub.MemoryHistory(pb.MemoryHistoryRequest(), timeout=TIMEOUT, **bearer(admin))
    assert [version.caller for version in versions.versions] == [unnamed_id, "editor"]
    assert sorted(files_of(home)) == ["memory/0.md", "memory/1.md"]


async def test_an_agent_without_memory_search_edits_without_a_revision(serve, home):
    running = await serve({**EDITS, **NO_SEARCH})
    done = await write(running, PATH, content="one\n", idempotency_key="k")
    assert not done.HasField("index_revision")
    changed = await write(running, PATH, "one\n", insert={"after_line": 1, "text": "two"})
    moved = await move(running, PATH, "memory/b.md", "one\ntwo\n")
    restored = await restore(running, changed.version_id, "one\ntwo\n", path="memory/b.md")
    assert [each.HasField("index_revision") for each in (changed, moved, restored)] == [False] * 3
    assert files_of(home) == {"memory/b.md": b"one\n"}
    versions = await all_versions(running, "memory/b.md", include_diffs=True)
    assert [kind(version) for version in versions] == ["RESTORE", "MOVE", "INSERT_LINES", "CREATE"]
    assert not list(home.state_dir.rglob("main.memoryd.sqlite"))


@pytest.mark.sqlite_only("a history in PostgreSQL is not in the state directory")
async def test_a_read_only_state_directory_refuses_edits_and_changes_nothing(serve, home):
    home.put(PATH, THREE)
    running = await serve(EDITS)
    await running.synced()
    await running.stop()
    with unwritable(home.state_dir / "memory"):
        again = await serve(EDITS)
        for call in (write(again, PATH, THREE, content="x"), move(again, PATH, "memory/b.md", THREE)):
            await check_refused(call, "UNAVAILABLE", "HISTORY_UNAVAILABLE", mentions="writable")
        assert (await history(again)).versions == []
        assert files_of(home) == {PATH: THREE.encode()}
    await write(again, PATH, THREE, content="x")


@pytest.mark.folder_only("documents in a database need no workspace")
async def test_a_read_only_workspace_is_named_and_leaves_no_history(serve, home):
    home.put(PATH, THREE)
    running = await serve(EDITS)
    with unwritable(home.workspace):
        for call in (write(running, PATH, THREE, content="x"), write(running, "memory/b.md", content="x")):
            await check_refused(call, "FAILED_PRECONDITION", "WORKSPACE_READ_ONLY")
    assert (await history(running)).versions == []
    assert files_of(home) == {PATH: THREE.encode()}


@pytest.mark.sqlite_only("the file of a history is damaged")
async def test_a_damaged_history_is_reported_and_does_not_stop_edits(serve, home):
    running = await serve(EDITS)
    await write(running, PATH, content="one\n")
    await running.stop()
    home.store.history_file().write_bytes(b"not a database" * 1_000)
    again = await serve(EDITS)
    done = await write(again, PATH, "one\n", content="two\n")
    (issue,) = [issue for issue in (await again.status()).source_issues if "history" in issue]
    assert "set aside" in issue
    assert [version.version_id for version in (await history(again)).versions] == [done.version_id]


@pytest.mark.folder_only("qmd searches the files of a workspace")
async def test_files_of_a_qmd_agent_are_edited(serve, qmd_home, fake):
    running = await serve({**qmd_settings(fake.path), **EDITS})
    before = "# Harbour\n\na crane\n"
    done = await write(running, PATH, before, replace={"old_text": "crane", "new_text": "heron"})
    assert done.index_revision > 0
    await ready(running)
    assert paths(await ask(running, "heron")) == [PATH]
    assert (await running.get(PATH)).content_sha256 == done.content_sha256


@pytest.mark.sqlite_only("a history in PostgreSQL has no files that an idle agent closes")
async def test_an_idle_agent_closes_its_history_and_opens_it_again(serve, home):
    running = await serve(EDITS)
    await write(running, PATH, content="one\n")
    log = home.store.history_file().with_name(f"{home.store.history_file().name}-wal")
    assert log.exists()
    await running.release_memory()
    assert not log.exists()
    await write(running, PATH, "one\n", content="two\n")
    assert len((await history(running)).versions) == 2


async def test_one_sync_indexes_both_paths_of_a_move(serve, home):
    home.put(PATH, "the heron nests\n")
    taken = home.put("memory/b.md", "the kestrel hovers\n")
    running = await serve(EDITS)
    await running.synced()
    # The index still has the file, so that a sync need not look for it.
    taken.unlink()
    done = await move(running, PATH, "memory/b.md", "the heron nests\n")
    found = await running.search("heron kestrel", min_revision=done.index_revision)
    assert paths(found) == ["memory/b.md"]
    assert [file.path for file in (await running.files()).files] == ["memory/b.md"]


@pytest.mark.folder_only("a write of a document and its record are one transaction")
@pytest.mark.parametrize("more", [{}, NO_SEARCH])
async def test_a_write_that_a_crash_interrupted_is_settled_at_the_start(serve, home, more):
    home.put("memory/before.md", "before\n")
    home.put("memory/after.md", "after\n")
    store = home.store.history(now_ms)
    for path in ("memory/before.md", "memory/after.md"):
        record = WriteRecord(
            version_id=path,
            path=path,
            kind=WriteKind.REPLACE_CONTENT,
            time_ms=now_ms(),
            caller="local",
            draft=".0123.memoryd-edit",
            before=sha256(b"before\n").digest(),
            before_bytes=7,
            after=sha256(b"after\n").digest(),
            after_bytes=6,
        )
        store.begin(record, b"before\n", b"after\n")
    store.close()
    # The start settles them even if edits are disabled.
    running = await serve(more)
    (version,) = (await history(running)).versions
    assert (version.version_id, version.path) == ("memory/after.md", "memory/after.md")
    assert home.store.history_rows() == (1, 2)
    assert files_of(home) == {"memory/before.md": b"before\n", "memory/after.md": b"after\n"}
