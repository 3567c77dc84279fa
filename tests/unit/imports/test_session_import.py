"""Imports of conversations as transcripts in a folder."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from imported import START, conversation, document
from memoryd_server.errors import FileBusy
from memoryd_server.imports import FolderTranscripts, ImportOptions, SessionImport, import_all
from memoryd_server.imports.note import note_key
from memoryd_server.imports.session_record import session_name
from memoryd_server.model import Origin
from memoryd_server.sources import START as BEGINNING
from memoryd_server.sources import TranscriptReader, list_transcripts, read_generated_sessions, session_id_problem
from secret_corpus import EXAMPLES

OWN = "67d3f1a2-0000-8000-9000-000000000001"


class Imports:
    """A folder of sessions into which conversations are imported."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *items, forgotten=frozenset(), dry_run=False):
        """Import items, and return the number of each effect."""
        report = self.report(*items, forgotten=forgotten, dry_run=dry_run)
        return {effect.value: count for effect, count in report.counts.items()}

    def report(self, *items, forgotten=frozenset(), dry_run=False):
        store = FolderTranscripts(self.folder, dry_run=dry_run)
        with store.locked():
            return import_all(items, SessionImport(store, forgotten, dry_run=dry_run), ImportOptions())

    def size(self):
        """The size of all transcripts in bytes."""
        return sum(len(data) for data, _ in self.files().values())

    def files(self):
        return {path.name: (path.read_bytes(), path.stat().st_ino) for path in sorted(self.folder.iterdir())}

    def messages(self):
        """The messages of the only transcript, as memoryd indexes them."""
        (file,) = list_transcripts(self.folder)
        with TranscriptReader.open(file.source_file) as reader:
            return [line.message for line in reader.lines(BEGINNING) if line.message]


@pytest.fixture
def imports(tmp_path):
    return Imports(tmp_path / "state" / "sessions")


