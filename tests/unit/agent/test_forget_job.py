"""Forgetting on a real index with transcripts in it: what goes, what stays, and what no sync brings back."""

import time
from types import SimpleNamespace

import pytest

from documents_fixture import documents_of
from memoryd_server.agent.forget import ForgetJob
from memoryd_server.agent.requests import ForgetRequest
from memoryd_server.errors import FileNotFound, FileReplaced, IndexReadOnly
from memoryd_server.model import Source
from memoryd_server.sources.forgotten import ForgottenFile, ForgottenSources
from memoryd_server.sync.progress import SyncMode
from transcript_fixture import TranscriptFixture, assistant, user

WORD = "xylophonographer"


class ForgetFixture(TranscriptFixture):
    """Hold an index from which files and sessions can be forgotten, without embeddings."""

    def __init__(self, folder):
        super().__init__(folder)
        self.forgotten = ForgottenSources(ForgottenFile(folder / "state" / "main.forgotten"))
        self.forgotten.load()
        self.is_forgotten = self.forgotten.has_session

    def forget(self, **request):
        config = SimpleNamespace(
            sync=SimpleNamespace(max_file_bytes=self.max_file_bytes),
            sessions_folder=self.sessions,
            chunk_tokens=400,
            chunk_overlap=80,
            has_replicas=False,
        )
        job = ForgetJob(
            self.store, documents_of(self), self.forgotten, lambda: config, lambda: None, now_ns=self.now_ns
        )
        receipt = job.carry_out(ForgetRequest(**request), lambda: False)
        assert job.purge(lambda: False)
        return receipt

    def chunks(self):
        with self.store.read() as reader:
            return reader.counts().chunks

    def on_disk(self):
        """Whether the word stands anywhere beside the transcripts."""
        files = [file for file in self.path.parent.rglob("*") if file.is_file() and self.sessions not in file.parents]
        return any(WORD[:11].encode() in file.read_bytes().lower() for file in files)


@pytest.fixture
def index(tmp_path):
    index = ForgetFixture(tmp_path).open()
    yield index
    index.close()


@pytest.fixture
def talked(index):
    """Two sessions, one of them rotated, and a note."""
    index.say("abc.jsonl", user(f"where is the {WORD}?"), assistant("at the mill"))
    index.rotate("abc.jsonl", "reset.2026-02-08")
    index.say("abc.jsonl", user(f"the {WORD} is back"))
    index.say("def.jsonl", user("the ferry sails at dawn"))
    index.write("memory/note.md", "the harbour is calm")
    index.sync()
    assert len(index.found(WORD)) == 2
    assert index.on_disk()
    return index


@pytest.mark.faults
def test_a_file_that_an_editor_replaces_after_it_was_read_is_kept_and_stays_indexed(talked):
    note = talked.workspace / "memory" / "note.md"

    def save_by_renaming():
        # The clock is read after the file.
        beside = note.with_name("beside.tmp")
        beside.write_text("the harbour is calm, and the heron nests")
        beside.rename(note)
        return time.time_ns()

    talked.now_ns = save_by_renaming
    with pytest.raises(FileReplaced, match="is kept"):
        talked.forget(path="memory/note.md", delete_source=True)
    talked.now_ns = time.time_ns
    assert [file.name for file in note.parent.iterdir()] == ["note.md"]
    assert talked.found("harbour") == ["memory/note.md"]
    talked.sync()
    assert talked.found("heron") == ["memory/note.md"]
    assert talked.forget(path="memory/note.md", delete_source=True).source_files == 1
    assert talked.found("harbour") == []


def test_a_file_that_a_crash_during_its_deletion_hid_is_deleted_by_the_repeated_call(talked):
    for hidden in (talked.workspace / "memory" / "note.md", talked.sessions / "def.jsonl"):
        hidden.rename(hidden.with_name(f".{hidden.name}.memoryd-deleting"))
    assert talked.forget(path="memory/note.md", delete_source=True).source_files == 1
    assert talked.forget(session_id="def", delete_source=True).source_files == 1
    assert list((talked.workspace / "memory").iterdir()) == []
    assert not list(talked.sessions.glob("*def*"))


def test_a_session_goes_with_its_rotated_transcripts(talked):
    before = talked.chunks()
    receipt = talked.forget(session_id="abc")
    assert (receipt.chunks, receipt.keyword_entries, receipt.source_files) == (2, 2, 0)
    assert talked.chunks() == before - 2
    assert not talked.on_disk()
    assert talked.found(WORD) == []
    assert talked.found("ferry") == ["sessions/def.jsonl"]
    assert len(list(talked.sessions.iterdir())) == 3


