"""FolderCopy: copies an agent's memory files from a folder into the database, or back, byte for byte.

Each file is compared by its SHA-256 first, so a repeated copy copies only what is missing, also after an interruption.
After the copy, all files are read at the destination and compared again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from memoryd_server.errors import ContentChanged, MemorydError, PathNotAllowed
from memoryd_server.postgres.agent_database import AgentDatabase, AgentRows
from memoryd_server.postgres.copied_folder import NAMES_WITHOUT_HISTORY, CopiedFolder
from memoryd_server.postgres.copy_report import LATEST_NS, CopyOptions, CopyReport, skipping
from memoryd_server.postgres.document_rows import DocumentRow, DocumentRows
from memoryd_server.postgres.document_writer import DocumentWriter
from memoryd_server.sources import FileTooLarge, read_file
from memoryd_server.writing import NewContent, WriteJob

_CALLER: Final = "memoryd import"

_BATCH_FILES: Final = 200
_BATCH_BYTES: Final = 8 << 20

_LIST = "SELECT path, sha256 FROM documents WHERE agent_id = %(agent)s ORDER BY path"
_HASHES = "SELECT path, sha256(content) FROM documents WHERE agent_id = %(agent)s AND path = ANY(%(paths)s)"
_READ = "SELECT content, sha256, mtime_ns FROM documents WHERE agent_id = %(agent)s AND path = %(path)s"


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the folder, with the content and the time that were read."""

    path: str
    data: bytes
    mtime_ns: int

    @property
    def sha256(self) -> bytes:
        return sha256(self.data).digest()


