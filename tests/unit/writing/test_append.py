import contextlib
import errno
import os
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import DiskFull, IndexUnavailable, InvalidRequest, PathNotAllowed, WorkspaceReadOnly
from memoryd_server.sources.files import open_for_append
from memoryd_server.sources.roots import Roots, resolve_for_append
from memoryd_server.writing import memory_file
from memoryd_server.writing.ledger import Ledger
from memoryd_server.writing.memory_file import MemoryFile
from properties import examples

LOG = "memory/2026-02-08.md"


def check(fixture, before, text, after, *, heading="", lines):
    fixture.file("MEMORY.md").write_bytes(before)
    appended = fixture.appender().append(text, path="MEMORY.md", heading=heading)
    assert fixture.file("MEMORY.md").read_bytes() == after
    assert (appended.start_line, appended.end_line) == lines
    assert not appended.already_appended


def test_text_goes_below_what_is_there(fixture):
    check(fixture, b"one\n", "two\n", b"one\ntwo\n", lines=(2, 2))


def test_a_missing_newline_is_added_on_both_sides(fixture):
    check(fixture, b"one", "two", b"one\ntwo\n", lines=(2, 2))


def test_crlf_lines_stay_as_they_are(fixture):
    check(fixture, b"one\r\ntwo\r\n", "three", b"one\r\ntwo\r\nthree\n", lines=(3, 3))


def test_an_empty_file_gets_no_blank_line(fixture):
    check(fixture, b"", "text", b"## Title\n\ntext\n", heading="Title", lines=(1, 3))


def test_a_heading_gets_one_blank_line_above(fixture):
    check(fixture, b"one\n", "text", b"one\n\n## Title\n\ntext\n", heading="Title", lines=(3, 5))


def test_a_heading_after_a_missing_newline_gets_one_blank_line(fixture):
    check(fixture, b"one", "text", b"one\n\n## Title\n\ntext\n", heading="Title", lines=(3, 5))


@pytest.mark.parametrize("before", [b"one\n\n", b"one\r\n\r\n"])
def test_a_blank_line_above_a_heading_is_not_doubled(fixture, before):
    check(fixture, before, "text", before + b"## Title\n\ntext\n", heading="Title", lines=(3, 5))


def test_bytes_that_are_not_utf_8_are_kept(fixture):
    check(fixture, b"\xff\xfe\n", "text", b"\xff\xfe\ntext\n", lines=(2, 2))


def test_a_new_log_and_its_folder_are_created(fixture):
    appended = fixture.appender().append("first", path=LOG)
    assert fixture.file(LOG).read_text() == "first\n"
    assert (appended.path, appended.start_line, appended.end_line) == (LOG, 1, 1)


@pytest.mark.parametrize("path", ["../outside.md", "/etc/passwd", "memory/x.txt", "README.md", "memory/../../x.md"])
def test_a_path_that_is_no_memory_file_is_refused(fixture, path):
    with pytest.raises(PathNotAllowed):
        fixture.appender().append("text", path=path)
    assert list(fixture.workspace.iterdir()) == []


def test_a_link_is_not_written_through(fixture, tmp_path):
    (tmp_path / "outside.md").write_text("theirs\n")
    fixture.file("MEMORY.md").symlink_to(tmp_path / "outside.md")
    with pytest.raises(PathNotAllowed):
        fixture.appender().append("text", path="MEMORY.md")
    assert (tmp_path / "outside.md").read_text() == "theirs\n"


