"""Copies of memory files and transcripts between a folder and the database."""

import os
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("psycopg")

from disks import small_disk, unwritable
from memoryd_server.errors import DiskFull, FileBusy, FileNotFound, PathNotAllowed
from memoryd_server.postgres import CopyOptions, FolderCopy, TranscriptCopy
from memoryd_server.postgres.copied_folder import CopiedFolder
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
    assert (report.others, report.is_complete) == (["memory/picture.png"], True)
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
    assert set(report.skipped) == {"memory/link.md", "memory/large.md"}
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


def test_the_error_for_a_missing_folder_names_it(new_memory, tmp_path):
    memory, missing_folder = new_memory(), tmp_path / "missing"
    for copy in (
        copy_of(memory, missing_folder),
        TranscriptCopy(memory.documents, memory.transcripts, missing_folder),
    ):
        for direction in (copy.into_database, copy.into_folder):
            with pytest.raises(FileNotFound, match=str(missing_folder)):
                direction(CopyOptions())
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(PathNotAllowed, match=str(file)):
        copy_of(memory, file).into_database(CopyOptions())


def test_special_files_and_names_that_are_not_utf8_are_skipped_and_named(new_memory, folder):
    os.mkfifo(folder / "memory" / "pipe.md")
    os.mkfifo(folder / "memory.md")
    (folder / "MEMORY.md").unlink()
    (folder / "MEMORY.md").symlink_to(folder / "USER.md")
    (folder / "memory" / "loop").symlink_to(folder / "memory")
    write(Path(os.fsdecode(os.fsencode(folder) + b"/memory/\xff.md")), b"text")
    write(folder / "memory" / ("d/" * 70) / "deep.md", b"text")
    report = copy_of(new_memory(), folder).into_database(CopyOptions())
    places = {
        "memory/pipe.md",
        "memory.md",
        "MEMORY.md",
        "memory/loop",
        "memory/\\xff.md",
        f"memory/{'/'.join('d' * 64)}",
    }
    assert set(report.skipped) == places
    assert (report.copied, report.is_complete) == (len(FILES) - 1, False)


