"""A file that an editor saves between an append's write and its answer holds the text once all the same."""

import os
import signal

import pytest

from memoryd_server.errors import FileReplaced
from memoryd_server.sources.roots import Roots
from memoryd_server.writing import memory_file
from memoryd_server.writing.append import Appender, AppendJob
from memoryd_server.writing.files import MOST_REPLACEMENTS

LOG = "memory/log.md"
TEXT = "- decided to keep the cache\n- and to name it"
BLOCK = TEXT.encode() + b"\n"

pytestmark = pytest.mark.faults


def rename_over(file, data):
    beside = file.with_name("beside.tmp")
    beside.write_bytes(data)
    beside.rename(file)


def save(change):
    """Saves by renaming what `change` makes of the file's bytes."""
    return lambda file: rename_over(file, change(file.read_bytes()))


@pytest.fixture
def log(fixture):
    file = fixture.file(LOG)
    file.parent.mkdir()
    file.write_bytes(b"one\n")
    return file


@pytest.fixture
def editor(replace_write, log):
    """Lets `edits`, one after each write of a block, change the file before the append looks at it again."""

    def editor(*edits):
        write_all, left = memory_file.write_all, list(edits)

        def write_and_edit(fd, data):
            write_all(fd, data)
            if left:
                left.pop(0)(log)

        replace_write(write_and_edit)

    return editor


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize(
    ("edits", "after", "line"),
    [
        # The editor had read the file before the write.
        ([lambda file: rename_over(file, b"edited\n")], b"edited\n" + BLOCK, 2),
        ([lambda file: rename_over(file, b"a\n"), lambda file: rename_over(file, b"a\nb\n")], b"a\nb\n" + BLOCK, 3),
        # It had read it after the write, and saved a copy of the text.
        ([save(lambda data: data)], b"one\n" + BLOCK, 2),
        ([save(lambda data: b"zero\n" + data + b"end\n")], b"zero\none\n" + BLOCK + b"end\n", 3),
        ([save(lambda data: data.replace(b"\n", b"\r\n"))], b"one\r\n" + BLOCK.replace(b"\n", b"\r\n"), 2),
        ([save(lambda data: data.rstrip(b"\n"))], b"one\n" + BLOCK.rstrip(b"\n"), 2),
        ([save(lambda data: data), save(lambda data: data)], b"one\n" + BLOCK, 2),
        # It saved in place.
        ([lambda file: file.write_bytes(b"edited\n")], b"edited\n" + BLOCK, 2),
        ([os.unlink], BLOCK, 1),
    ],
)
def test_the_text_occurs_once_for_every_state_that_the_editor_had_read(
    fixture, log, editor, *, edits, after, line, key
):
    editor(*edits)
    appender = fixture.appender()
    answer = appender.append(TEXT, path=LOG, idempotency_key=key)
    assert log.read_bytes() == after
    assert (answer.start_line, answer.end_line, answer.already_appended) == (line, line + 1, False)
    if key:
        again = appender.append(TEXT, path=LOG, idempotency_key=key)
        assert (again.start_line, again.already_appended) == (line, True)
        assert log.read_bytes() == after
    assert appender.issues() == ()


def test_an_equal_text_from_before_is_not_taken_for_the_lost_one(fixture, log, editor):
    log.write_bytes(BLOCK)
    editor(lambda file: rename_over(file, b"edited\n" + BLOCK))
    fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    assert log.read_bytes() == b"edited\n" + BLOCK + BLOCK


def test_a_file_replaced_without_end_is_given_up_and_the_retry_writes_once(fixture, log, editor):
    editor(*[lambda file: rename_over(file, b"edited\n")] * MOST_REPLACEMENTS)
    appender = Appender(Roots(str(fixture.workspace), ()), str(fixture.ledger))
    with pytest.raises(FileReplaced):
        appender.append(AppendJob(TEXT, path=LOG, idempotency_key="k"))
    assert log.read_bytes() == b"edited\n"
    assert not appender.append(AppendJob(TEXT, path=LOG, idempotency_key="k")).already_appended
    assert log.read_bytes() == b"edited\n" + BLOCK


def test_a_text_given_up_that_the_editor_had_copied_last_is_known_to_the_retry(fixture, log, editor):
    stale = [lambda file: rename_over(file, b"edited\n")] * (MOST_REPLACEMENTS - 1)
    editor(*stale, save(lambda data: data + b"edit\n"))
    answer = fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    assert not answer.already_appended
    assert log.read_bytes().count(BLOCK) == 1


@pytest.mark.parametrize("draft", [True, False])
def test_a_crash_after_the_write_and_a_save_that_moves_the_text_write_it_once(fixture, log, draft):
    assert fixture.start(LOG, "k", TEXT, step="written").wait(60) == -signal.SIGKILL
    if not draft:
        fixture.ledger.with_name("main.appends.block").unlink()
    rename_over(log, b"zero\n" + log.read_bytes() + b"end\n")
    appender = fixture.appender()
    appender.append("between", path=LOG)
    answer = appender.append(TEXT, path=LOG, idempotency_key="k")
    assert (answer.start_line, answer.already_appended) == (3, True)
    assert log.read_bytes() == b"zero\none\n" + BLOCK + b"end\nbetween\n"