def test_a_conversation_becomes_a_transcript_that_memoryd_reads(imports):
    assert imports.run(conversation("where?", "on the\nNAS")) == {"new": 1}
    assert list(imports.files()) == [f"import-chatgpt-{OWN}.jsonl"]
    assert [message.labelled for message in imports.messages()] == ["User: where?", "Assistant: on the NAS"]
    assert [message.origin for message in imports.messages()] == [Origin.OWNER, Origin.AGENT]
    (path,) = imports.folder.iterdir()
    assert path.stat().st_mtime_ns == int((START + timedelta(minutes=1)).timestamp()) * 1_000_000_000
    assert (path.stat().st_mode & 0o777, imports.folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert read_generated_sessions(imports.folder) == (frozenset(), "")


def test_the_same_import_twice_changes_nothing(imports):
    items = [conversation("a", own="1"), conversation("b", own="2", start=None)]
    imports.run(*items)
    before = imports.files()
    assert imports.run(*items) == {"unchanged": 2}
    assert imports.files() == before


def test_a_conversation_that_has_grown_extends_its_transcript(imports):
    imports.run(conversation("a", "b"))
    (before,) = imports.files().values()
    assert imports.run(conversation("a", "b", "c", title="Another title")) == {"updated": 1}
    (after,) = imports.files().values()
    assert after[0].startswith(before[0])
    assert after[1] == before[1]
    assert imports.messages()[-1].text == "c"


def test_an_extension_that_was_interrupted_is_completed(imports):
    imports.run(conversation("a", "b", "c"))
    (path,) = imports.folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert imports.run(conversation("a", "b", "c")) == {"updated": 1}
    assert path.read_bytes() == whole


def test_another_branch_replaces_the_transcript_if_it_is_newer(imports):
    imports.run(conversation("a", "b", "c"))
    assert imports.run(conversation("a", "x")) == {"older": 1}
    assert imports.run(conversation("a", "x", "y")) == {"updated": 1}
    assert [message.text for message in imports.messages()] == ["a", "x", "y"]
    assert len(imports.files()) == 1


def test_an_older_export_changes_nothing(imports):
    imports.run(conversation("a", "b", "c"))
    before = imports.files()
    assert imports.run(conversation("a", "b")) == {"older": 1}
    assert imports.files() == before


def without_last_time(item):
    *others, last = item.messages
    return replace(item, messages=(*others, replace(last, time=None)))


def test_an_older_export_changes_nothing_if_the_last_message_has_no_time(imports):
    imports.run(without_last_time(conversation("a", "b", "c", "d")))
    before = imports.files()
    assert imports.run(conversation("a", "b")) == {"older": 1}
    assert imports.files() == before


@pytest.mark.parametrize("is_newer_first", [True, False])
def test_two_states_in_one_export_do_not_alternate_if_the_last_message_has_no_time(imports, is_newer_first):
    newer, older = without_last_time(conversation("a", "b", "c", "d")), conversation("a", "x")
    items = (newer, older) if is_newer_first else (older, newer)
    imports.run(*items)
    before = imports.files()
    assert imports.run(*items) == {"unchanged": 1, "older": 1}
    assert imports.files() == before
    assert [message.text for message in imports.messages()] == ["a", "b", "c", "d"]


def test_forgotten_sessions_and_documents_are_not_written(imports):
    forgotten = frozenset({f"import-chatgpt-{OWN}"})
    assert imports.run(conversation("a"), document("text"), forgotten=forgotten) == {"forgotten": 1, "unsuitable": 1}
    assert imports.files() == {}


def test_a_dry_run_writes_nothing(imports):
    assert imports.run(conversation("a"), dry_run=True) == {"new": 1}
    assert not imports.folder.exists()


@pytest.mark.parametrize(
    "states",
    [
        [("a",), ("a", "b")],
        [("a", "b"), ("a",), ("a", "b")],
        [("a", "b"), ("x", "y")],
        [("a", "b"), ("a", "x", "y"), ("a", "x", "y")],
    ],
)
@pytest.mark.parametrize("stored", [(), ("a",), ("old", "b")])
def test_a_dry_run_reports_what_the_import_does(imports, stored, states):
    if stored:
        imports.run(conversation(*stored))
    items = [conversation(*texts) for texts in states]
    pretended = imports.report(*items, dry_run=True)
    assert pretended == imports.report(*items)


def test_the_size_of_a_replaced_transcript_is_its_new_size_and_of_an_extended_one_that_of_the_rest(imports):
    imports.run(conversation("a long text " * 100, "b"))
    assert imports.report(conversation("x", "y", "z")).written_bytes == (size := imports.size())
    assert imports.report(conversation("x", "y", "z", "more")).written_bytes == imports.size() - size


def test_links_are_not_followed(imports, tmp_path):
    target = tmp_path / "target"
    target.write_text("x")
    imports.folder.mkdir(parents=True)
    (imports.folder / f"import-chatgpt-{OWN}.jsonl").symlink_to(target)
    assert imports.run(conversation("a")) == {"conflict": 1}
    assert target.read_text() == "x"


def test_two_imports_into_one_folder_do_not_run_at_the_same_time(imports):
    with FolderTranscripts(imports.folder).locked(), pytest.raises(FileBusy):
        imports.run(conversation("a"))


@pytest.mark.parametrize(
    "own", ["../../x", "a/b", "x.jsonl.reset.1", "é", "x" * 200, "sk-abcdefghijklmnop1234", ".", "-", " "]
)
def test_an_id_that_cannot_be_in_a_name_is_replaced_by_its_hash(own):
    name = session_name(conversation("a", own=own))
    assert session_id_problem(name) == ""
    assert len(name) == len("import-chatgpt-") + 16
    assert name != session_name(conversation("a", own=f"{own}2"))


OTHER = "0a1b2c3d-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (conversation("a", origin="claude", own=f"code-{OTHER}"), conversation("a", origin="claude-code", own=OTHER)),
        (conversation("a", origin="claude", own=f"CODE-{OTHER}"), conversation("a", origin="claude-code", own=OTHER)),
        (conversation("a", own="a/b"), conversation("a", own=note_key(conversation("a", own="a/b"))[:16])),
    ],
)
def test_two_conversations_never_have_one_transcript(imports, one, another):
    assert session_name(one).lower() != session_name(another).lower()
    assert imports.run(one, another) == {"new": 2}
    assert imports.run(one, another) == {"unchanged": 2}
    assert len(imports.files()) == 2


@pytest.mark.parametrize("own", [OWN, OTHER, "x_Y-1", "codex-1", "0" * 15, "0" * 32])
@pytest.mark.parametrize("origin", ["chatgpt", "claude", "claude-code", "codex"])
def test_the_name_of_a_transcript_ends_with_an_ordinary_id(origin, own):
    assert session_name(conversation("a", origin=origin, own=own)) == f"import-{origin}-{own}"


def test_secrets_are_masked(imports):
    imports.run(conversation(*[example.text for example in EXAMPLES]))
    ((data, _),) = imports.files().values()
    text = json.dumps([json.loads(line) for line in data.splitlines()], ensure_ascii=False)
    shown = [example for example in EXAMPLES if json.dumps(example.secret, ensure_ascii=False)[1:-1] in text]
    assert len(shown) / len(EXAMPLES) < 0.05
