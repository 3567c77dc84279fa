"""Transcripts: new messages are appended and removed ones deleted, as if all transcripts were indexed again."""

import errno
import os
import shutil
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from desk import SOUND, Notes
from memoryd_server.errors import DiskFull, SyncCancelled
from memoryd_server.model import Source
from memoryd_server.sources.transcripts import TranscriptReader
from memoryd_server.sqlite.writer import SqliteWriter
from memoryd_server.sync import prepare
from memoryd_server.sync.progress import SyncMode
from transcripts import HEAD, TOOL, SessionsDesk, assistant, limits, user


@pytest.fixture
def desk(tmp_path):
    desk = SessionsDesk(tmp_path).open()
    yield desk
    desk.close()


@pytest.fixture
def starts(monkeypatch):
    """Where each reading of a transcript began."""
    found = []
    read = TranscriptReader.lines

    def lines(self, start):
        found.append(start.offset)
        return read(self, start)

    monkeypatch.setattr(TranscriptReader, "lines", lines)
    return found


def talk(first, count):
    return [user(f"Remark {number} on herons and weirs, at some length.") for number in range(first, first + count)]


def test_only_the_added_part_of_a_transcript_is_read_and_only_its_last_chunk_replaced(desk, starts):
    desk.say("s1.jsonl", HEAD, *talk(0, 200))
    desk.sync()
    before, size = desk.chunks(), (desk.sessions / "s1.jsonl").stat().st_size
    with desk.store.read() as reader:
        ids = sorted(reader.chunk_ids([Source.SESSIONS]))
    desk.say("s1.jsonl", TOOL, user("The quince is ripe."))
    assert desk.sync().indexed_files == 1
    assert starts == [0, size]
    assert desk.found("quince") == ["sessions/s1.jsonl"]
    with desk.store.read() as reader:
        assert ids[:-1] == sorted(reader.chunk_ids([Source.SESSIONS]))[: len(ids) - 1]
    assert desk.chunks()[: len(before) - 1] == before[:-1]
    assert desk.integrity() == SOUND


def test_a_chunk_that_was_full_already_is_not_replaced(desk):
    desk.say("s1.jsonl", user("a " * 390), user("b " * 390))
    desk.sync()
    with desk.store.read() as reader:
        ids = set(reader.chunk_ids([Source.SESSIONS]))
    desk.say("s1.jsonl", user("c " * 390))
    desk.sync()
    with desk.store.read() as reader:
        assert ids < set(reader.chunk_ids([Source.SESSIONS]))


def test_nothing_is_read_of_a_transcript_that_nothing_was_added_to(desk, starts):
    file = desk.say("s1.jsonl", *talk(0, 3))
    desk.sync()
    file.chmod(0o640)
    assert desk.sync().indexed_files == 0
    assert starts == [0]
    assert desk.sync().unchanged_files == 1


@pytest.mark.parametrize("kind", ["cut", "rewritten", "replaced", "rewritten and longer"])
def test_a_transcript_that_is_another_one_is_read_from_its_beginning(desk, starts, kind):
    file = desk.say("s1.jsonl", user("The quince is ripe."), *talk(0, 3))
    desk.sync()
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
    desk.sync()
    assert starts == [0, 0]
    assert bool(desk.found("quince")) is (kind == "cut")
    assert bool(desk.found("herons")) is (kind != "cut")
    assert bool(desk.found("medlar")) is (kind != "cut")
    assert desk.integrity() == SOUND


def test_a_rotated_transcript_keeps_its_rows_and_makes_room_for_the_next_of_its_name(desk, starts):
    desk.say("s1.jsonl", *talk(0, 100))
    desk.sync()
    with desk.store.read() as reader:
        ids = sorted(reader.chunk_ids([Source.SESSIONS]))
    rotated = desk.rotate("s1.jsonl", "reset.2026-02-08T10-00-00.000Z")
    desk.say("s1.jsonl", user("The quince is ripe."))
    desk.sync()
    assert starts == [0, rotated.stat().st_size, 0]
    with desk.store.read() as reader:
        assert ids == sorted(reader.chunk_ids([Source.SESSIONS]))[: len(ids)]
    assert desk.found("quince") == ["sessions/s1.jsonl"]
    assert set(desk.found("herons")) == {f"sessions/{rotated.name}"}
    assert desk.integrity() == SOUND


