"""Copies of memory files and transcripts between a folder and the database."""

import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import FileNotFound
from memoryd_server.postgres import CopyOptions, FolderCopy, TranscriptCopy
from postgres_server import missing
from properties import examples

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

MAX_BYTES = 100_000
TIME_NS = 1_700_000_000_123_456_789
FILES = {
    "MEMORY.md": b"# Memory\r\n\r\nbytes \xff\xfe and \x00\n",
    "USER.md": b"",
    "DREAMS.md": b"a dream",
    ".memoryignore": b"memory/private/\n",
    "memory/2026-01-02.md": b"no line break at the end",
    "memory/private/left out.md": b"excluded from the index, not from copies\n",
    "memory/deep/er/\xc3\xa9t\xc3\xa9.md".encode("latin-1").decode(): b"text\n",
}


@pytest.fixture
def folder(tmp_path):
    """A workspace with every kind of file that is copied, and some that are not."""
    place = tmp_path / "workspace"
    for path, data in FILES.items():
        write(place / path, data)
    write(place / "memory" / "picture.png", b"png")
    write(place / "AGENTS.md", b"not memory")
    write(place / "memory" / ".openclaw-repair" / "old.md", b"a copy of OpenClaw's")
    return place


def write(file, data):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    os.utime(file, ns=(TIME_NS, TIME_NS))


def copy_of(memory, folder, max_bytes=MAX_BYTES):
    return FolderCopy(memory.documents, memory.writer, Path(folder), max_bytes)


def files_of(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in Path(folder).rglob("*")
        if file.is_file() and not file.is_symlink()
    }


