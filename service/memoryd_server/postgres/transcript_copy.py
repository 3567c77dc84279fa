"""TranscriptCopy: copies the transcripts of an agent from a folder into the database, or back.

A transcript only grows, so a repeated copy continues at the end of what is already copied.
"""

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from memoryd_server.errors import FileNotFound, PathNotAllowed, TranscriptChanged
from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.postgres.copied_folder import open_folder
from memoryd_server.postgres.copy_report import LATEST_NS, CopyOptions, CopyReport, skipping
from memoryd_server.postgres.transcripts import TranscriptRows, TranscriptStream, list_transcripts, stat_transcripts
from memoryd_server.sources import (
    MOST_LINE_BYTES,
    TranscriptFile,
    is_rotated,
    open_file,
    session_id_problem,
)
from memoryd_server.sources import list_transcripts as list_files
from memoryd_server.sources import session_id as session_of

_STEP_BYTES: Final = 1 << 20

_UNFINISHED: Final = "its last line has no line break yet, and was not copied"
_TOO_LONG: Final = f"a line has more than {MOST_LINE_BYTES} bytes; only the lines before it were copied"


class TranscriptCopy:
    """Copies the transcripts of one agent between a folder and the database. Blocks.

    If a transcript has grown, the new records are appended to its copy; one that is longer at its destination counts as
    equal. Archives and rotated transcripts are skipped, because only the current transcript of a session can be
    appended to. A last line without a line break is skipped, because the gateway has not finished it.
    """

    def __init__(self, documents: AgentDatabase, transcripts: TranscriptRows, folder: Path) -> None:
        self._documents = documents
        self._transcripts = transcripts
        self._folder = folder

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the transcripts of the folder into the database. Raises as `FolderCopy.into_database`."""
        os.close(open_folder(self._folder))
        report = CopyReport()
        files = list_files(self._folder)
        for done, file in enumerate(files, 1):
            problem = session_id_problem(file.session_id)
            if is_rotated(file.file_name) or problem:
                report.skipped[file.file_name] = problem or "it is not the current transcript of its session"
            else:
                with skipping(file.file_name, report):
                    self._push(file, options, report)
            options.progress(done, len(files))
        return report

    def _push(self, file: TranscriptFile, options: CopyOptions, report: CopyReport) -> None:
        name = file.file_name
        with os.fdopen(open_file(str(file.folder), (name,)), "rb") as stream:
            records = self._common_records(name, stream)
            if records is None:
                report.conflicts.append(name)
                return
            start = end = stream.tell()
            for lines, problem in _whole_lines(stream):
                if problem:
                    report.skipped[name] = problem
                if not options.dry_run:
                    try:
                        receipt = self._transcripts.append(
                            file.session_id, lines, records, mtime_ns=min(file.mtime_ns, LATEST_NS)
                        )
                    except TranscriptChanged:
                        report.conflicts.append(name)
                        return
                    records = receipt.records
                end += sum(len(line) + 1 for line in lines)
            report.copied += end > start
            report.equal += end == start
            report.copied_bytes += end - start
            if not options.dry_run:
                stream.seek(0)
                report.verified += 1
                report.mismatched += [] if self._is_stored(name, stream, end) else [name]

    def _common_records(self, name: str, file: IO[bytes]) -> int | None:
        """Read the part of the file that is stored; return its number of records, or None if other bytes are stored."""
        with self._documents.read() as rows:
            is_stored = bool(stat_transcripts(rows, [name]))
        records = 0
        if is_stored:
            with TranscriptStream(self._documents, name) as stored:
                while data := stored.read(_STEP_BYTES):
                    mine = file.read(len(data))
                    if mine != data[: len(mine)]:
                        return None
                    records += mine.count(b"\n")
        return records

    def _is_stored(self, name: str, file: IO[bytes], size: int) -> bool:
        """Return whether the stored transcript begins with the first bytes of the file."""
        if not size:
            return True
        with TranscriptStream(self._documents, name) as stored:
            while size and (data := stored.read(min(size, _STEP_BYTES))):
                if file.read(len(data)) != data:
                    return False
                size -= len(data)
        return not size

    def into_folder(self, options: CopyOptions) -> CopyReport:
        """Copy the transcripts into the folder, which must exist. Raises as `FolderCopy.into_folder`."""
        folder = open_folder(self._folder)
        try:
            report = CopyReport()
            with self._documents.read() as rows:
                names = list(list_transcripts(rows))
            for done, name in enumerate(names, 1):
                with skipping(name, report):
                    self._pull(name, folder, options, report)
                options.progress(done, len(names))
            return report
        finally:
            os.close(folder)

    def _pull(self, name: str, folder: int, options: CopyOptions, report: CopyReport) -> None:
        if problem := session_id_problem(session_of(name)):
            raise PathNotAllowed(name, problem)
        with TranscriptStream(self._documents, name) as stored:
            opened = _open(name, folder, is_dry_run=options.dry_run)
            if opened is None:
                report.copied += 1
                report.copied_bytes += stored.stat.size_bytes
                return
            file, is_new = opened
            try:
                with file:
                    self._extend(name, stored, file, options, report)
            except FileNotFound:
                # The transcript was deleted, so no copy of it may remain.
                if is_new:
                    os.unlink(name, dir_fd=folder)
                raise

    def _extend(
        self, name: str, stored: TranscriptStream, file: IO[bytes], options: CopyOptions, report: CopyReport
    ) -> None:
        """Append the missing bytes of a transcript to the file, unless the file has other bytes."""
        added, digest = 0, sha256()
        while data := stored.read(_STEP_BYTES):
            place = file.tell()
            before = file.read(len(data))
            if before != data[: len(before)]:
                report.conflicts.append(name)
                return
            digest.update(data)
            added += len(data) - len(before)
            if len(before) < len(data) and not options.dry_run:
                file.seek(place + len(before))
                file.write(data[len(before) :])
        report.copied += bool(added)
        report.equal += not added
        report.copied_bytes += added
        if options.dry_run:
            return
        file.flush()
        if added:
            os.utime(file.fileno(), ns=(stored.stat.mtime_ns, stored.stat.mtime_ns))
            os.fsync(file.fileno())
        report.verified += 1
        report.mismatched += [] if _digest(file, stored.tell()) == digest.digest() else [name]


def _whole_lines(stream: IO[bytes]) -> Iterator[tuple[list[bytes], str]]:
    """Yield the next lines without their line breaks, in batches, and why a line was left out; empty if none was."""
    lines: list[bytes] = []
    size = 0
    while line := stream.readline(MOST_LINE_BYTES + 1):
        if not line.endswith(b"\n"):
            yield lines, _TOO_LONG if len(line) > MOST_LINE_BYTES else _UNFINISHED
            return
        lines.append(line[:-1])
        size += len(line)
        if size >= _STEP_BYTES:
            yield lines, ""
            lines, size = [], 0
    if lines:
        yield lines, ""


def _open(name: str, folder: int, *, is_dry_run: bool) -> tuple[IO[bytes], bool] | None:
    """Open a file for reading and writing; return it, and whether it is new. None if it is missing in a dry run.

    Raises:
        PathNotAllowed: it is not a regular file.
        OSError: it is a link, or the file system refuses it.
    """
    # O_NONBLOCK: opening a FIFO would otherwise block.
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    is_new = False
    try:
        descriptor = os.open(name, flags | (os.O_RDONLY if is_dry_run else os.O_RDWR), dir_fd=folder)
    except FileNotFoundError:
        if is_dry_run:
            return None
        descriptor = os.open(name, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        is_new = True
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PathNotAllowed(name, "it is not a regular file")
    return os.fdopen(descriptor, "rb" if is_dry_run else "r+b"), is_new


def _digest(file: IO[bytes], size: int) -> bytes:
    """Return the SHA-256 of the first bytes of a file."""
    digest = sha256()
    file.seek(0)
    while size and (data := file.read(min(size, _STEP_BYTES))):
        digest.update(data)
        size -= len(data)
    return digest.digest()
