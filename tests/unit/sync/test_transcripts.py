"""Transcripts: new messages are appended and removed ones deleted, as if all transcripts were indexed again."""

import errno
import os
import shutil
import time

import pytest

from index_fixture import SOUND, RecordingObserver, ids_of
from memoryd_server.errors import DiskFull, SyncCancelled
from memoryd_server.model import Source
from memoryd_server.sources import transcript_text
from memoryd_server.sources.transcripts import ReadPosition, TranscriptReader
from memoryd_server.sqlite.writer import SqliteWriter
from memoryd_server.sync import prepare
from memoryd_server.sync.progress import SyncMode
from transcript_fixture import HEAD, TOOL, TranscriptFixture, limits, user


@pytest.fixture
def index(tmp_path):
    index = TranscriptFixture(tmp_path).open()
    yield index
    index.close()


@pytest.fixture
def starts(index):
    """Where each reading of a transcript began."""
    found = []

    class Recording(TranscriptReader):
        def lines(self, start):
            found.append(start.offset)
            return super().lines(start)

    index.open_transcript = Recording.open
    return found


def talk(first, count):
    return [user(f"Remark {number} on herons and weirs, at some length.") for number in range(first, first + count)]


def test_only_the_added_part_of_a_transcript_is_read_and_only_its_last_chunk_replaced(index, starts):
    index.say("s1.jsonl", HEAD, *talk(0, 200))
    index.sync()
    before, size = index.chunks(), (index.sessions / "s1.jsonl").stat().st_size
    with index.store.read() as reader:
        ids = ids_of(reader, Source.SESSIONS)
    index.say("s1.jsonl", TOOL, user("The quince is ripe."))
    assert index.sync().indexed_files == 1
    assert starts == [0, size]
    assert index.found("quince") == ["sessions/s1.jsonl"]
    with index.store.read() as reader:
        assert ids[:-1] == ids_of(reader, Source.SESSIONS)[: len(ids) - 1]
    assert index.chunks()[: len(before) - 1] == before[:-1]
    assert index.integrity() == SOUND


def test_a_chunk_that_was_full_already_is_not_replaced(index):
    index.say("s1.jsonl", user("a " * 390), user("b " * 390))
    index.sync()
    with index.store.read() as reader:
        ids = set(ids_of(reader, Source.SESSIONS))
    index.say("s1.jsonl", user("c " * 390))
    index.sync()
    with index.store.read() as reader:
        assert ids < set(ids_of(reader, Source.SESSIONS))


def test_nothing_is_read_of_a_transcript_that_nothing_was_added_to(index, starts):
    file = index.say("s1.jsonl", *talk(0, 3))
    index.sync()
    file.chmod(0o640)
    assert index.sync().indexed_files == 0
    assert starts == [0]
    assert index.sync().unchanged_files == 1


@pytest.mark.parametrize("kind", ["cut", "rewritten", "replaced", "rewritten and longer"])
def test_a_transcript_that_is_another_one_is_read_from_its_beginning(index, starts, kind):
    file = index.say("s1.jsonl", user("The quince is ripe."), *talk(0, 3))
    index.sync()
    data = file.read_bytes()
    if kind == "cut":
        os.truncate(file, len(user("The quince is ripe.")))
    elif kind == "replaced":
        beside = file.with_name("beside")
        beside.write_bytes(data.replace(b"quince", b"medlar") + talk(9, 1)[0].encode())
        beside.rename(file)
    else:
        more = talk(9, 1)[0].encode() if kind == "rewritten and longer" else b""
        with file.open("r+b") as stream:
            stream.write(data.replace(b"quince", b"medlar") + more)
        os.utime(file, ns=(0, time.time_ns() + 10**9))
    index.sync()
    assert starts == [0, 0]
    assert bool(index.found("quince")) is (kind == "cut")
    assert bool(index.found("herons")) is (kind != "cut")
    assert bool(index.found("medlar")) is (kind != "cut")
    assert index.integrity() == SOUND


def test_text_that_is_removed_from_the_middle_of_a_growing_transcript_is_found_no_longer(index, starts):
    file = index.say("s1.jsonl", *talk(0, 100), user("The password is quince."), *talk(100, 900))
    index.sync()
    assert index.found("quince")
    with file.open("r+b") as stream:
        data = stream.read()
        stream.seek(0)
        stream.write(data.replace(b"quince", b"medlar") + talk(1000, 1)[0].encode())
    index.sync()
    assert starts == [0, 0]
    assert (index.found("quince"), index.found("medlar")) == ([], ["sessions/s1.jsonl"])
    assert index.integrity() == SOUND