def test_the_same_key_twice_is_one_entry(fixture):
    first = fixture.appender().append("text", path=LOG, idempotency_key="k")
    second = fixture.appender().append("text", path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text() == "text\n"
    assert (second.start_line, second.already_appended) == (first.start_line, True)


def test_without_a_key_the_same_text_twice_is_two_entries(fixture):
    appender = fixture.appender()
    for _ in range(2):
        appender.append("text", path=LOG)
    assert fixture.file(LOG).read_text() == "text\ntext\n"


def test_a_retry_is_recognised_after_the_memory_was_released(fixture):
    appender = fixture.appender()
    first = appender.append("text", path=LOG, idempotency_key="k")
    appender.release_memory()
    again = appender.append("text", path=LOG, idempotency_key="k")
    assert (again.start_line, again.already_appended) == (first.start_line, True)


def test_a_retry_answers_as_the_first_call_did_even_when_the_file_has_grown(fixture):
    appender = fixture.appender()
    first = appender.append("text", path=LOG, idempotency_key="k")
    appender.append("more", path=LOG)
    second = appender.append("text", path=LOG, idempotency_key="k")
    assert (second.start_line, second.end_line) == (first.start_line, first.end_line)


@pytest.mark.parametrize("other", [{"text": "b"}, {"heading": "b"}, {"path": "MEMORY.md"}])
def test_a_key_used_with_other_contents_is_refused(fixture, other):
    request = {"text": "a", "path": LOG, "heading": "a", "idempotency_key": "k"}
    fixture.appender().append(**request)
    with pytest.raises(InvalidRequest) as refusal:
        fixture.appender().append(**{**request, **other})
    assert [violation.field for violation in refusal.value.violations] == ["idempotency_key"]
    assert fixture.file(LOG).read_text() == "## a\n\na\n"


def test_a_retry_after_midnight_answers_with_yesterdays_log(fixture):
    appender = fixture.appender()
    appender.append("text", path=LOG, requested_path="", idempotency_key="k")
    retried = appender.append("text", path="memory/2026-02-09.md", requested_path="", idempotency_key="k")
    assert (retried.path, retried.already_appended) == (LOG, True)
    assert not fixture.file("memory/2026-02-09.md").exists()


def test_fifty_threads_make_fifty_entries(fixture):
    appender = fixture.appender()
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: appender.append(f"entry {n}", path=LOG, idempotency_key=f"k{n}"), range(50)))
    assert sorted(fixture.file(LOG).read_text().splitlines()) == sorted(f"entry {n}" for n in range(50))
    for number, answer in enumerate(answers):
        assert fixture.lines(LOG, answer) == [f"entry {number}".encode()]


@pytest.mark.slow
def test_four_processes_make_fifty_entries(fixture):
    counts = {"a": 13, "b": 13, "c": 12, "d": 12}
    children = [fixture.start(LOG, name + "{}", f"from {name} {{}}", count=count) for name, count in counts.items()]
    assert [child.wait(60) for child in children] == [0, 0, 0, 0]
    wanted = [f"from {name} {number}" for name, count in counts.items() for number in range(count)]
    assert sorted(fixture.file(LOG).read_text().splitlines()) == sorted(wanted)


@pytest.mark.slow
def test_one_key_from_four_processes_is_one_entry(fixture):
    children = [fixture.start(LOG, "same", "text") for _ in range(4)]
    assert [child.wait(60) for child in children] == [0, 0, 0, 0]
    assert fixture.file(LOG).read_text() == "text\n"


def fail_with(code, *, after=0):
    def write(fd, data):
        os.write(fd, data[:after])
        raise OSError(code, os.strerror(code))

    return write


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.EROFS, WorkspaceReadOnly),
        (errno.EACCES, WorkspaceReadOnly),
        (errno.EPERM, WorkspaceReadOnly),
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
    ],
)
def test_a_failed_write_has_its_name_and_leaves_the_file_alone(fixture, replace_write, code, error):
    fixture.file("MEMORY.md").write_text("one\n")
    replace_write(fail_with(code, after=3))
    with pytest.raises(error):
        fixture.appender().append("text", path="MEMORY.md", idempotency_key="k")
    assert fixture.file("MEMORY.md").read_text() == "one\n"


def test_after_a_full_disk_the_retry_writes(fixture, replace_write):
    appender = fixture.appender()
    replace_write(fail_with(errno.ENOSPC, after=3))
    with pytest.raises(DiskFull):
        appender.append("text", path=LOG, idempotency_key="k")
    replace_write(None)
    assert not appender.append("text", path=LOG, idempotency_key="k").already_appended
    assert fixture.file(LOG).read_text() == "text\n"


