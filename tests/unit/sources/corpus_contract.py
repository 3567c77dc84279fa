"""The contract of every `Corpus`. A test module has a subclass of `CorpusContract` for each implementation."""

import io
import json
import time
from functools import partial
from itertools import pairwise

import pytest

from index_fixture import ANALYZER, IDENTITY, MOST_FILE_BYTES, RecordingObserver
from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.model import Clock, FileStat, Source, differs, identity_of, stored
from memoryd_server.sources.corpus import Corpus
from memoryd_server.sources.files import FileTooLarge
from memoryd_server.sources.growth import GrowthLimits, GrowthRule
from memoryd_server.sources.ignore import IGNORE_FILE, MOST_IGNORE_BYTES, IgnoreFileUnusable
from memoryd_server.sources.transcript_text import USER
from memoryd_server.sources.transcripts import START, TranscriptReader
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sync.engine import SyncEngine
from memoryd_server.sync.plan import DUE_SCOPE, FULL_SCOPE, PendingScope, SyncPlanner, SyncScope
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncMode

MOST = 1 << 20


def said(role, text):
    return json.dumps({"type": "message", "message": {"role": role, "content": text}}).encode()


def talk(first, count):
    roles = ("user", "assistant")
    return [said(roles[n % 2], f"remark {n} on herons and weirs") for n in range(first, first + count)]


def paths(files):
    return [file.path for file in files]


def texts(reader, start=START):
    return [line.message.text for line in reader.lines(start) if line.message]


class Synced:
    """An index of a corpus. `read` are the paths that were opened."""

    def __init__(self, corpus, folder, now_ns):
        self.corpus, self.read = corpus, []
        self.store = SqliteStore(folder / "main.sqlite", IDENTITY)
        self.store.open()
        self.pending = PendingScope()
        growth = GrowthRule(GrowthLimits(bytes=100_000, messages=5), time.time_ns)
        preparer = FilePreparer(
            ANALYZER,
            IDENTITY,
            MOST_FILE_BYTES,
            now_ns,
            read=self.read_file,
            open_transcript=self.open_transcript,
        )
        planner = SyncPlanner(corpus, self.pending, growth)
        self.engine = SyncEngine(self.store, planner, preparer, files_per_transaction=10, clock=Clock())

    def read_file(self, file, max_bytes):
        self.read.append(file.path)
        return self.corpus.read(file, max_bytes)

    def open_transcript(self, file, should_stop):
        self.read.append(file.path)
        return self.corpus.open_transcript(file, should_stop)

    def sync(self, scope=FULL_SCOPE):
        """Return the paths that were read, and how many files were removed."""
        self.pending.add(scope)
        self.read.clear()
        observer = RecordingObserver()
        outcome = self.engine.run(SyncMode.INCREMENTAL, observer, lambda: False)
        assert observer.errors() == {}
        return sorted(self.read), outcome.removed_files

    def rows(self):
        return {path: row for (_, path), row in self.store.writer().files().items()}