def test_a_transcript_with_new_times_but_equal_text_is_not_indexed_again(index, starts):
    file = index.say("s1.jsonl", *talk(0, 3))
    index.sync()
    os.utime(file, ns=(0, time.time_ns() + 10**9))
    assert index.sync().unchanged_files == 1
    assert starts == [0]


def test_an_edit_while_a_transcript_is_read_is_noticed_by_the_next_sync(index):
    file = index.say("s1.jsonl", *talk(0, 10), user("The password is quince."), *talk(10, 10))

    class Edited(TranscriptReader):
        def lines(self, start):
            yield from super().lines(start)
            with file.open("r+b") as stream:
                data = stream.read()
                stream.seek(0)
                stream.write(data.replace(b"quince", b"medlar"))

    index.open_transcript = Edited.open
    index.sync()
    assert index.found("quince")
    index.open_transcript = TranscriptReader.open
    index.say("s1.jsonl", *talk(20, 1))
    index.sync()
    assert (index.found("quince"), index.found("medlar")) == ([], ["sessions/s1.jsonl"])


def test_an_index_of_an_earlier_version_is_continued_where_it_ends(index, starts):
    file = index.say("s1.jsonl", *talk(0, 1_000))
    index.sync()
    size, line = file.stat().st_size, talk(0, 1)[0]
    with TranscriptReader.open(index.corpus.transcript("s1.jsonl")) as reader:
        of_ends = reader.ends_digest(ReadPosition(size, 1_000))
    index.connection.execute("UPDATE files SET hash = ? WHERE source = 'sessions'", (of_ends,))
    before = index.chunks()
    file.chmod(0o640)
    assert index.sync().unchanged_files == 1
    index.say("s1.jsonl", line)
    index.sync()
    assert starts == [0, size]
    assert index.chunks()[: len(before) - 1] == before[:-1]
    # From then on, a change anywhere is noticed.
    with file.open("r+b") as stream:
        data = stream.read()
        stream.seek(0)
        stream.write(data.replace(b"Remark 100 on herons", b"Remark 100 on quince") + line.encode())
    index.sync()
    assert index.found("quince")


def test_a_rotated_transcript_keeps_its_rows_and_makes_room_for_the_next_of_its_name(index, starts):
    index.say("s1.jsonl", *talk(0, 100))
    index.sync()
    with index.store.read() as reader:
        ids = ids_of(reader, Source.SESSIONS)
    rotated = index.rotate("s1.jsonl", "reset.2026-02-08T10-00-00.000Z")
    index.say("s1.jsonl", user("The quince is ripe."))
    index.sync()
    assert starts == [0, rotated.stat().st_size, 0]
    with index.store.read() as reader:
        assert ids == ids_of(reader, Source.SESSIONS)[: len(ids)]
    assert index.found("quince") == ["sessions/s1.jsonl"]
    assert set(index.found("herons")) == {f"sessions/{rotated.name}"}
    assert index.integrity() == SOUND


def test_a_transcript_with_a_reused_name_and_inode_is_indexed_from_its_beginning(index):
    file = index.say("s1.jsonl", user("The quince is ripe."))
    index.sync()
    inode = file.stat().st_ino
    file.rename(file.with_name("s2.jsonl"))
    with file.with_name("s2.jsonl").open("wb") as stream:
        stream.write(user("The medlar is not.").encode())
    assert file.with_name("s2.jsonl").stat().st_ino == inode
    index.sync()
    assert index.paths() == ["sessions/s2.jsonl"]
    assert (index.found("quince"), index.found("medlar")) == ([], ["sessions/s2.jsonl"])


def test_a_line_is_indexed_when_it_is_whole(index):
    line = user("The quince is ripe.")
    index.say("s1.jsonl", user("First."), line[:20])
    index.sync()
    assert index.texts() == ["User: First."]
    index.say("s1.jsonl", line[20:-1])
    index.sync()
    assert index.texts() == ["User: First.\nUser: The quince is ripe."]
    index.say("s1.jsonl", "\n", user("Last."))
    index.sync()
    assert index.chunks() == [
        ("sessions/s1.jsonl", "User: First.\nUser: The quince is ripe.\nUser: Last.", (1, 2, 3)),
    ]
    index.say("s1.jsonl", user("Whole.")[:-1])
    index.sync()
    index.say("s1.jsonl", "but not the end\n")
    index.sync()
    assert index.texts() == ["User: First.\nUser: The quince is ripe.\nUser: Last."]