def test_a_link_to_the_folder_is_followed(new_memory, folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    memory = new_memory()
    assert copy_of(memory, link).into_database(CopyOptions()).copied == len(FILES)
    assert copy_of(memory, link).into_folder(CopyOptions()).equal == len(FILES)


@pytest.mark.parametrize("seconds", [-5_000_000_000, -1, 0, 9_000_000_000, 15_000_000_000])
def test_every_time_of_a_file_is_copied_or_is_the_latest(new_memory, tmp_path, seconds):
    origin, out = tmp_path / "origin", tmp_path / "out"
    write(origin / "MEMORY.md", b"text")
    os.utime(origin / "MEMORY.md", ns=(seconds * 1_000_000_000 + 5,) * 2)
    time_ns = (origin / "MEMORY.md").stat().st_mtime_ns
    memory = new_memory()
    assert copy_of(memory, origin).into_database(CopyOptions()).is_complete
    out.mkdir()
    assert copy_of(memory, out).into_folder(CopyOptions()).is_complete
    assert (out / "MEMORY.md").stat().st_mtime_ns == min(time_ns, (1 << 63) - 1)


def test_a_file_that_is_changed_during_the_import_is_a_mismatch_or_a_conflict(new_memory, folder):
    memory, path = new_memory(), "memory/2026-01-02.md"

    def write_meanwhile(_done, _total):
        memory.put(path, b"written by an agent during the import")

    report = copy_of(memory, folder).into_database(CopyOptions(progress=write_meanwhile))
    assert report.mismatched == [path]
    report = copy_of(memory, folder).into_database(CopyOptions())
    assert report.conflicts == [path]
    assert memory.data(path) == b"written by an agent during the import"


def test_a_document_that_is_deleted_during_the_export_is_skipped(new_memory, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    for name in "ab":
        memory.put(f"memory/{name}.md", b"text")
    out.mkdir()

    def delete_other(_done, _total):
        with memory.documents.write() as rows:
            rows.run("DELETE FROM documents WHERE agent_id = %(agent)s AND path = 'memory/b.md'")

    report = copy_of(memory, out).into_folder(CopyOptions(progress=delete_other))
    assert list(report.skipped) == ["memory/b.md"]
    assert files_of(out) == {"memory/a.md": b"text"}


def test_files_that_the_file_system_refuses_are_skipped_and_others_are_exported(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    copy_of(memory, folder).into_database(CopyOptions())
    (out / "memory").mkdir(parents=True)
    (out / "MEMORY.md").mkdir()
    os.mkfifo(out / "USER.md")
    write(out / "memory" / "deep", b"a file where a folder is needed")
    report = copy_of(memory, out).into_folder(CopyOptions(replace=True))
    places = {"MEMORY.md", "USER.md", next(path for path in FILES if "deep" in path)}
    assert set(report.skipped) == places
    expected = {path: data for path, data in FILES.items() if path not in places}
    assert files_of(out) == {**expected, "memory/deep": b"a file where a folder is needed"}


def test_a_full_disk_ends_the_export_and_a_repeated_one_continues(new_memory, folder, tmp_path):
    memory = new_memory()
    write(folder / "memory" / "long.md", b"x" * 90_000)
    copy_of(memory, folder).into_database(CopyOptions())
    with small_disk(tmp_path / "out", 100) as out:
        with pytest.raises(DiskFull, match=r"memory/long\.md"):
            copy_of(memory, out).into_folder(CopyOptions())
        assert "memory/long.md" not in files_of(out)
        assert not [path for path in files_of(out) if path not in FILES]


def test_an_export_to_a_disk_that_cannot_be_written_names_each_file(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    copy_of(memory, folder).into_database(CopyOptions())
    out.mkdir()
    with unwritable(out):
        report = copy_of(memory, out).into_folder(CopyOptions())
    assert set(report.skipped) == set(FILES)
    assert "Read-only file system" in report.skipped["MEMORY.md"]


def test_a_replaced_file_keeps_its_permissions_and_gets_the_time_of_the_document(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    copy_of(memory, folder).into_database(CopyOptions())
    write(out / "MEMORY.md", b"private")
    (out / "MEMORY.md").chmod(0o600)
    assert copy_of(memory, out).into_folder(CopyOptions(replace=True)).is_complete
    status = (out / "MEMORY.md").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o600, TIME_NS)


def test_a_path_of_a_damaged_table_does_not_lead_out_of_the_folder(new_memory, tmp_path):
    memory, out = new_memory(), tmp_path / "a" / "out"
    out.mkdir(parents=True)
    for path in ("../escaped.md", "memory/../../escaped.md", str(tmp_path / "escaped.md"), "memory/x.txt"):
        memory.put(path, b"text")
    report = copy_of(memory, out).into_folder(CopyOptions(replace=True))
    assert (len(report.skipped), report.copied) == (4, 0)
    assert files_of(tmp_path) == {}


def test_two_exports_into_one_folder_at_the_same_time_are_refused(new_memory, folder, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    copy_of(memory, folder).into_database(CopyOptions())
    out.mkdir()
    refused = []

    def export_too(_done, _total):
        with pytest.raises(FileBusy, match=str(out)):
            copy_of(memory, out).into_folder(CopyOptions())
        refused.append(True)

    assert copy_of(memory, out).into_folder(CopyOptions(progress=export_too)).is_complete
    assert len(refused) == len(FILES)


def test_a_document_above_a_lowered_limit_is_not_replaced(new_memory, folder):
    memory = new_memory(max_file_bytes=100)
    memory.put("MEMORY.md", b"x" * 101)
    report = copy_of(memory, folder).into_database(CopyOptions(replace=True))
    assert list(report.skipped) == ["MEMORY.md"]
    assert memory.data("MEMORY.md") == b"x" * 101
    assert report.copied == len(FILES) - 1


def test_an_import_does_not_descend_below_64_folders(new_memory, tmp_path):
    deepest = tmp_path / "memory" / "/".join(["a"] * 63)
    write(deepest / "kept.md", b"text")
    # Each folder is opened from the root, so deeper ones would take longer and longer.
    write(deepest / "a" / "a" / "a" / "left out.md", b"text")
    report = copy_of(new_memory(), tmp_path).into_database(CopyOptions())
    assert (report.copied, list(report.skipped)) == (1, [f"memory/{'/'.join(['a'] * 64)}"])


def test_a_file_that_becomes_a_link_is_not_replaced(folder, tmp_path):
    (folder / "MEMORY.md").unlink()
    (folder / "MEMORY.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathNotAllowed, match="a link"):
        CopiedFolder(folder).replace("MEMORY.md", b"text", TIME_NS)
    assert (folder / "MEMORY.md").is_symlink()


def test_an_export_changes_no_permissions_of_files_to_which_another_program_links(new_memory, folder, tmp_path):
    memory, private = new_memory(), tmp_path / "private"
    memory.put("MEMORY.md", b"other")
    (folder / "MEMORY.md").chmod(0o777)
    private.write_bytes(b"text")
    private.chmod(0o600)
    draft = folder / ".memoryd-export"
    is_exported = threading.Event()

    def replace_draft():
        while not is_exported.is_set():
            with suppress(OSError):
                draft.unlink()
                draft.symlink_to(private)

    attacker = threading.Thread(target=replace_draft)
    attacker.start()
    try:
        for _ in range(100):
            copy_of(memory, folder).into_folder(CopyOptions(replace=True))
            with suppress(OSError):
                (folder / "MEMORY.md").unlink()
                (folder / "MEMORY.md").write_bytes(b"text")
                (folder / "MEMORY.md").chmod(0o777)
    finally:
        is_exported.set()
        attacker.join()
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.read_bytes() == b"text"
