"""The state of interrupted writes is found from the files alone, which stay as they are."""

from dataclasses import replace
from hashlib import sha256

import pytest

from memoryd_server.store import WriteKind, WriteRecord
from memoryd_server.writing import AppendState, LedgerEntry, append_state, has_append_draft, is_applied, stored_ledger
from memoryd_server.writing.ledger import encode
from unit.writing.written_memory import FolderMemory, digest

NOTE, OTHER = "memory/note.md", "memory/other.md"
BLOCK = b"the ferry sails\n"


@pytest.fixture
def memory(tmp_path):
    memory = FolderMemory(tmp_path)
    (memory.workspace / "memory").mkdir()
    yield memory
    memory.close()


def put(memory, data, path=NOTE):
    (memory.workspace / path).write_bytes(data)


def entry(**changes):
    place = {"offset": 5, "length": len(BLOCK), "block_sha256": sha256(BLOCK).hexdigest()}
    return replace(LedgerEntry("k", NOTE, **place, request_sha256="r", start_line=2, end_line=2), **changes)


@pytest.mark.parametrize(
    ("content", "copies", "state"),
    [
        (b"# A\n\n" + BLOCK, 0, AppendState.DONE),
        (b"# A\n\n" + BLOCK, None, AppendState.DONE),
        (b"# A\n\n", 0, AppendState.VOID),
        (None, 0, AppendState.VOID),
        (b"# A\n\nthe fer", 0, AppendState.PENDING),
        # Another program moved the text.
        (BLOCK, 0, AppendState.PENDING),
        # The text at the place was there before.
        (b"# A\n\n" + BLOCK, 1, AppendState.PENDING),
    ],
)
def test_the_state_of_an_append(memory, content, copies, state):
    if content is not None:
        put(memory, content)
    assert append_state(memory.roots, entry(copies_before=copies)) is state
    assert append_state(memory.roots, entry(state=AppendState.DONE)) is AppendState.DONE


def record(kind=WriteKind.REPLACE_CONTENT, before=b"dawn\n", after=b"noon\n", **more):
    return WriteRecord(
        version_id="v", path=NOTE, kind=kind, time_ms=1, caller="", before=digest(before), after=digest(after), **more
    )


@pytest.mark.parametrize(
    ("content", "applied"), [(b"noon\n", True), (b"dawn\n", False), (b"edited\n", None), (None, None)]
)
def test_whether_an_edit_is_in_effect(memory, content, applied):
    if content is not None:
        put(memory, content)
    assert is_applied(memory.roots, record()) is applied
    if content is not None:
        put(memory, b"", "memory/.draft")
        assert is_applied(memory.roots, record(draft=".draft")) is None


def test_whether_a_deletion_a_creation_and_an_equal_write_are_in_effect(memory):
    assert is_applied(memory.roots, record(WriteKind.DELETE_FILE, after=None)) is True
    assert is_applied(memory.roots, record(WriteKind.CREATE, before=None)) is False
    put(memory, b"dawn\n")
    assert is_applied(memory.roots, record(WriteKind.DELETE_FILE, after=None)) is False
    assert is_applied(memory.roots, record(after=b"dawn\n")) is True


def test_whether_a_move_is_in_effect(memory):
    move = record(WriteKind.MOVE, after=b"dawn\n", moved_from=OTHER)
    assert is_applied(memory.roots, move) is None
    put(memory, b"dawn\n", OTHER)
    assert is_applied(memory.roots, move) is False
    put(memory, b"dawn\n")
    assert is_applied(memory.roots, move) is None
    (memory.workspace / OTHER).unlink()
    assert is_applied(memory.roots, move) is True


def test_a_ledger_is_read_without_repairing_it(memory):
    path = memory.state / "main.appends"
    assert stored_ledger(path).entries == ()
    first, second = entry(), entry(key="l")
    done = replace(first, state=AppendState.DONE)
    data = encode(first) + encode(second) + b"damaged\n" + encode(done) + encode(second)[:20]
    path.write_bytes(data)
    ledger = stored_ledger(path)
    assert (ledger.entries, ledger.unreadable) == ((second, done), 1)
    assert path.read_bytes() == data
    assert not has_append_draft(path)
    path.with_name("main.appends.block").write_bytes(b"")
    assert has_append_draft(path)