def test_a_long_transcript_is_written_in_parts_and_resumed_after_a_stop(index, starts):
    index.part_chars = 500
    index.say("s1.jsonl", *talk(0, 300))
    asked = []
    with pytest.raises(SyncCancelled):
        index.sync(should_stop=lambda: asked.append(None) or len(asked) > 5, chars_per_transaction=400)
    some = index.chunks()
    assert len(some) > 0
    assert index.integrity() == SOUND
    index.reopen()
    index.sync(chars_per_transaction=400)
    assert starts[0] == 0 < starts[1]
    assert index.texts()[: len(some) - 1] == [text for _, text, _ in some][:-1]
    other = TranscriptFixture(index.workspace.parent, name="other.sqlite").open()
    other.sync()
    assert other.rows()[0] == index.rows()[0]
    assert other.keyword_words() == index.keyword_words()
    other.close()


def test_a_transcript_that_cannot_be_read_says_so_and_comes_back(index):
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    file = index.say("s1.jsonl", *talk(0, 3))
    file.chmod(0)
    assert index.sync().failed_files == 1
    file.chmod(0o600)
    assert index.sync().indexed_files == 1
    assert index.found("herons")


def test_a_transcript_that_fails_while_it_is_read_fails_alone(index):
    for name in ("s1", "s2"):
        index.say(f"{name}.jsonl", *talk(0, 3))
    failing = ["Input/output error"]

    class Failing(TranscriptReader):
        def lines(self, start):
            for number, line in enumerate(super().lines(start)):
                if number == 2 and len(failing):
                    raise OSError(errno.EIO, failing.pop())
                yield line

    index.open_transcript = Failing.open
    notes = RecordingObserver()
    outcome = index.sync(observer=notes)
    assert (outcome.indexed_files, outcome.failed_files) == (1, 1)
    assert notes.errors() == {"sessions/s1.jsonl": "Input/output error"}
    assert index.paths() == ["sessions/s2.jsonl"]
    assert index.sync().indexed_files == 1
    assert index.paths() == ["sessions/s1.jsonl", "sessions/s2.jsonl"]
    assert index.integrity() == SOUND


def test_an_index_error_is_not_recorded_as_the_transcripts_error(index, monkeypatch):
    index.say("s1.jsonl", *talk(0, 3))
    index.part_chars = 1

    def write(*_):
        raise DiskFull("no space is left")

    monkeypatch.setattr(SqliteWriter, "write", write)
    with pytest.raises(DiskFull):
        index.sync(chars_per_transaction=1)


def test_another_reader_version_reads_transcripts_again(index, starts, monkeypatch):
    index.say("s1.jsonl", *talk(0, 3))
    index.sync()
    monkeypatch.setattr(prepare, "READER_VERSION", "another")
    index.say("s1.jsonl", *talk(3, 1))
    index.sync()
    assert starts == [0, 0]
    assert index.integrity() == SOUND


def test_a_secret_that_an_older_version_left_leaves_the_index_though_no_transcript_changed(index, monkeypatch):
    index.say("s1.jsonl", user("The heron: DB_PASS=hunter2quince"), *talk(0, 60))
    index.say("s2.jsonl", *talk(100, 3))
    with monkeypatch.context() as older:
        older.setattr(prepare, "READER_VERSION", "1.0")
        older.setattr(transcript_text, "mask_secrets", lambda text: text)
        index.sync()
    assert index.found("hunter2quince") == ["sessions/s1.jsonl"]
    before = index.texts()
    assert index.sync().indexed_files == 2
    assert index.found("hunter2quince") == []
    assert index.found("heron")
    shown = index.texts()
    assert "hunter2" not in "".join(shown)
    assert sum(text in before for text in shown) == len(shown) - 1, "unchanged text needs no new vector"
    assert index.sync().indexed_files == 0
    assert index.integrity() == SOUND


def test_an_older_transcript_is_due_however_little_it_has_grown(tmp_path, monkeypatch):
    index = TranscriptFixture(tmp_path, limits=limits()).open()
    index.say("s1.jsonl", *talk(0, 3))
    with monkeypatch.context() as older:
        older.setattr(prepare, "READER_VERSION", "1.0")
        index.ask(every_transcript=True)
    assert index.ask().indexed_files == 1
    assert index.ask().indexed_files == 0
    index.close()