def test_a_transcript_with_a_reused_name_and_inode_is_indexed_from_its_beginning(desk):
    file = desk.say("s1.jsonl", user("The quince is ripe."))
    desk.sync()
    inode = file.stat().st_ino
    file.rename(file.with_name("s2.jsonl"))
    with file.with_name("s2.jsonl").open("wb") as stream:
        stream.write(user("The medlar is not.").encode())
    assert file.with_name("s2.jsonl").stat().st_ino == inode
    desk.sync()
    assert desk.paths() == ["sessions/s2.jsonl"]
    assert (desk.found("quince"), desk.found("medlar")) == ([], ["sessions/s2.jsonl"])


def test_a_line_is_indexed_when_it_is_whole(desk):
    line = user("The quince is ripe.")
    desk.say("s1.jsonl", user("First."), line[:20])
    desk.sync()
    assert desk.texts() == ["User: First."]
    desk.say("s1.jsonl", line[20:-1])
    desk.sync()
    assert desk.texts() == ["User: First.\nUser: The quince is ripe."]
    desk.say("s1.jsonl", "\n", user("Last."))
    desk.sync()
    assert desk.chunks() == [
        ("sessions/s1.jsonl", "User: First.\nUser: The quince is ripe.\nUser: Last.", (1, 2, 3)),
    ]
    desk.say("s1.jsonl", user("Whole.")[:-1])
    desk.sync()
    desk.say("s1.jsonl", "but not the end\n")
    desk.sync()
    assert desk.texts() == ["User: First.\nUser: The quince is ripe.\nUser: Last."]


def test_a_long_transcript_is_written_in_parts_and_resumed_after_a_stop(desk, starts, monkeypatch):
    monkeypatch.setattr(prepare, "PART_CHARS", 500)
    monkeypatch.setattr("memoryd_server.sync.executor.MAX_TRANSACTION_CHARS", 400)
    desk.say("s1.jsonl", *talk(0, 300))
    asked = []
    with pytest.raises(SyncCancelled):
        desk.sync(should_stop=lambda: asked.append(None) or len(asked) > 5)
    some = desk.chunks()
    assert len(some) > 0
    assert desk.integrity() == SOUND
    desk.reopen()
    desk.sync()
    assert starts[0] == 0 < starts[1]
    assert desk.texts()[: len(some) - 1] == [text for _, text, _ in some][:-1]
    monkeypatch.undo()
    other = SessionsDesk(desk.workspace.parent, name="other.sqlite").open()
    other.sync()
    assert other.rows()[0] == desk.rows()[0]
    assert other.keyword_words() == desk.keyword_words()
    other.close()


def test_a_transcript_that_cannot_be_read_says_so_and_comes_back(desk):
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    file = desk.say("s1.jsonl", *talk(0, 3))
    file.chmod(0)
    assert desk.sync().failed_files == 1
    file.chmod(0o600)
    assert desk.sync().indexed_files == 1
    assert desk.found("herons")


def test_a_transcript_that_fails_while_it_is_read_fails_alone(desk, monkeypatch):
    for name in ("s1", "s2"):
        desk.say(f"{name}.jsonl", *talk(0, 3))
    read = TranscriptReader.lines

    def lines(self, start):
        for number, line in enumerate(read(self, start)):
            if number == 2 and len(failing):
                raise OSError(errno.EIO, failing.pop())
            yield line

    failing = ["Input/output error"]
    monkeypatch.setattr(TranscriptReader, "lines", lines)
    notes = Notes()
    outcome = desk.sync(notes=notes)
    assert (outcome.indexed_files, outcome.failed_files) == (1, 1)
    assert notes.errors() == {"sessions/s1.jsonl": "Input/output error"}
    assert desk.paths() == ["sessions/s2.jsonl"]
    assert desk.sync().indexed_files == 1
    assert desk.paths() == ["sessions/s1.jsonl", "sessions/s2.jsonl"]
    assert desk.integrity() == SOUND


def test_an_index_error_is_not_recorded_as_the_transcripts_error(desk, monkeypatch):
    desk.say("s1.jsonl", *talk(0, 3))
    monkeypatch.setattr(prepare, "PART_CHARS", 1)
    monkeypatch.setattr("memoryd_server.sync.executor.MAX_TRANSACTION_CHARS", 1)

    def write(*_):
        raise DiskFull("no space is left")

    monkeypatch.setattr(SqliteWriter, "write", write)
    with pytest.raises(DiskFull):
        desk.sync()


def test_another_reader_version_reads_transcripts_again(desk, starts, monkeypatch):
    desk.say("s1.jsonl", *talk(0, 3))
    desk.sync()
    monkeypatch.setattr(prepare, "READER_VERSION", "another")
    desk.say("s1.jsonl", *talk(3, 1))
    desk.sync()
    assert starts == [0, 0]
    assert desk.integrity() == SOUND