class CorpusContract:
    """A subclass has `corpus(**options)`, `put(path, data)`, `remove(path)`, and the methods below.

    The options of a corpus are `memory` and `indexes_sessions`. `put` also writes `.memoryignore`. `say(session,
    *records)` appends to the transcript of a session, `records` returns its lines, and `delete_session` deletes it.
    `now_ns` is the clock of a sync, by which a file that was just written counts as settled.
    """

    @pytest.fixture
    def synced(self, tmp_path):
        synced = Synced(self.corpus(), tmp_path, self.now_ns)
        yield synced
        synced.store.close()

    def fill(self):
        for path in ("memory/b.md", "MEMORY.md", "memory/sub/a.md", "USER.md", "DREAMS.md"):
            self.put(path, f"the text of {path}\n".encode())
        self.say("s1", *talk(0, 3))

    def test_discovery_finds_every_file_with_its_stat_by_path(self):
        self.fill()
        corpus = self.corpus()
        found = corpus.discover()
        memory = ["MEMORY.md", "USER.md", "memory/b.md", "memory/sub/a.md"]
        assert paths(found.files) == [*memory, "sessions/s1.jsonl"]
        assert (found.failures, found.issues, found.unseen) == ((), (), ())
        places = [corpus.resolve(file.path) for file in found.files]
        assert [place.path for place in places] == paths(found.files)
        assert corpus.stat(places) == [file.stat for file in found.files]
        assert [corpus.stat_file(place) for place in places] == [file.stat for file in found.files]
        assert all(type(file.stat) is FileStat for file in found.files)
        assert [file.source for file in found.files] == [*[Source.MEMORY] * 4, Source.SESSIONS]

    def test_sources_that_are_not_indexed_are_not_found(self):
        self.fill()
        assert paths(self.corpus(indexes_sessions=False).discover().files)[-1] == "memory/sub/a.md"
        only_sessions = self.corpus(memory=False)
        assert paths(only_sessions.discover().files) == ["sessions/s1.jsonl"]
        assert only_sessions.sources == (Source.SESSIONS,)
        assert only_sessions.excluded() == []
        assert only_sessions.read(only_sessions.resolve("USER.md"), MOST)[0] == b"the text of USER.md\n"

    def test_nothing_at_all(self):
        corpus = self.corpus()
        found = corpus.discover()
        assert (found.files, found.failures) == ((), ())
        assert "no memory files found" in found.issues
        assert corpus.stat([]) == []
        assert list(corpus.list_transcripts()) == []
        assert list(corpus.notes(lambda _: True)) == []

    def test_a_corpus_can_be_the_key_of_a_cache(self):
        corpus: Corpus = self.corpus()
        assert {corpus: 1}[corpus] == 1

    def test_what_memoryignore_excludes_is_listed_with_its_rule(self):
        self.fill()
        self.put("memory/private/x.md", b"x")
        self.put(IGNORE_FILE, b"# private\nmemory/private/\nb.md\n")
        corpus = self.corpus()
        assert paths(corpus.discover().files) == ["MEMORY.md", "USER.md", "memory/sub/a.md", "sessions/s1.jsonl"]
        rules = {place.path: place.rule for place in corpus.excluded()}
        assert rules == {
            "memory/private/": ".memoryignore:2: memory/private/",
            "memory/b.md": ".memoryignore:3: b.md",
        }
        ignoring = [corpus.ignoring_rule(corpus.resolve(f"memory/{name}.md")) for name in ("b", "private/x", "sub/a")]
        assert ignoring == [".memoryignore:3: b.md", ".memoryignore:2: memory/private/", ""]
        discoverable = [corpus.is_discoverable(corpus.resolve(f"memory/{name}.md")) for name in ("b", "sub/a")]
        assert discoverable == [False, True]

    @pytest.mark.parametrize("content", [b"x" * (MOST_IGNORE_BYTES + 1), b"x\n" * 501])
    def test_files_next_to_an_unusable_memoryignore_are_hidden_and_not_deleted(self, content, synced):
        self.fill()
        synced.sync()
        self.put(IGNORE_FILE, content)
        corpus = self.corpus()
        found = corpus.discover()
        assert paths(found.files) == ["sessions/s1.jsonl"]
        assert [(failure.path, failure.source) for failure in found.failures] == [(IGNORE_FILE, Source.MEMORY)]
        assert "no new files next to it are indexed" in found.failures[0].error
        assert all(any(place.would_hold(path) for place in found.unseen) for path in ("MEMORY.md", "memory/sub/a.md"))
        plan = synced.engine.compare().plan
        assert (plan.removed, [(each.place, each.files) for each in plan.hidden]) == ((), [(".", 4)])
        assert not corpus.is_discoverable(corpus.resolve("memory/b.md"))
        assert corpus.excluded() == []
        with pytest.raises(IgnoreFileUnusable):
            corpus.ignoring_rule(corpus.resolve("memory/b.md"))

    @pytest.mark.parametrize("data", [b"", b"plain\n", b"\0\xff\r\n\xfe\0", "zażółć".encode(), b"x" * 3_000_000])
    def test_every_byte_is_read(self, data):
        self.put("memory/a.md", data)
        corpus = self.corpus()
        (file,) = corpus.discover().files
        for place in (file, corpus.resolve("memory/a.md")):
            assert corpus.read(place, len(data)) == (data, file.stat)
        assert file.stat.size_bytes == len(data)
        if data:
            with pytest.raises(FileTooLarge):
                corpus.read(file, len(data) - 1)

    def test_a_missing_file(self):
        self.put("memory/a.md", b"x")
        corpus = self.corpus()
        place = corpus.resolve("memory/missing.md")
        assert (corpus.stat([place, corpus.resolve("memory/a.md")])[0], corpus.stat_file(place)) == (None, None)
        with pytest.raises(FileNotFound) as error:
            corpus.read(place, MOST)
        assert error.value.metadata == {"path": "memory/missing.md"}
        assert error.value.message == "no file at 'memory/missing.md'"
        with pytest.raises(FileNotFound):
            corpus.open_transcript(corpus.transcript("missing.jsonl"))

    def test_a_deleted_file_is_known_to_be_gone(self):
        self.put("memory/a.md", b"x")
        self.put("memory/b.md", b"x")
        corpus = self.corpus()
        files = corpus.discover().files
        self.remove("memory/a.md")
        gone = [corpus.is_deleted(corpus.resolve(file.path), stored(file.stat).device) for file in files]
        assert gone == [True, False]

    def test_each_write_changes_the_stat(self):
        corpus, seen = self.corpus(), []
        for text in (b"one\n", b"two\n", b"two\n", b"three\n"):
            self.put("memory/a.md", text)
            (file,) = corpus.discover().files
            seen.append(file.stat)
            assert corpus.stat([corpus.resolve("memory/a.md")]) == [file.stat]
            assert not differs(file.stat, stored(file.stat))
        assert all(differs(after, stored(before)) for before, after in pairwise(seen))

    def test_paths_that_are_no_memory_are_refused(self):
        corpus = self.corpus()
        for path in ("", "notes.md", "memory/a.txt", "memory/../x.md", "/etc/passwd", "memory//a.md", IGNORE_FILE):
            for resolve in (corpus.resolve, corpus.locations, corpus.locations_for_reading):
                with pytest.raises(PathNotAllowed):
                    resolve(path)
        with pytest.raises(PathNotAllowed):
            corpus.resolve("DREAMS.md")
        (dreams,) = corpus.locations_for_reading("DREAMS.md")
        self.put("DREAMS.md", b"a dream\n")
        assert corpus.read(dreams, MOST)[0] == b"a dream\n"
        assert corpus.locations("memory/a.md") == [corpus.resolve("memory/a.md")]

    def test_a_name_that_is_no_transcript_is_refused(self):
        for name in ("a.txt", "a.md", "../a.jsonl", "a.jsonl.bak", ""):
            with pytest.raises(PathNotAllowed, match="not the name of a transcript"):
                self.corpus().transcript(name)
        with pytest.raises(PathNotAllowed, match="not a source"):
            self.corpus(indexes_sessions=False).transcript("a.jsonl")

    def test_notes_are_the_accepted_files_directly_in_memory(self):
        for name in ("2026-02-08", "2026-02-08-b", "2026-02-08-a", "x/2026-02-08-c"):
            self.put(f"memory/{name}.md", b"note\n")
        corpus = self.corpus()
        accepts = lambda name: name.startswith("2026-02-08-")  # noqa: E731 -- shorter than a function
        notes = corpus.notes(accepts)
        assert paths(notes) == ["memory/2026-02-08-a.md", "memory/2026-02-08-b.md"]
        assert [note.stat for note in notes] == corpus.stat([corpus.resolve(path) for path in paths(notes)])
        self.put(IGNORE_FILE, b"*-a.md\n")
        assert paths(corpus.notes(accepts)) == ["memory/2026-02-08-b.md"]
        assert paths(corpus.notes(accepts, ignored=True)) == ["memory/2026-02-08-a.md", "memory/2026-02-08-b.md"]
        self.put(IGNORE_FILE, b"x" * (MOST_IGNORE_BYTES + 1))
        assert corpus.notes(accepts) == []
        assert len(corpus.notes(accepts, ignored=True)) == 2

    def test_a_transcript_keeps_its_identity_while_it_grows(self):
        self.say("s1", *talk(0, 3))
        corpus = self.corpus()
        place = corpus.transcript("s1.jsonl")
        with corpus.open_transcript(place) as reader:
            before, position = reader.stat, list(reader.lines(START))[-1].after
            digest = reader.prefix_digest(position)
        assert corpus.stat([place]) == [before]
        self.say("s1", *talk(3, 2))
        with corpus.open_transcript(place, quickly=True) as reader:
            assert identity_of(reader.stat) == identity_of(before)
            assert reader.stat.size_bytes > before.size_bytes
            assert reader.prefix_digest(position) == digest
            assert reader.resume_position(position) == position
            assert texts(reader, position) == [f"remark {n} on herons and weirs" for n in (3, 4)]
            assert reader.count_lines_from(position) == 2

    def test_a_transcript_is_read_as_its_bytes_would_be(self):
        self.say("s1", *talk(0, 40))
        self.say("s1", said("user", "x" * 1_500_000), b"{}", said("assistant", "y" * 300_000))
        for number in range(30):
            self.say("s1", *talk(number, number % 4 + 1))
        corpus = self.corpus()
        data = b"".join(record + b"\n" for record in self.records("s1"))
        with (
            corpus.open_transcript(corpus.transcript("s1.jsonl")) as reader,
            TranscriptReader(io.BytesIO(data), reader.stat) as expected,
        ):
            assert reader.stat.size_bytes == len(data)
            lines = list(expected.lines(START))
            assert list(reader.lines(START)) == lines
            for line in (lines[0], lines[40], lines[-1]):
                assert reader.prefix_digest(line.after) == expected.prefix_digest(line.after)
                assert reader.ends_digest(line.after) == expected.ends_digest(line.after)
                assert list(reader.lines(line.after)) == list(expected.lines(line.after))
                assert reader.count_lines_from(line.after) == expected.count_lines_from(line.after)
            for number in (0, 1, 41, 42, 60, 10_000):
                assert reader.position_after(number) == expected.position_after(number)

    def test_a_digest_does_not_move_the_position_of_the_lines(self):
        """The buffer of the lines ends in the second half of the transcript."""
        self.say("s1", *talk(0, 3), *(said("user", f"{number} {'x' * 50_000}") for number in range(40)))
        corpus = self.corpus()
        place = corpus.transcript("s1.jsonl")
        with corpus.open_transcript(place) as reader, corpus.open_transcript(place) as other:
            lines = list(other.lines(START))
            resumed = reader.lines(lines[1].after)
            assert next(resumed) == lines[2]
            assert reader.prefix_digest(lines[2].after) == other.prefix_digest(lines[2].after)
            assert list(resumed) == lines[3:]

    def test_transcripts_are_listed_also_if_they_are_not_indexed(self):
        for session in ("s2", "s1"):
            self.say(session, *talk(0, 2))
        listed = self.corpus(indexes_sessions=False).list_transcripts()
        assert paths(listed) == ["sessions/s1.jsonl", "sessions/s2.jsonl"]
        assert [file.stat for file in listed] == [file.stat for file in self.corpus().discover().files]
        assert len({identity_of(file.stat) for file in listed}) == 2
        assert not self.corpus().has_session("s1")
        self.corpus().require_not_tombstoned(self.corpus().transcript("s1.jsonl"))

    @pytest.mark.parametrize("indexed", [True, False])
    def test_the_last_messages_of_a_session(self, indexed):
        self.say("s1", *talk(0, 10))
        last = self.corpus(indexes_sessions=indexed).last_messages
        for name in ("s1", "s1.jsonl"):
            session, messages = last(name, 3, lambda _: True)
            assert (session, [message.text for message in messages]) == (
                "s1",
                [f"remark {n} on herons and weirs" for n in (7, 8, 9)],
            )
        _, of_user = last("s1", 2, lambda message: message.role == USER)
        assert [message.text for message in of_user] == [f"remark {n} on herons and weirs" for n in (6, 8)]
        assert last("s1", 0, lambda _: True) == ("s1", [])
        assert last("s1", 3, lambda _: False) == ("s1", [])
        with pytest.raises(FileNotFound, match="no transcript 's2'"):
            last("s2", 3, lambda _: True)
        for name in ("", "../s1", ".", "a/b", "a\0b"):
            with pytest.raises(PathNotAllowed):
                last(name, 3, lambda _: True)

    def test_a_sync_reads_what_has_changed_and_nothing_else(self, synced):
        self.fill()
        read, _ = synced.sync()
        assert read == ["MEMORY.md", "USER.md", "memory/b.md", "memory/sub/a.md", "sessions/s1.jsonl"]
        assert synced.sync() == ([], 0)
        self.put("memory/b.md", b"THE TEXT OF memory/b.md\n")
        self.remove("memory/sub/a.md")
        assert synced.sync() == (["memory/b.md"], 1)
        plan = synced.engine.compare().plan
        assert (plan.pending, plan.doubtful, plan.retried) == (0, (), ())

    def test_a_sync_of_named_files_reads_and_removes_them(self, synced):
        self.fill()
        synced.sync()
        self.put("memory/b.md", b"changed\n")
        self.put("memory/new.md", b"new\n")
        self.remove("memory/sub/a.md")
        names = SyncScope.of_files("memory/b.md", "memory/new.md", "memory/sub/a.md")
        assert synced.sync(names) == (["memory/b.md", "memory/new.md"], 1)
        assert sorted(synced.rows()) == ["MEMORY.md", "USER.md", "memory/b.md", "memory/new.md", "sessions/s1.jsonl"]

    def test_a_sync_continues_a_transcript_that_has_grown_enough(self, synced):
        self.say("s1", *talk(0, 20))
        synced.sync()
        id_before = synced.rows()["sessions/s1.jsonl"].id
        state = partial(synced.store.writer().transcript, id_before)
        assert state().read.lines == 20
        self.say("s1", *talk(20, 2))
        assert synced.sync(DUE_SCOPE) == ([], 0)
        self.say("s1", *talk(22, 3))
        assert synced.sync(DUE_SCOPE) == (["sessions/s1.jsonl"], 0)
        assert synced.rows()["sessions/s1.jsonl"].id == id_before
        assert state().read.lines == 25

    def test_a_session_that_was_deleted_and_begun_again_is_read_from_its_beginning(self, synced):
        self.say("s1", *talk(0, 20))
        synced.sync()
        self.delete_session("s1")
        self.say("s1", *talk(50, 30))
        synced.sync()
        row = synced.rows()["sessions/s1.jsonl"]
        assert synced.store.writer().transcript(row.id).read.lines == 30
        with synced.store.read() as reader:
            found = reader.hashes_containing("remark 0 on herons")
        assert found == set()
