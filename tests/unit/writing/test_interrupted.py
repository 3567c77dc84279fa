"""The retry of an interrupted append writes its text exactly once, also where the file held equal texts before."""

import errno
import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.errors import DiskFull, MemorydError
from memoryd_server.sources.roots import Roots, resolve_for_append
from memoryd_server.writing import memory_file
from memoryd_server.writing.ledger import AppendState, Ledger, LedgerEntry, decode, encode
from memoryd_server.writing.memory_file import find_copies, needle_of_copies, open_memory_file
from unit.writing.conftest import AppendFixture

LOG = "memory/log.md"
TEXT = "- ok"
BLOCK = b"- ok\n"
OTHER = b"- no\n"  # As long as the block, so that an edit moves an equal text to the place of the lost block.

pytestmark = pytest.mark.faults


class CrashError(Exception):
    """End an append where a crash would."""


def before_the_write(_fd, _data):
    raise CrashError


def in_the_write(fd, data):
    memory_file.os.write(fd, data[:3])
    raise CrashError


def after_the_write(fd, data):
    memory_file.os.write(fd, data)
    raise CrashError


def refused(fd, data):
    memory_file.os.write(fd, data[:3])
    raise OSError(errno.ENOSPC, "full")


INTERRUPTIONS = {f.__name__: f for f in (before_the_write, in_the_write, after_the_write, refused)}


def save(file, data):
    beside = file.with_name("beside.tmp")
    beside.write_bytes(data)
    beside.rename(file)


# Each edit gets the file, what it held before the append, and what it holds now. It returns how many copies it removes.
def nothing(_file, _before, _now):
    return 0


def adds_a_line(file, _before, now):
    save(file, OTHER + now)
    return 0


def adds_a_line_at_the_end(file, _before, now):
    save(file, now + b"\n" + OTHER)
    return 0


def adds_a_line_to_what_it_read_before(file, before, _now):
    save(file, OTHER + before)
    return 0


def saves_with_other_newlines(file, _before, now):
    save(file, b"new\n" + now.replace(b"\n", b"\r\n"))
    return 0


def removes_another_line(file, _before, now):
    save(file, now.replace(OTHER, b"", 1))
    return 0


def removes_everything(file, before, now):
    file.write_bytes(b"")
    return before.count(BLOCK)


def removes_the_file(file, before, now):
    file.unlink()
    return before.count(BLOCK)


EDITS = (
    nothing,
    adds_a_line,
    adds_a_line_at_the_end,
    adds_a_line_to_what_it_read_before,
    saves_with_other_newlines,
    removes_another_line,
    removes_everything,
    removes_the_file,
)


def copies(file):
    return sum(line.rstrip() == TEXT.encode() for line in file.read_bytes().split(b"\n"))


def interrupted(fixture, monkeypatch, *, interruption, earlier, by, draft):
    """Append TEXT to a file with `earlier` copies of it, interrupt the write, and return the file's earlier bytes."""
    file = fixture.file(LOG)
    file.parent.mkdir()
    file.write_bytes(b"# Log\n" + OTHER + (BLOCK * earlier if by == "user" else b""))
    for number in range(earlier if by == "ledger" else 0):
        fixture.appender().append(TEXT, path=LOG, idempotency_key=f"earlier{number}")
    before = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(memory_file, "write_all", INTERRUPTIONS[interruption])
        with pytest.raises((CrashError, DiskFull)):
            fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    if draft:
        fixture.ledger.with_name("main.appends.block").write_bytes(BLOCK)
    return before


def states():
    return itertools.product((0, 1, 2), ("user", "ledger"), (False, True), (False, True))


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_the_retry_adds_exactly_one_copy(tmp_path, monkeypatch, interruption, edit):
    for number, (earlier, by, draft, recover) in enumerate(states()):
        fixture = AppendFixture(tmp_path / str(number), tmp_path / f"state{number}" / "memory" / "main.appends")
        fixture.workspace.mkdir()
        state = {"interruption": interruption, "earlier": earlier, "by": by, "draft": draft}
        before = interrupted(fixture, monkeypatch, **state)
        file = fixture.file(LOG)
        missing = edit(file, before, file.read_bytes())
        appender = fixture.appender()
        if recover:
            appender.recover()
        answer = appender.append(TEXT, path=LOG, idempotency_key="k")
        # Recovery without the draft knows only the hash of the block, and prefers a second copy to a loss.
        hashed = recover and not draft and edit is saves_with_other_newlines and interruption == "after_the_write"
        assert copies(file) == earlier - missing + 1 + hashed, (state, recover)
        assert [line.rstrip() for line in fixture.lines(LOG, answer)] == [TEXT.encode()], (state, recover)
        after = file.read_bytes()
        assert appender.append(TEXT, path=LOG, idempotency_key="k").already_appended
        assert file.read_bytes() == after


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_a_retry_after_an_equal_text_was_removed_never_loses_its_own(tmp_path, monkeypatch, interruption):
    """A removed copy and a lost one look the same, so a text that was written completely is written again."""
    for number, (earlier, by, draft, recover) in enumerate(states()):
        if not earlier:
            continue
        fixture = AppendFixture(tmp_path / str(number), tmp_path / f"state{number}" / "memory" / "main.appends")
        fixture.workspace.mkdir()
        interrupted(fixture, monkeypatch, interruption=interruption, earlier=earlier, by=by, draft=draft)
        save(fixture.file(LOG), fixture.file(LOG).read_bytes().replace(BLOCK, b"", 1))
        appender = fixture.appender()
        if recover:
            appender.recover()
        appender.append(TEXT, path=LOG, idempotency_key="k")
        assert copies(fixture.file(LOG)) == earlier + (interruption == "after_the_write")