class FolderCopy:
    """Copies the memory files of one agent between a folder and the database. Blocks.

    The files are those that can be memory, with the `.memoryignore`: MEMORY.md, memory.md, USER.md, DREAMS.md, and the
    Markdown below `memory/`, also if the `.memoryignore` excludes them. The times of new files are copied; permissions
    and owners are not. Links are not followed. A file of more than `max_file_bytes` bytes is not imported. `writer` is
    that of the agent.
    """

    def __init__(self, documents: AgentDatabase, writer: DocumentWriter, folder: Path, max_file_bytes: int) -> None:
        self._documents = documents
        self._writer = writer
        self._folder = CopiedFolder(folder)
        self._max_file_bytes = max_file_bytes

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the files of the folder into the database. The history keeps the contents of replaced documents.

        Raises:
            FileNotFound: the folder does not exist.
            PathNotAllowed: it is not a folder.
            PermissionError: it cannot be read.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. Repeat the copy.
        """
        listing = self._folder.files()
        report = CopyReport(skipped=listing.skipped, others=listing.others)
        digests: dict[str, bytes] = {}
        done = 0
        for batch in self._read_in_batches(listing.paths, report):
            self._store(batch, options, report)
            digests |= {file.path: file.sha256 for file in batch if file.path not in report.skipped}
            done += len(batch)
            options.progress(done, len(listing.paths))
        if not options.dry_run:
            self._verify_database(digests, report)
        return report

    def into_folder(self, options: CopyOptions) -> CopyReport:
        """Copy the documents into the folder, which must exist. Other files of the folder are left alone.

        Raises:
            FileNotFound, PathNotAllowed, PermissionError: as `into_database`.
            FileBusy: another process exports into the folder.
            DiskFull: the disk of the folder is full.
            IndexUnavailable, IndexBusy: the database cannot be used. Repeat the copy.
        """
        report = CopyReport()
        with self._folder.locked():
            with self._documents.read() as rows:
                stored = rows.all(_LIST)
            if not options.dry_run:
                self._folder.remove_drafts(path for path, _ in stored)
            digests: dict[str, bytes] = {}
            for done, (path, digest) in enumerate(stored, 1):
                with skipping(path, report):
                    written = self._write(path, digest, options, report)
                    if written is not None:
                        digests[path] = written
                options.progress(done, len(stored))
            if not options.dry_run:
                self._verify_folder(digests, report)
        return report

    def _read_in_batches(self, paths: list[str], report: CopyReport) -> Iterator[list[_File]]:
        batch: list[_File] = []
        size = 0
        for path in paths:
            with skipping(path, report):
                try:
                    data, status = read_file(self._folder.location(path), self._max_file_bytes)
                except FileTooLarge:
                    report.skipped[path] = (
                        f"it has more than {self._max_file_bytes} bytes (memoryd.limits.maxFileBytes)"
                    )
                    continue
                batch.append(_File(path, data, min(status.mtime_ns, LATEST_NS)))
                size += len(data)
            if len(batch) == _BATCH_FILES or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _store(self, batch: list[_File], options: CopyOptions, report: CopyReport) -> None:
        """Store the missing files of a batch in one transaction, and then replace those that differ."""
        with self._documents.read() as rows:
            known = {path: found.sha256 for path, found in _find_all(rows, batch).items()}
        missing = [file for file in batch if file.path not in known]
        if options.dry_run:
            _count_copied(missing, report)
        elif missing:
            known |= self._create(missing, report)
        for file in batch:
            if file.path not in known:
                continue
            if known[file.path] == file.sha256:
                report.equal += 1
            elif not options.replace:
                report.conflicts.append(file.path)
            elif options.dry_run or self._replace(file, known[file.path], report):
                report.replaced += 1
                report.copied_bytes += len(file.data)

    def _create(self, files: list[_File], report: CopyReport) -> dict[str, bytes]:
        """Create documents; return the hashes of those that another process has created since the listing."""
        created, refused = [], {}
        with self._documents.write() as rows:
            version, documents = rows.lock_documents(), DocumentRows(rows)
            taken = {path: found.sha256 for path, found in _find_all(rows, files).items()}
            for file in files:
                if file.path in taken:
                    continue
                try:
                    documents.require_place(file.path)
                except PathNotAllowed as error:
                    refused[file.path] = error.message
                    continue
                documents.put(file.path, file.data, version, file.mtime_ns)
                created.append(file)
        _count_copied(created, report)
        report.skipped |= refused
        return taken

    def _replace(self, file: _File, expected: bytes, report: CopyReport) -> bool:
        """Replace a document, and keep its old content in the history; return False if it was not replaced."""
        if file.path in NAMES_WITHOUT_HISTORY:
            with self._documents.write() as rows:
                DocumentRows(rows).put(file.path, file.data, rows.lock_documents(), file.mtime_ns)
            return True
        job = WriteJob(path=file.path, expected=expected, change=NewContent(file.data), caller=_CALLER)
        try:
            self._writer.edit(job)
        except ContentChanged:
            report.conflicts.append(file.path)
            return False
        except PathNotAllowed as error:
            # The document is larger than the limit, which was lowered.
            report.skipped[file.path] = error.message
            return False
        return True

    def _verify_database(self, digests: Mapping[str, bytes], report: CopyReport) -> None:
        """Let the server compute the hashes of all contents, and compare them with those of the files."""
        kept = {*report.conflicts, *report.skipped}
        paths = [path for path in digests if path not in kept]
        for start in range(0, len(paths), _BATCH_FILES):
            some = paths[start : start + _BATCH_FILES]
            with self._documents.read() as rows:
                stored: dict[str, bytes] = dict(rows.all(_HASHES, paths=some))
            report.verified += len(some)
            report.mismatched += [path for path in some if stored.get(path) != digests[path]]

    def _write(self, path: str, digest: bytes, options: CopyOptions, report: CopyReport) -> bytes | None:
        """Write one document to the folder; return the SHA-256 that the file must have, or None if it was kept."""
        if problem := self._folder.problem(path):
            report.skipped[path] = problem
            return None
        before = self._folder.sha256(path)
        if before == digest:
            report.equal += 1
            return digest
        if before is not None and not options.replace:
            report.conflicts.append(path)
            return None
        with self._documents.read() as rows:
            found = rows.all(_READ, path=path)
        if not found:
            report.skipped[path] = "it was deleted during the copy"
            return None
        content, digest, mtime_ns = found[0]
        if not options.dry_run:
            if before is not None:
                self._folder.replace(path, content, mtime_ns)
            elif not self._folder.create(path, content, mtime_ns):
                report.conflicts.append(path)
                return None
        report.copied += before is None
        report.replaced += before is not None
        report.copied_bytes += len(content)
        return bytes(digest)

    def _verify_folder(self, digests: Mapping[str, bytes], report: CopyReport) -> None:
        for path, digest in digests.items():
            try:
                is_equal = self._folder.sha256(path) == digest
            except (MemorydError, OSError):
                is_equal = False
            report.verified += 1
            report.mismatched += [] if is_equal else [path]


def _find_all(rows: AgentRows, files: list[_File]) -> dict[str, DocumentRow]:
    return DocumentRows(rows).find_all([file.path for file in files])


def _count_copied(files: list[_File], report: CopyReport) -> None:
    report.copied += len(files)
    report.copied_bytes += sum(len(file.data) for file in files)