def test_a_folder_that_cannot_be_looked_into_is_not_taken_for_an_empty_one(index):
    index.say("s1.jsonl", *talk(0, 3))
    index.sync()
    beside = index.sessions.with_name("beside")
    index.sessions.rename(beside)
    index.sessions.symlink_to("nowhere/at/all")
    assert index.sync().removed_files == 1, "a folder that is not there is gone, as the state directory is"
    index.sessions.unlink()
    beside.rename(index.sessions)
    assert index.sync().indexed_files == 1
    shutil.rmtree(index.sessions)
    assert index.sync().removed_files == 1
    assert index.integrity() == SOUND


def test_other_chunk_sizes_and_a_forced_sync_take_transcripts_in_too(index):
    index.say("s1.jsonl", *talk(0, 50))
    index.sync()
    before = index.rows()
    assert index.sync(SyncMode.FULL).indexed_files == 1
    assert index.rows() == before


@pytest.fixture
def due(tmp_path):
    """Return an index that indexes transcripts when they are due, after one sync."""
    index = TranscriptFixture(tmp_path, limits=limits(bytes=2_000, messages=5)).open()
    index.say("s1.jsonl", *talk(0, 1))
    index.sync()
    yield index
    index.close()


def test_the_first_sync_takes_every_transcript(due):
    assert due.found("herons")


@pytest.mark.parametrize(
    ("added", "is_due"),
    [
        ([user("one")] * 4, False),
        ([user("one")] * 5, True),
        ([TOOL] * 5, True),
        ([user("x" * 1_500)], False),
        ([user("x" * 2_000)], True),
        ([], False),
    ],
)
def test_a_transcript_is_due_after_enough_bytes_or_lines(due, added, is_due):
    due.say("s1.jsonl", *added)
    assert due.engine().compare().plan.needs_run is is_due
    assert due.sync().indexed_files == is_due
    assert due.engine().compare().plan.pending == 0, "waiting transcripts do not count as pending"


def test_growth_adds_up_until_it_is_enough(due):
    for number in range(4):
        due.say("s1.jsonl", user(f"quince{number}"))
        assert due.sync().indexed_files == 0
    due.say("s1.jsonl", user("quince4"))
    assert due.sync().indexed_files == 1
    assert due.found("quince0")


@pytest.mark.parametrize("which", ["bytes", "messages"])
def test_a_limit_of_0_means_any_growth(tmp_path, which):
    index = TranscriptFixture(tmp_path, limits=limits(**{which: 0})).open()
    index.say("s1.jsonl", user("one"))
    index.sync()
    index.say("s1.jsonl", user("two"))
    assert index.sync().indexed_files == 1
    index.close()


def test_a_quiet_cut_or_rotated_transcript_is_due(due):
    file = due.say("s1.jsonl", user("quince"))
    assert due.sync().indexed_files == 0
    due.now_ns = lambda: time.time_ns() + 3_600 * 10**9
    assert due.sync().indexed_files == 1
    due.now_ns = time.time_ns
    os.truncate(file, len(talk(0, 1)[0]))
    assert due.sync().indexed_files == 1
    assert not due.found("quince")
    due.say("s1.jsonl", user("medlar"))
    due.rotate("s1.jsonl", "deleted.1")
    assert due.sync().indexed_files == 1
    assert due.found("medlar") == ["sessions/s1.jsonl.deleted.1"]


def test_a_transcript_that_was_rewritten_with_the_same_size_is_due(due):
    file = due.sessions / "s1.jsonl"
    status = file.stat()
    with file.open("r+b") as stream:
        stream.write(file.read_bytes().replace(b"e", b"a"))
    os.utime(file, ns=(0, status.st_mtime_ns + 1))
    assert due.sync().indexed_files == 1


def test_only_the_transcript_requested_by_name_is_due(due):
    due.say("s2.jsonl", *talk(0, 1))
    due.ask(transcripts=frozenset(("s2.jsonl",)))
    for name in ("s1", "s2"):
        due.say(f"{name}.jsonl", user("quince"))
    assert due.ask(transcripts=frozenset(("s2.jsonl",))).indexed_files == 1
    assert due.found("quince") == ["sessions/s2.jsonl"]
    assert due.ask(every_transcript=True).indexed_files == 1


def test_an_ask_for_one_source_leaves_the_other_as_it_is(due):
    due.write("memory/note.md", "quince")
    assert due.ask(sources=frozenset((Source.SESSIONS,)), every_transcript=True).indexed_files == 0
    (due.workspace / "memory" / "note.md").unlink()
    due.write("memory/other.md", "quince")
    assert due.ask(sources=frozenset((Source.MEMORY,))).indexed_files == 1
    (due.workspace / "memory" / "other.md").unlink()
    assert due.ask(sources=frozenset((Source.SESSIONS,))).removed_files == 0
    assert due.sync().removed_files == 1