def test_an_imported_folder_is_exported_byte_for_byte_with_its_times(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    report = copy_of(memory, folder).into_database(CopyOptions())
    assert (report.copied, report.verified, report.mismatched) == (len(FILES), len(FILES), [])
    assert list(report.skipped) == ["memory/picture.png"]
    out.mkdir()
    exported = copy_of(memory, out).into_folder(CopyOptions())
    assert exported.is_complete
    assert files_of(out) == FILES
    assert {(out / path).stat().st_mtime_ns for path in FILES} == {TIME_NS}


def test_a_repeated_copy_changes_nothing_and_an_interrupted_one_continues(new_memory, folder, tmp_path):
    memory = new_memory()
    first = tmp_path / "first"
    for path in list(FILES)[:3]:
        write(first / path, FILES[path])
    copy_of(memory, first).into_database(CopyOptions())
    report = copy_of(memory, folder).into_database(CopyOptions())
    assert (report.copied, report.equal) == (len(FILES) - 3, 3)
    versions = {file.path: file.stat for file in memory.corpus.discover().files}
    again = copy_of(memory, folder).into_database(CopyOptions(replace=True))
    assert (again.copied, again.replaced, again.equal) == (0, 0, len(FILES))
    assert {file.path: file.stat for file in memory.corpus.discover().files} == versions


def test_a_file_that_differs_is_kept_unless_it_may_be_replaced(new_memory, folder):
    memory = new_memory()
    memory.put("memory/2026-01-02.md", b"what the agent has learned since")
    kept = copy_of(memory, folder).into_database(CopyOptions())
    assert kept.conflicts == ["memory/2026-01-02.md"]
    assert not kept.is_complete
    assert memory.data("memory/2026-01-02.md") == b"what the agent has learned since"
    replaced = copy_of(memory, folder).into_database(CopyOptions(replace=True))
    assert (replaced.replaced, replaced.conflicts) == (1, [])
    assert memory.data("memory/2026-01-02.md") == FILES["memory/2026-01-02.md"]
    before = sha256(b"what the agent has learned since").digest()
    assert memory.history.content(before) == b"what the agent has learned since"


def test_an_export_keeps_files_that_differ_and_replaces_them_on_request(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    copy_of(memory, folder).into_database(CopyOptions())
    write(out / "MEMORY.md", b"edited by hand")
    write(out / "notes.txt", b"left alone")
    kept = copy_of(memory, out).into_folder(CopyOptions())
    assert kept.conflicts == ["MEMORY.md"]
    assert (out / "MEMORY.md").read_bytes() == b"edited by hand"
    assert copy_of(memory, out).into_folder(CopyOptions(replace=True)).is_complete
    assert files_of(out) == {**FILES, "notes.txt": b"left alone"}


def test_a_dry_run_counts_and_copies_nothing(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    report = copy_of(memory, folder).into_database(CopyOptions(dry_run=True))
    assert (report.copied, report.verified) == (len(FILES), 0)
    assert not memory.corpus.discover().files
    copy_of(memory, folder).into_database(CopyOptions())
    out.mkdir()
    assert copy_of(memory, out).into_folder(CopyOptions(dry_run=True)).copied == len(FILES)
    assert files_of(out) == {}


def test_links_and_large_files_are_skipped_and_named(new_memory, folder, tmp_path):
    memory = new_memory()
    secret = tmp_path / "secret.md"
    secret.write_text("outside of the workspace")
    (folder / "memory" / "link.md").symlink_to(secret)
    write(folder / "memory" / "large.md", b"x" * (MAX_BYTES + 1))
    report = copy_of(memory, folder).into_database(CopyOptions())
    assert set(report.skipped) == {"memory/link.md", "memory/large.md", "memory/picture.png"}
    assert b"outside" not in b"".join(memory.data(file.path) for file in memory.corpus.discover().files)


def test_an_export_does_not_write_through_a_link(new_memory, folder, tmp_path):
    memory, out, elsewhere = new_memory(), tmp_path / "out", tmp_path / "elsewhere"
    copy_of(memory, folder).into_database(CopyOptions())
    out.mkdir()
    elsewhere.mkdir()
    (out / "memory").symlink_to(elsewhere)
    report = copy_of(memory, out).into_folder(CopyOptions(replace=True))
    assert not report.is_complete
    assert list(elsewhere.iterdir()) == []


def test_a_missing_folder_is_an_error_and_deletes_nothing(new_memory, tmp_path):
    memory = new_memory()
    memory.put("MEMORY.md", b"kept")
    with pytest.raises(FileNotFound):
        copy_of(memory, tmp_path / "missing").into_database(CopyOptions())
    assert memory.data("MEMORY.md") == b"kept"


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in {".", ".."} and len(name.encode()) < 200 and "\\" not in name
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, st.binary(max_size=2_000), max_size=6))
def test_any_names_and_bytes_survive_both_ways(new_memory, tmp_path_factory, contents):
    base = tmp_path_factory.mktemp("copies")
    origin, out = base / "origin", base / "out"
    for name, data in contents.items():
        write(origin / "memory" / f"{name}.md", data)
    origin.mkdir(exist_ok=True)
    out.mkdir()
    memory = new_memory(agent=f"copies-{base.name}")
    assert copy_of(memory, origin).into_database(CopyOptions()).is_complete
    assert copy_of(memory, out).into_folder(CopyOptions()).is_complete
    assert files_of(out) == files_of(origin)


def test_transcripts_are_copied_both_ways_and_continue_where_they_ended(new_memory, tmp_path):
    memory, origin, out = new_memory(), tmp_path / "sessions", tmp_path / "out"
    lines = b"".join(b'{"type": "message", "number": %d}\n' % number for number in range(30_000))
    write(origin / "one.jsonl", lines)
    write(origin / "two.jsonl", b'{"a": 1}\n{"half": ')
    write(origin / "one.jsonl.reset.2026-01-01T00-00-00.000Z", b"{}\n")
    copy = TranscriptCopy(memory.documents, memory.transcripts, origin)
    report = copy.into_database(CopyOptions())
    assert report.copied == 2
    assert set(report.skipped) == {"two.jsonl", "one.jsonl.reset.2026-01-01T00-00-00.000Z"}
    write(origin / "two.jsonl", b'{"a": 1}\n{"half": 2}\n')
    write(origin / "one.jsonl", lines + b'{"more": true}\n')
    again = copy.into_database(CopyOptions())
    assert (again.copied, again.conflicts) == (2, [])
    assert copy.into_database(CopyOptions()).equal == 2
    out.mkdir()
    assert TranscriptCopy(memory.documents, memory.transcripts, out).into_folder(CopyOptions()).is_complete
    assert files_of(out) == {name: (origin / name).read_bytes() for name in ("one.jsonl", "two.jsonl")}


def test_a_transcript_that_differs_is_a_conflict(new_memory, tmp_path):
    memory, origin = new_memory(), tmp_path / "sessions"
    memory.transcripts.append("one", [b'{"pushed": 1}'])
    write(origin / "one.jsonl", b'{"other": 1}\n')
    copy = TranscriptCopy(memory.documents, memory.transcripts, origin)
    assert copy.into_database(CopyOptions(replace=True)).conflicts == ["one.jsonl"]
    assert copy.into_folder(CopyOptions(replace=True)).conflicts == ["one.jsonl"]
    assert (origin / "one.jsonl").read_bytes() == b'{"other": 1}\n'