@pytest.mark.parametrize("mode", SyncMode)
def test_no_sync_brings_it_back_however_it_goes_on(talked, mode):
    talked.forget(session_id="abc")
    talked.sync(mode)
    talked.say("abc.jsonl", user(f"and the {WORD} again"))
    talked.sync(mode)
    talked.rotate("abc.jsonl", "deleted.2026-02-09")
    talked.say("abc.jsonl", user(f"one more {WORD}"))
    talked.sync(mode)
    assert talked.found(WORD) == []
    assert not talked.on_disk()
    assert talked.found("ferry") == ["sessions/def.jsonl"]


def test_a_session_that_is_deleted_leaves_nothing_but_the_others(talked):
    receipt = talked.forget(session_id="abc", delete_source=True)
    assert (receipt.chunks, receipt.source_files) == (2, 2)
    assert [file.name for file in talked.sessions.iterdir()] == ["def.jsonl"]
    assert not talked.on_disk()
    assert not talked.forgotten.has_session("abc")


def test_rows_of_a_session_whose_transcripts_are_gone_are_forgotten_all_the_same(talked):
    for file in talked.sessions.glob("abc*"):
        file.unlink()
    assert talked.forget(session_id="abc").chunks == 2
    assert not talked.on_disk()


def test_an_unknown_session_is_reported(talked):
    with pytest.raises(FileNotFound, match="xyz"):
        talked.forget(session_id="xyz")
    assert not talked.forgotten.has_session("xyz")


def test_an_empty_session_is_forgotten_before_it_says_anything(index):
    index.say("abc.jsonl", "")
    assert index.forget(session_id="abc").chunks == 0
    index.say("abc.jsonl", user(WORD))
    index.sync()
    assert index.found(WORD) == []


def test_a_link_among_the_transcripts_is_left_alone(talked, tmp_path):
    (tmp_path / "outside.jsonl").write_text(user("outside"))
    (talked.sessions / "abc.jsonl.reset.9").symlink_to(tmp_path / "outside.jsonl")
    assert talked.forget(session_id="abc", delete_source=True).source_files == 2
    assert (tmp_path / "outside.jsonl").exists()
    assert (talked.sessions / "abc.jsonl.reset.9").is_symlink()


def test_a_text_that_was_just_deleted_from_a_file_is_overwritten_before_the_answer(talked):
    talked.write("memory/note.md", "the secret is 4711")
    talked.sync()
    talked.write("memory/note.md", "the harbour is calm")
    talked.sync()
    assert talked.store.has_deleted_text
    # `agent.forget.forget` waits for the purge if the receipt says so.
    assert talked.forget(text="4711").purge_pending
    assert not talked.forget(text="4711").purge_pending


def test_many_chunks_are_counted_as_many(index):
    index.write("memory/long.md", "\n\n".join(f"## Part {n}\n\n{WORD} {'word ' * 200}" for n in range(30)))
    index.sync()
    chunks = index.chunks()
    receipt = index.forget(path="memory/long.md")
    assert receipt.chunks == receipt.keyword_entries == chunks > 20
    assert (index.chunks(), receipt.vectors) == (0, 0)
    assert index.integrity()[0] == [("ok",)]


def test_a_crash_between_the_steps_is_made_good_by_the_retry(talked, monkeypatch):
    from memoryd_server.sqlite.writer import SqliteWriter  # noqa: PLC0415 -- what crashes

    def crash(*_):
        raise MemoryError

    monkeypatch.setattr(SqliteWriter, "write", crash)
    for request in ({"path": "memory/note.md"}, {"session_id": "abc"}):
        with pytest.raises(MemoryError):
            talked.forget(**request)
    monkeypatch.undo()
    assert talked.forget(path="memory/note.md").chunks == 1
    assert talked.forget(session_id="abc").chunks == 2
    talked.sync()
    assert talked.found("harbour") == talked.found(WORD) == []


def test_an_index_that_cannot_be_written_keeps_the_source_too(talked, monkeypatch):
    monkeypatch.setattr(talked.store, "_refusal", IndexReadOnly("read-only"))
    for request in ({"path": "memory/note.md"}, {"session_id": "abc"}):
        with pytest.raises(IndexReadOnly):
            talked.forget(**request, delete_source=True)
    assert (talked.workspace / "memory" / "note.md").exists()
    assert len(list(talked.sessions.iterdir())) == 3


def test_a_file_that_is_too_large_to_index_can_be_deleted(index):
    index.max_file_bytes = 10
    file = index.write("memory/large.md", "x" * 20)
    index.sync()
    assert index.forget(path="memory/large.md").source_files == 0
    assert file.exists()
    assert index.forget(path="memory/large.md", delete_source=True).source_files == 1
    assert not file.exists()
    with index.store.read() as reader:
        assert (Source.MEMORY, "memory/large.md") not in reader.files()