def test_a_folder_that_cannot_be_looked_into_is_not_taken_for_an_empty_one(desk):
    desk.say("s1.jsonl", *talk(0, 3))
    desk.sync()
    beside = desk.sessions.with_name("beside")
    desk.sessions.rename(beside)
    desk.sessions.symlink_to("nowhere/at/all")
    assert desk.sync().removed_files == 1, "a folder that is not there is gone, as the state directory is"
    desk.sessions.unlink()
    beside.rename(desk.sessions)
    assert desk.sync().indexed_files == 1
    shutil.rmtree(desk.sessions)
    assert desk.sync().removed_files == 1
    assert desk.integrity() == SOUND


def test_other_chunk_sizes_and_a_forced_sync_take_transcripts_in_too(desk):
    desk.say("s1.jsonl", *talk(0, 50))
    desk.sync()
    before = desk.rows()
    assert desk.sync(SyncMode.FULL).indexed_files == 1
    assert desk.rows() == before


@pytest.fixture
def due(tmp_path):
    """A desk that indexes transcripts when they are due, and has synced once."""
    desk = SessionsDesk(tmp_path, limits=limits(bytes=2_000, messages=5)).open()
    desk.say("s1.jsonl", *talk(0, 1))
    desk.sync()
    yield desk
    desk.close()


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
    desk = SessionsDesk(tmp_path, limits=limits(**{which: 0})).open()
    desk.say("s1.jsonl", user("one"))
    desk.sync()
    desk.say("s1.jsonl", user("two"))
    assert desk.sync().indexed_files == 1
    desk.close()


def test_one_that_has_gone_quiet_was_cut_or_was_rotated_is_due(due):
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


NAMES = st.sampled_from(["a.jsonl", "b.jsonl", "c.jsonl"])
WORDS = st.lists(st.sampled_from(["heron", "weir", "鹭", "reiher", "x" * 300, "y " * 200]), min_size=1, max_size=8)
LINES = st.lists(
    WORDS.map(" ".join).map(user)
    | WORDS.map(" ".join).map(assistant)
    | st.sampled_from([TOOL, HEAD, "\n", "half", "{}\n"]),
    max_size=12,
)


class Grown(RuleBasedStateMachine):
    """After any change to transcripts, a sync gives the same index as a rebuild."""

    folder = None

    def __init__(self):
        super().__init__()
        self.root = type(self).folder / f"run{time.monotonic_ns()}"
        self.desk = SessionsDesk(self.root).open()
        self.rotations = 0
        self.synced = False

    def _touched(self):
        self.synced = False

    @rule(name=NAMES, lines=LINES)
    def say(self, name, lines):
        self.desk.say(name, *lines)
        self._touched()

    @rule(name=NAMES, data=st.binary(max_size=200))
    def say_bytes(self, name, data):
        self.desk.say(name, data)
        self._touched()

    @rule(name=NAMES)
    def rotate(self, name):
        if (self.desk.sessions / name).exists():
            self.rotations += 1
            self.desk.rotate(name, f"reset.{self.rotations}")
            self._touched()

    @rule(name=NAMES, share=st.floats(0, 1))
    def cut(self, name, share):
        file = self.desk.sessions / name
        if file.exists():
            os.truncate(file, int(file.stat().st_size * share))
            os.utime(file, ns=(0, time.time_ns()))
            self._touched()

    @rule(name=NAMES, lines=LINES)
    def replace(self, name, lines):
        beside = self.desk.sessions / "beside"
        beside.write_text("".join(lines))
        beside.rename(self.desk.sessions / name)
        self._touched()

    @rule(name=NAMES)
    def delete(self, name):
        (self.desk.sessions / name).unlink(missing_ok=True)
        self._touched()

    @precondition(lambda self: not self.synced)
    @rule()
    def sync(self):
        self.desk.sync()
        self.synced = True

    @invariant()
    def it_is_what_an_index_from_nothing_is(self):
        if not self.synced:
            return
        other = SessionsDesk(self.root, name="other.sqlite").open()
        other.sync()
        assert other.chunks() == self.desk.chunks()
        assert [(row[0], row[3]) for row in other.rows()[1]] == [(row[0], row[3]) for row in self.desk.rows()[1]]
        assert other.keyword_words() == self.desk.keyword_words()
        assert self.desk.integrity() == SOUND
        other.close()
        other.path.unlink()

    def teardown(self):
        self.desk.close()
        shutil.rmtree(self.root)


def test_after_any_change_the_index_equals_a_rebuilt_one(tmp_path):
    Grown.folder = tmp_path
    case = Grown.TestCase()
    case.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
    case.runTest()
