"""Imports of conversations into the database."""

from datetime import timedelta

import pytest

pytest.importorskip("psycopg")

from imported import START, conversation, document
from memoryd_server.imports import ImportOptions, NoteImport, NoteOptions, SessionImport, import_all
from memoryd_server.imports.session_record import transcript
from memoryd_server.postgres import DatabaseNotes, DatabaseTranscripts, TranscriptRows
from memoryd_server.postgres.transcripts import TranscriptStream
from memoryd_server.writing import NewContent
from postgres_server import missing

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

MOST = 1 << 20
SESSION = "import-chatgpt-67d3f1a2-0000-8000-9000-000000000001"


def now_ms():
    return 1_700_000_000_000


@pytest.fixture
def memory(new_memory):
    return new_memory(max_file_bytes=MOST)


def effects(report):
    return {effect.value: count for effect, count in report.counts.items()}


def notes_of(memory):
    return DatabaseNotes(memory.documents, memory.writer, MOST, now_ms)


def import_notes(memory, *items, **options):
    target = NoteImport(notes_of(memory), (), NoteOptions(**{"most_bytes": MOST, **options}))
    return import_all(items, target, ImportOptions())


def import_sessions(memory, *items):
    store = DatabaseTranscripts(memory.documents, TranscriptRows(memory.documents, now_ms))
    return effects(import_all(items, SessionImport(store, ()), ImportOptions()))


def rows(memory, table="documents"):
    """The rows of a table, in any order."""
    with memory.documents.read() as found:
        return sorted(map(repr, found.all(f"SELECT * FROM {table} WHERE agent_id = %(agent)s")))


def test_a_conversation_becomes_a_document_with_its_time(memory):
    (path,) = import_notes(memory, conversation("a", "b")).paths
    store = notes_of(memory)
    assert store.paths("memory/imported/chatgpt") == [path]
    assert b"\n\nb\n" in store.read(path)
    with memory.documents.read() as found:
        ((mtime_ns,),) = found.all("SELECT mtime_ns FROM documents WHERE agent_id = %(agent)s")
    assert mtime_ns == int((START + timedelta(minutes=1)).timestamp()) * 1_000_000_000


def test_the_same_import_twice_changes_nothing(memory):
    items = [conversation("a", own="1"), conversation("b", own="2", start=None), document("text")]
    import_notes(memory, *items)
    before = rows(memory)
    assert effects(import_notes(memory, *items)) == {"unchanged": 3}
    assert rows(memory) == before
    import_sessions(memory, *items)
    before = rows(memory, "transcripts"), rows(memory, "transcript_parts")
    assert import_sessions(memory, *items) == {"unchanged": 2, "unsuitable": 1}
    assert (rows(memory, "transcripts"), rows(memory, "transcript_parts")) == before


def test_a_conversation_that_has_grown_replaces_its_document_and_the_history_keeps_the_old_one(memory):
    (path,) = import_notes(memory, conversation("a", "b")).paths
    before = notes_of(memory).read(path)
    assert effects(import_notes(memory, conversation("a", "b", "c", title="x"))) == {"updated": 1}
    assert b"\n\nc\n" in notes_of(memory).read(path)
    ((record, replaced),) = memory.records(path)
    assert replaced == before
    assert record.caller == "memoryd import"


def test_an_edited_document_is_kept_until_it_is_to_be_replaced(memory):
    (path,) = import_notes(memory, conversation("a", "b")).paths
    memory.write(path, NewContent(b"mine"))
    report = import_notes(memory, conversation("a", "b", "c"))
    assert (effects(report), list(report.conflicts)) == ({"conflict": 1}, [path])
    assert notes_of(memory).read(path) == b"mine"
    assert effects(import_notes(memory, conversation("a", "b", "c"), replace=True)) == {"updated": 1}


def test_an_older_export_and_a_dry_run_change_nothing(memory):
    import_notes(memory, conversation("a", "b", "c"))
    before = rows(memory)
    assert effects(import_notes(memory, conversation("a", "b"))) == {"older": 1}
    assert effects(import_notes(memory, conversation("a", "b", "c", "d"), dry_run=True)) == {"updated": 1}
    assert rows(memory) == before


def test_a_document_that_changed_since_it_was_read_is_not_replaced_or_deleted(memory):
    store = notes_of(memory)
    assert store.create("memory/imported/a.md", b"one", None)
    assert not store.create("memory/imported/a.md", b"two", None)
    assert not store.replace("memory/imported/a.md", b"two", bytes(32), None)
    assert not store.delete("memory/imported/a.md", bytes(32))
    assert store.read("memory/imported/a.md") == b"one"


def test_surplus_documents_of_a_shorter_conversation_are_deleted(memory):
    long = ["word " * 1_000] * 8
    assert len(import_notes(memory, conversation(*long), most_bytes=20_000).paths) > 3
    shorter = conversation(*long[:2], start=START + timedelta(days=1))
    assert effects(import_notes(memory, shorter, most_bytes=20_000)) == {"updated": 1}
    assert len(notes_of(memory).paths("memory/imported/chatgpt")) == 2


def test_a_transcript_is_extended_and_replaced_by_another_branch(memory):
    assert import_sessions(memory, conversation("a", "b")) == {"new": 1}
    grown = conversation("a", "b", "c" * 300_000)
    assert import_sessions(memory, grown) == {"updated": 1}
    with TranscriptStream(memory.documents, f"{SESSION}.jsonl") as stream:
        assert stream.readall() == transcript(grown)
    branch = conversation("a", "x", "y", "z")
    assert import_sessions(memory, branch) == {"updated": 1}
    with TranscriptStream(memory.documents, f"{SESSION}.jsonl") as stream:
        assert stream.readall() == transcript(branch)
    assert import_sessions(memory, grown) == {"older": 1}