@pytest.mark.parametrize("draft", [True, False])
def test_overlapping_lines_are_no_further_copy(fixture, monkeypatch, draft):
    block = b"a\na\n"
    fixture.file("MEMORY.md").write_bytes(b"a\na\na\n")
    with monkeypatch.context() as patched:
        patched.setattr(memory_file, "write_all", before_the_write)
        with pytest.raises(CrashError):
            fixture.appender().append("a\na", path="MEMORY.md", idempotency_key="k")
    if draft:
        fixture.ledger.with_name("main.appends.block").write_bytes(block)
    save(fixture.file("MEMORY.md"), b"edit\na\na\na\n")
    appender = fixture.appender()
    appender.recover()
    assert not appender.append("a\na", path="MEMORY.md", idempotency_key="k").already_appended
    assert fixture.file("MEMORY.md").read_bytes() == b"edit\na\na\na\n" + block


def pending(fixture):
    ledger = Ledger(str(fixture.ledger))
    with ledger.lock():
        return ledger.get("k")


@pytest.mark.parametrize("recover", [True, False])
@pytest.mark.parametrize(("edited", "copies_after"), [(b"", 1), (b"new\n", 2)])
def test_a_pending_entry_of_an_earlier_build_is_done_only_at_its_place(
    fixture, monkeypatch, edited, copies_after, recover
):
    before = interrupted(fixture, monkeypatch, interruption="after_the_write", earlier=0, by="user", draft=False)
    line = encode(replace(pending(fixture), copies_before=None))
    assert b"copies_before" not in line
    fields = json.loads(line)
    del fields["check"]
    fixture.ledger.write_text(json.dumps(fields, separators=(",", ":")) + "\n")
    fixture.file(LOG).write_bytes(edited + before + BLOCK)
    appender = fixture.appender()
    if recover:
        appender.recover()
    assert appender.append(TEXT, path=LOG, idempotency_key="k").already_appended == (not edited)
    assert copies(fixture.file(LOG)) == copies_after
    assert not appender.issues()


def test_only_pending_lines_of_the_ledger_are_unknown_to_earlier_builds(fixture):
    fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    begun, done = fixture.ledger.read_bytes().splitlines()
    assert (decode(begun).copies_before, decode(done).copies_before) == (0, None)
    assert b"copies_before" not in done
    assert decode(done).state is AppendState.DONE


def test_a_file_too_large_for_the_limit_of_the_process_is_named(fixture, replace_write):
    def too_large(_fd, _data):
        raise OSError(errno.EFBIG, "File too large")

    replace_write(too_large)
    with pytest.raises(MemorydError, match="RLIMIT_FSIZE") as failed:
        fixture.appender().append(TEXT, path=LOG)
    assert failed.value.reason == "DISK_FULL"


@given(
    content=st.text("ab \n\r", max_size=8).map(str.encode),
    data=st.text("ab \n\r", max_size=40).map(str.encode),
)
def test_the_fast_search_misses_no_copy(content, data):
    sought = needle_of_copies(content)
    if find_copies(content, data):
        assert sought in b"\n" + data
    if find_copies(content, b""):
        raise AssertionError("an empty file holds no copy")


@pytest.mark.parametrize("shift", range(-6, 3))
def test_the_fast_search_finds_text_across_the_steps_of_reading(fixture, monkeypatch, shift):
    monkeypatch.setattr(memory_file, "_STEP_BYTES", 16)
    data = b"x" * (16 + shift) + b"\n- ok\nrest of the file\n"
    fixture.file("MEMORY.md").write_bytes(data)
    with open_memory_file(resolve_for_append(Roots(str(fixture.workspace), ()), "MEMORY.md")) as file:
        assert file.count_newlines_and_find(b"\n- ok", len(data)) == (3, True)
        assert file.count_newlines_and_find(b"\n- no", len(data)) == (3, False)
        assert file.count_newlines_and_find(b"\nxxxx", len(data)) == (3, True)


def test_an_entry_keeps_its_count_in_the_ledger():
    entry = LedgerEntry("k", LOG, 0, 5, "b" * 64, "c" * 64, 1, 1, copies_before=2)
    assert decode(encode(entry)) == entry