def test_a_ledger_that_is_full_at_the_end_does_not_deny_what_was_written(fixture, monkeypatch):
    appender = fixture.appender()

    def full(*_arguments):
        raise DiskFull("the ledger's disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "settle", full)
        first = appender.append("text", path=LOG, idempotency_key="k")
    assert not first.already_appended
    again = appender.append("text", path=LOG, idempotency_key="k")
    assert (again.already_appended, again.start_line) == (True, first.start_line)
    assert fixture.file(LOG).read_text() == "text\n"


def test_a_draft_that_cannot_be_kept_stops_the_append_before_it_begins(fixture):
    fixture.ledger.parent.mkdir(parents=True)
    fixture.ledger.with_name("main.appends.block").mkdir()
    with pytest.raises(IndexUnavailable):
        fixture.appender().append("text", path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_bytes() == b""


def test_a_torn_block_with_others_bytes_after_it_is_left(fixture, replace_write):
    def write(fd, data):
        os.write(fd, data[:3])
        os.write(fd, b"theirs\n")
        raise OSError(errno.ENOSPC, "full")

    replace_write(write)
    with pytest.raises(DiskFull):
        fixture.appender().append("text", path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text() == "textheirs\n"


class WatchedFile(MemoryFile):
    """Calls `looked` whenever the file is read, as it is just before a torn block is truncated."""

    looked = staticmethod(lambda: None)

    def read(self, start, end):
        data = super().read(start, end)
        self.looked()
        return data


@pytest.fixture
def torn_write(fixture):
    """Write a block to MEMORY.md, of which a limit of the system lets three bytes through; return the error."""
    log = fixture.file("MEMORY.md")
    log.write_text("one\n")

    def torn_write(looked):
        location = resolve_for_append(Roots(str(fixture.workspace), ()), "MEMORY.md")
        descriptor = open_for_append(location)
        file = WatchedFile(descriptor, location)
        file.looked = looked
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (7, unlimited[1]))
            with pytest.raises(OSError, match="File too large") as error:
                file.write(b"text\n", 4)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            os.close(descriptor)
        return str(error.value)

    return torn_write


@pytest.mark.faults
def test_bytes_that_another_program_appends_before_a_torn_block_is_removed_are_kept(fixture, torn_write):
    writers = []

    def append_theirs():
        command = ["/bin/sh", "-c", 'ulimit -f unlimited; printf "theirs\\n" >> "$0"', str(fixture.file("MEMORY.md"))]
        writers.append(subprocess.Popen(command))
        # It appends now, or waits until the block is removed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            writers[0].wait(0.2)

    assert "may be left" not in torn_write(append_theirs)
    assert [writer.wait(30) for writer in writers] == [0]
    assert fixture.file("MEMORY.md").read_text() == "one\ntheirs\n"


@pytest.mark.faults
def test_a_torn_block_in_a_file_that_another_program_has_open_stays(fixture, torn_write):
    command = ["/bin/sh", "-c", 'read line; echo "$line"', "sh"]
    with fixture.file("MEMORY.md").open("a") as log:
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, text=True)
    assert "may be left" in torn_write(lambda: writer.stdin.closed or writer.communicate("theirs\n", 30))
    writer.wait(30)
    assert fixture.file("MEMORY.md").read_text() == "one\ntextheirs\n"


def test_a_writer_without_locks_that_gets_in_first_moves_the_answer(fixture, replace_write):
    write_all = memory_file.write_all

    def write(fd, data):
        os.write(fd, b"theirs\n")
        write_all(fd, data)

    replace_write(write)
    answer = fixture.appender().append("text", path=LOG, idempotency_key="k")
    replace_write(None)
    assert fixture.lines(LOG, answer) == [b"text"]
    again = fixture.appender().append("text", path=LOG, idempotency_key="k")
    assert (again.start_line, again.already_appended) == (answer.start_line, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where it likes")
def test_a_read_only_workspace_is_named(fixture):
    fixture.workspace.chmod(0o500)
    with pytest.raises(WorkspaceReadOnly):
        fixture.appender().append("text", path="MEMORY.md")


def test_a_ledger_that_cannot_be_opened_stops_the_append(fixture):
    fixture.ledger.parent.parent.write_text("a file where the folder should be")
    with pytest.raises(IndexUnavailable):
        fixture.appender().append("text", path=LOG, idempotency_key="k")
    assert not fixture.file(LOG).exists()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.binary(max_size=40).map(lambda raw: raw + b"x\r\n"[: len(raw) % 4]),
    appends=st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30),
            st.text("abc #", max_size=6),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_the_lines_answered_are_exactly_what_was_appended(fixture, before, appends):
    file = fixture.file("MEMORY.md")
    file.write_bytes(before)
    appender = fixture.appender()
    for text, heading in appends:
        old = file.read_bytes()
        answer = appender.append(text, path="MEMORY.md", heading=heading)
        assert file.read_bytes().startswith(old)
        assert file.read_bytes().endswith(b"\n")
        wanted = (f"## {heading}\n\n" if heading else "") + text
        assert b"\n".join(fixture.lines("MEMORY.md", answer)) == wanted.removesuffix("\n").encode()
