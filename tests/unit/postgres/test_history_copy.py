"""Copies of the history of writes from a SQLite file into the database."""

import zlib
from contextlib import contextmanager
from hashlib import sha256

import apsw
import pytest

pytest.importorskip("psycopg")

from memoryd_server.postgres import CopyOptions, HistoryCopy
from memoryd_server.sqlite import SqliteWriteHistory, open_stored_history
from memoryd_server.store import WriteKind, WriteRecord
from memoryd_server.writing import FileDeletion, TextReplacement
from postgres_server import missing
from unit.writing.written_memory import LIMITS, NOW_MS, FolderMemory

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

NOTE, MOVED = "memory/note.md", "memory/moved.md"


@pytest.fixture
def folder(tmp_path):
    """The memory of a folder with a history of four edits."""
    memory = FolderMemory(tmp_path)
    memory.write(NOTE, b"the ferry sails at dawn\n", key="k1", caller="tests")
    memory.write(NOTE, TextReplacement(b"dawn", b"noon"), key="k2")
    memory.move(NOTE, MOVED)
    memory.write(MOVED, FileDeletion())
    yield memory
    memory.close()


def path_of(folder):
    return folder.state / "main.history.sqlite"


@contextmanager
def copy_to(memory, path, since_ms=0):
    with open_stored_history(path) as history:
        yield HistoryCopy(memory.documents, history, since_ms)


def copied(memory, path, since_ms=0, **options):
    with copy_to(memory, path, since_ms) as copy:
        return copy.into_database(CopyOptions(**options))


def written(number, path="memory/a.md", size=10):
    after = f"{number} ".encode() * size
    record = WriteRecord(
        version_id=f"v{number}",
        path=path,
        kind=WriteKind.REPLACE_CONTENT,
        time_ms=NOW_MS,
        caller="tests",
        after=sha256(after).digest(),
        after_bytes=len(after),
        key=f"k{number}",
        request_sha256="r",
    )
    return record, None, after


def fill(path, numbers, **options):
    history = SqliteWriteHistory(path, **LIMITS)
    for number in numbers:
        record, before, after = written(number, **options)
        history.begin(record, before, after)
        history.finish(record.version_id)
    history.close()


def test_records_keep_their_ids_order_contents_and_keys(new_memory, folder):
    expected = folder.records()
    folder.close()
    memory = new_memory()
    report = copied(memory, path_of(folder))
    assert (report.copied, report.verified, report.is_complete) == (4, 4, True)
    assert memory.records() == expected
    assert [record.sequence for record, _ in expected] == [1, 2, 3, 4]
    assert memory.history.with_key("k2").version_id == expected[1][0].version_id
    again = copied(memory, path_of(folder))
    assert (again.copied, again.equal, again.verified, again.is_complete) == (0, 4, 4, True)


def test_edits_continue_with_the_next_sequence_number(new_memory, folder):
    folder.close()
    memory = new_memory()
    copied(memory, path_of(folder))
    memory.restore(memory.records()[-1][0].version_id)
    assert memory.data(MOVED) == b"the ferry sails at noon\n"
    assert [record.sequence for record, _ in memory.records()] == [1, 2, 3, 4, 5]


def test_an_interrupted_copy_continues_where_it_ended(new_memory, tmp_path):
    path, memory = tmp_path / "main.history.sqlite", new_memory()
    fill(path, range(30), size=300_000)
    with pytest.raises(InterruptedError):
        copied(memory, path, progress=interrupt)
    count = len(memory.records())
    assert 0 < count < 30
    report = copied(memory, path)
    assert (report.copied, report.equal, report.verified, report.is_complete) == (30 - count, count, 30, True)
    assert [record.version_id for record, _ in memory.records()] == [f"v{number}" for number in range(30)]


def test_a_record_that_is_written_during_the_copy_ends_it(new_memory, tmp_path):
    path, memory = tmp_path / "main.history.sqlite", new_memory()
    fill(path, range(30), size=300_000)

    def write(done, _total):
        if done < 30:
            memory.write("memory/other.md", b"written meanwhile")

    report = copied(memory, path, progress=write)
    assert 0 < report.copied < 30
    assert "a record that was written during the copy" in report.conflicts
    assert not report.is_complete
    assert len(memory.records()) == report.copied + 1
    assert memory.data("memory/other.md") == b"written meanwhile"


