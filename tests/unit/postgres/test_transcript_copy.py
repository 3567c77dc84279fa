"""Copies of transcripts between a folder and the database."""

import os

import pytest

pytest.importorskip("psycopg")

from memoryd_server.errors import IndexUnavailable
from memoryd_server.postgres import CopyOptions, TranscriptCopy
from memoryd_server.sources import MOST_LINE_BYTES
from postgres_server import missing
from unit.postgres.test_folder_copy import TIME_NS, files_of, write

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]


def copy_of(memory, folder):
    return TranscriptCopy(memory.documents, memory.transcripts, folder)


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


def test_a_longer_transcript_at_the_destination_is_equal(new_memory, tmp_path):
    memory, origin = new_memory(), tmp_path / "sessions"
    memory.transcripts.append("one", [b'{"a": 1}', b'{"a": 2}'])
    write(origin / "one.jsonl", b'{"a": 1}\n')
    assert copy_of(memory, origin).into_database(CopyOptions()).equal == 1
    write(origin / "one.jsonl", b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    report = copy_of(memory, origin).into_folder(CopyOptions())
    assert (report.equal, report.is_complete) == (1, True)
    assert (origin / "one.jsonl").read_bytes() == b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'


def test_times_are_copied(new_memory, tmp_path):
    memory, origin, out = new_memory(), tmp_path / "sessions", tmp_path / "out"
    write(origin / "one.jsonl", b'{"a": 1}\n')
    copy_of(memory, origin).into_database(CopyOptions())
    out.mkdir()
    copy_of(memory, out).into_folder(CopyOptions())
    assert (out / "one.jsonl").stat().st_mtime_ns == TIME_NS


def test_a_dry_run_counts_and_copies_nothing(new_memory, tmp_path):
    memory, origin, out = new_memory(), tmp_path / "sessions", tmp_path / "out"
    write(origin / "one.jsonl", b'{"a": 1}\n')
    out.mkdir()
    dry = CopyOptions(dry_run=True)
    assert copy_of(memory, origin).into_database(dry).copied == 1
    assert copy_of(memory, out).into_folder(dry).copied == 0
    copy_of(memory, origin).into_database(CopyOptions())
    report = copy_of(memory, out).into_folder(dry)
    assert (report.copied, report.copied_bytes, report.verified) == (1, 9, 0)
    assert files_of(out) == {}
    assert copy_of(memory, origin).into_folder(dry).equal == 1
    write(origin / "one.jsonl", b'{"a"')
    assert copy_of(memory, origin).into_folder(dry).copied == 1
    assert files_of(origin) == {"one.jsonl": b'{"a"'}


def test_a_transcript_is_copied_up_to_a_line_that_is_too_long(new_memory, tmp_path):
    memory, origin, out = new_memory(), tmp_path / "sessions", tmp_path / "out"
    write(origin / "endless.jsonl", b'{"a": 1}\n' + b"x" * (MOST_LINE_BYTES + 1) + b'\n{"a": 2}\n')
    longest = b'{"a": "' + b"x" * (MOST_LINE_BYTES - 10) + b'"}\n'
    assert len(longest) == MOST_LINE_BYTES
    write(origin / "longest.jsonl", longest)
    report = copy_of(memory, origin).into_database(CopyOptions())
    assert list(report.skipped) == ["endless.jsonl"]
    assert str(MOST_LINE_BYTES) in report.skipped["endless.jsonl"]
    assert (report.copied, report.mismatched) == (2, [])
    out.mkdir()
    assert copy_of(memory, out).into_folder(CopyOptions()).is_complete
    assert files_of(out) == {"endless.jsonl": b'{"a": 1}\n', "longest.jsonl": longest}


def test_files_that_are_no_regular_files_are_neither_written_nor_waited_for(new_memory, tmp_path):
    memory, out, secret = new_memory(), tmp_path / "out", tmp_path / "secret"
    for name in ("link", "pipe", "folder", "fine"):
        memory.transcripts.append(name, [b'{"a": 1}'])
    (out / "folder.jsonl").mkdir(parents=True)
    os.mkfifo(out / "pipe.jsonl")
    secret.write_bytes(b"")
    (out / "link.jsonl").symlink_to(secret)
    report = copy_of(memory, out).into_folder(CopyOptions())
    assert set(report.skipped) == {"link.jsonl", "pipe.jsonl", "folder.jsonl"}
    assert secret.read_bytes() == b""
    assert (out / "fine.jsonl").read_bytes() == b'{"a": 1}\n'


def test_a_name_of_a_damaged_table_does_not_lead_out_of_the_folder(new_memory, tmp_path):
    memory, out = new_memory(), tmp_path / "a" / "out"
    out.mkdir(parents=True)
    memory.transcripts.append("one", [b'{"a": 1}'])
    with memory.documents.write() as rows:
        for table in ("transcripts", "transcript_parts"):
            rows.run(f"UPDATE {table} SET name = '../one.jsonl' WHERE agent_id = %(agent)s")
    report = copy_of(memory, out).into_folder(CopyOptions())
    assert list(report.skipped) == ["../one.jsonl"]
    assert files_of(tmp_path) == {}


def test_a_transcript_that_is_deleted_during_the_export_leaves_no_file(new_memory, tmp_path):
    memory, out = new_memory(), tmp_path / "out"
    lines = [b'{"a": "%s"}' % (b"x" * 1_000)] * 3_000
    memory.transcripts.append("a", lines)
    memory.transcripts.append("b", lines)
    out.mkdir()
    deleted = CopyOptions(progress=lambda _done, _total: memory.transcripts.delete_session("b"))
    report = copy_of(memory, out).into_folder(deleted)
    assert list(report.skipped) == ["b.jsonl"]
    assert list(files_of(out)) == ["a.jsonl"]


def test_a_lost_database_is_an_error_and_not_a_skipped_file(new_memory, postgres_module, tmp_path):
    memory = new_memory(database=postgres_module.database(url=f"postgresql://nobody@/none?host={tmp_path}"))
    write(tmp_path / "sessions" / "one.jsonl", b'{"a": 1}\n')
    with pytest.raises(IndexUnavailable):
        copy_of(memory, tmp_path / "sessions").into_database(CopyOptions())
