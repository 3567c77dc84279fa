"""TranscriptCopy: the transcripts of an agent copied from a folder into the database, or back."""

import os
from pathlib import Path
from typing import IO, Final

from memoryd_server.errors import MemorydError, TranscriptChanged
from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.postgres.copy_report import CopyOptions, CopyReport
from memoryd_server.postgres.transcripts import TranscriptRows, TranscriptStream, list_transcripts
from memoryd_server.sources import (
    TranscriptFile,
    is_rotated,
    open_directory,
    open_file,
    session_id_problem,
)
from memoryd_server.sources import list_transcripts as list_files

_STEP_BYTES: Final = 1 << 20


class TranscriptCopy:
    """Copies the transcripts of one agent between a folder and the database. Blocks.

    A transcript that has grown continues where its copy ends. Archives and rotated transcripts are skipped: they cannot
    be pushed. So is a last line without a line break, which the gateway has not finished.
    """

    def __init__(self, documents: AgentDatabase, transcripts: TranscriptRows, folder: Path) -> None:
        self._documents = documents
        self._transcripts = transcripts
        self._folder = folder

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the transcripts of the folder into the database. Raises as `FolderCopy.into_database`."""
        os.close(open_directory(str(self._folder), ()))
        report = CopyReport()
        files = list_files(self._folder)
        for done, file in enumerate(files, 1):
            problem = session_id_problem(file.session_id)
            if is_rotated(file.file_name) or problem:
                report.skipped[file.file_name] = problem or "it is not the current transcript of its session"
            else:
                self._push(file, options, report)
            options.progress(done, len(files))
        return report

    def _push(self, file: TranscriptFile, options: CopyOptions, report: CopyReport) -> None:
        try:
            with os.fdopen(open_file(str(file.folder), (file.file_name,)), "rb") as stream:
                stored, records = self._stored_part(file.file_name, stream)
                if stored is None:
                    report.conflicts.append(file.file_name)
                    return
                added, is_whole = self._append(file, stream, records, options)
        except TranscriptChanged:
            report.conflicts.append(file.file_name)
            return
        except MemorydError as error:
            report.skipped[file.file_name] = error.message
            return
        if not is_whole:
            report.skipped[file.file_name] = "its last line has no line break yet, and was left out"
        report.copied += bool(added)
        report.equal += not added
        report.copied_bytes += added
        report.verified += 1

    def _stored_part(self, name: str, file: IO[bytes]) -> tuple[int | None, int]:
        """Return the stored bytes and records, if the file begins with them; the file is read up to there.

        None if it begins with other bytes.
        """
        with self._documents.read() as rows:
            known = list_transcripts(rows)
        if name not in known:
            return 0, 0
        size = records = 0
        with TranscriptStream(self._documents, name) as stored:
            while data := stored.read(_STEP_BYTES):
                if file.read(len(data)) != data:
                    return None, 0
                size += len(data)
                records += data.count(b"\n")
        return size, records

    def _append(self, file: TranscriptFile, stream: IO[bytes], records: int, options: CopyOptions) -> tuple[int, bool]:
        """Append the lines from here on; return the number of their bytes, and whether each had a line break."""
        added = 0
        while lines := stream.readlines(_STEP_BYTES):
            whole = [line[:-1] for line in lines if line.endswith(b"\n")]
            if whole and not options.dry_run:
                records = self._transcripts.append(file.session_id, whole, records).records
            added += sum(len(line) + 1 for line in whole)
            if len(whole) < len(lines):
                return added, False
        return added, True

    def into_folder(self, options: CopyOptions) -> CopyReport:
        """Copy the transcripts into the folder, which must exist. Raises as `FolderCopy.into_folder`."""
        os.close(open_directory(str(self._folder), ()))
        report = CopyReport()
        with self._documents.read() as rows:
            names = list(list_transcripts(rows))
        for done, name in enumerate(names, 1):
            self._pull(name, options, report)
            options.progress(done, len(names))
        return report

    def _pull(self, name: str, options: CopyOptions, report: CopyReport) -> None:
        target = self._folder / name
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if options.dry_run and not target.exists():
            report.copied += 1
            return
        with TranscriptStream(self._documents, name) as stored, os.fdopen(os.open(target, flags, 0o600), "r+b") as file:
            while data := stored.read(_STEP_BYTES):
                start = file.tell()
                before = file.read(len(data))
                if before != data[: len(before)]:
                    report.conflicts.append(name)
                    return
                if len(before) == len(data):
                    continue
                if options.dry_run:
                    report.copied += 1
                    return
                file.seek(start + len(before))
                file.write(data[len(before) :])
                report.copied_bytes += len(data) - len(before)
            size = file.tell()
            if file.read(1):
                # The gateway has written more to the file than was pushed.
                report.conflicts.append(name)
                return
            file.flush()
            os.fsync(file.fileno())
        is_whole = target.stat().st_size == size
        report.copied += is_whole
        report.verified += is_whole
        report.mismatched += [] if is_whole else [name]