def interrupt(_done, _total):
    raise InterruptedError


def test_a_dry_run_counts_and_copies_nothing(new_memory, folder):
    folder.close()
    memory = new_memory()
    assert copied(memory, path_of(folder), dry_run=True).copied == 4
    assert memory.records() == []


def test_a_history_that_continued_in_the_database_is_kept_and_listed(new_memory, folder):
    folder.close()
    memory = new_memory()
    copied(memory, path_of(folder))
    version = memory.write(NOTE, b"written to the database\n").version_id
    before = memory.records()
    report = copied(memory, path_of(folder))
    assert (report.conflicts, report.equal, report.mismatched) == ([f"{NOTE}, version {version}"], 4, [])
    assert not report.is_complete
    assert memory.records() == before


def test_nothing_is_copied_into_another_history(new_memory, folder):
    folder.close()
    memory = new_memory()
    memory.write(NOTE, b"written to the database\n")
    report = copied(memory, path_of(folder))
    assert (len(report.conflicts), len(report.skipped), report.copied) == (1, 3, 0)
    assert len(memory.records()) == 1


def test_records_that_were_removed_from_the_database_are_not_copied_again(new_memory, folder):
    folder.close()
    memory = new_memory()
    copied(memory, path_of(folder))
    memory.history.forget_path(MOVED)
    report = copied(memory, path_of(folder))
    assert (report.copied, len(report.skipped), report.is_complete) == (0, 4, False)
    assert memory.records() == []
    # As if the age limit had removed them.
    assert copied(memory, path_of(folder), since_ms=NOW_MS + 1).is_complete


def test_records_that_the_home_has_gained_since_are_copied(new_memory, tmp_path):
    path, memory = tmp_path / "main.history.sqlite", new_memory()
    fill(path, range(3))
    copied(memory, path)
    fill(path, range(3, 5))
    report = copied(memory, path)
    assert (report.copied, report.equal, report.is_complete) == (2, 3, True)


def test_a_damaged_content_is_listed_and_its_record_copied(new_memory, folder):
    damaged = folder.records()[1][0]
    folder.close()
    connection = apsw.Connection(str(path_of(folder)))
    data = zlib.compress(b"other bytes")
    connection.execute("UPDATE contents SET data = ? WHERE digest = ?", (data, damaged.before)).fetchall()
    connection.close()
    memory = new_memory()
    report = copied(memory, path_of(folder))
    assert (report.copied, len(report.skipped)) == (4, 2)
    assert not report.mismatched
    assert [record.is_restorable for record, _ in memory.records()] == [True, False, True, True]


def test_the_comparison_finds_a_content_that_was_lost(new_memory, folder):
    content = folder.records()[1][0].before
    folder.close()
    memory = new_memory()
    copied(memory, path_of(folder))
    with memory.documents.write() as rows:
        rows.run("DELETE FROM history_contents WHERE agent_id = %(agent)s AND digest = %(digest)s", digest=content)
    report = copied(memory, path_of(folder))
    assert len(report.mismatched) == 2
    assert not report.is_complete


def test_a_missing_file_is_an_empty_history(new_memory, tmp_path):
    memory = new_memory()
    report = copied(memory, tmp_path / "main.history.sqlite")
    assert (report.copied, report.verified, report.is_complete) == (0, 0, True)


def test_sizes_are_counted_as_by_edits(new_memory, folder, tmp_path):
    folder.close()
    memory, edited = new_memory(), new_memory("edited")
    copied(memory, path_of(folder))
    edited.write(NOTE, b"the ferry sails at dawn\n", key="k1", caller="tests")
    edited.write(NOTE, TextReplacement(b"dawn", b"noon"), key="k2")
    edited.move(NOTE, MOVED)
    edited.write(MOVED, FileDeletion())
    query = "SELECT bytes, next_sequence FROM histories WHERE agent_id = %(agent)s"
    sizes = []
    for each in (memory, edited):
        with each.documents.read() as rows:
            sizes += rows.all(query)
    assert sizes[0] == sizes[1]
