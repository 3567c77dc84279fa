"""FolderCopy: an agent's memory files copied from a folder into the database, or back, byte for byte.

Each file is compared by its SHA-256 first, so a copy that was interrupted continues where it ended, and a repeated copy
changes nothing. After the copy, all files are read at the destination and compared again.
"""

import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from memoryd_server.errors import ContentChanged, FileNotFound, MemorydError, PathNotAllowed
from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.postgres.copy_report import CopyOptions, CopyReport
from memoryd_server.postgres.document_rows import DocumentRows
from memoryd_server.postgres.document_writer import DocumentWriter
from memoryd_server.sources import (
    CURATED_NAMES,
    DREAM_NAMES,
    IGNORE_FILE,
    MEMORY_FOLDER,
    REPAIR_FOLDER,
    FileTooLarge,
    Location,
    Roots,
    open_directory,
    read_file,
    resolve_for_append,
)
from memoryd_server.writing import NewContent, WriteJob, write_new

_CALLER: Final = "memoryd import"

_BATCH_FILES: Final = 200
_BATCH_BYTES: Final = 8 << 20

_NAMES: Final = (*CURATED_NAMES, *DREAM_NAMES, IGNORE_FILE)

_LIST = "SELECT path, sha256, mtime_ns FROM documents WHERE agent_id = %(agent)s ORDER BY path"
_HASHES = "SELECT path, sha256(content) FROM documents WHERE agent_id = %(agent)s AND path = ANY(%(paths)s)"
_READ = "SELECT content, sha256, mtime_ns FROM documents WHERE agent_id = %(agent)s AND path = %(path)s"


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the folder as it was read."""

    path: str
    data: bytes
    mtime_ns: int

    @property
    def sha256(self) -> bytes:
        return sha256(self.data).digest()


class FolderCopy:
    """Copies the memory files of one agent between a folder and the database. Blocks.

    The files are those that can be memory, with the `.memoryignore`: MEMORY.md, memory.md, USER.md, DREAMS.md, and the
    Markdown below `memory/`, also if the `.memoryignore` excludes them. Times are copied, permissions and owners are
    not. Links are not followed. A file of more than `max_file_bytes` bytes is skipped. `writer` is that of the agent.
    """

    def __init__(self, documents: AgentDatabase, writer: DocumentWriter, folder: Path, max_file_bytes: int) -> None:
        self._documents = documents
        self._writer = writer
        self._folder = folder
        self._roots = Roots(str(folder))
        self._max_file_bytes = max_file_bytes

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the files of the folder into the database. The history keeps what a replaced document was.

        Raises:
            FileNotFound: the folder does not exist.
            PathNotAllowed: it is not a folder.
            OSError: it cannot be read.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. Repeat the copy.
        """
        report = CopyReport()
        paths = self._list(report)
        digests: dict[str, bytes] = {}
        done = 0
        for batch in self._read_in_batches(paths, report):
            self._store(batch, options, report)
            digests |= {file.path: file.sha256 for file in batch if file.path not in report.skipped}
            done += len(batch)
            options.progress(done, len(paths))
        if not options.dry_run:
            self._verify_database(digests, report)
        return report

    def into_folder(self, options: CopyOptions) -> CopyReport:
        """Copy the documents into the folder, which must exist. Other files of the folder are left alone.

        Raises:
            FileNotFound, PathNotAllowed, OSError: as `into_database`, or the file system refuses a file.
            IndexUnavailable, IndexBusy: the database cannot be used. Repeat the copy.
        """
        os.close(open_directory(str(self._folder), ()))
        report = CopyReport()
        with self._documents.read() as rows:
            stored = rows.all(_LIST)
        digests: dict[str, bytes] = {}
        for done, (path, digest, _) in enumerate(stored, 1):
            written = self._write(path, digest, options, report)
            if written is not None:
                digests[path] = written
            options.progress(done, len(stored))
        if not options.dry_run:
            self._verify_folder(digests, report)
        return report

    def _list(self, report: CopyReport) -> list[str]:
        """Return the paths of the files in the folder, sorted; add what is skipped to the report."""
        os.close(open_directory(str(self._folder), ()))
        paths = [name for name in _NAMES if (self._folder / name).is_file() and not (self._folder / name).is_symlink()]
        waiting: list[tuple[str, ...]] = [(MEMORY_FOLDER,)]
        while waiting:
            parts = waiting.pop()
            try:
                folder = open_directory(str(self._folder), parts)
            except FileNotFound:
                continue
            except PathNotAllowed as error:
                report.skipped["/".join(parts)] = error.message
                continue
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        path = "/".join((*parts, entry.name))
                        if entry.is_dir(follow_symlinks=False):
                            waiting += [(*parts, entry.name)] if entry.name != REPAIR_FOLDER else []
                        elif reason := _refusal(self._roots, path, entry):
                            report.skipped[path] = reason
                        else:
                            paths.append(path)
            finally:
                os.close(folder)
        return sorted(paths)

    def _read_in_batches(self, paths: list[str], report: CopyReport) -> Iterator[list[_File]]:
        batch: list[_File] = []
        size = 0
        for path in paths:
            location = Location(path, str(self._folder), tuple(path.split("/")))
            try:
                data, status = read_file(location, self._max_file_bytes)
            except FileTooLarge:
                report.skipped[path] = f"it has more than {self._max_file_bytes} bytes (memoryd.limits.maxFileBytes)"
                continue
            except MemorydError as error:
                report.skipped[path] = error.message
                continue
            except OSError as error:
                report.skipped[path] = f"it cannot be read: {error.strerror}"
                continue
            batch.append(_File(path, data, status.mtime_ns))
            size += len(data)
            if len(batch) == _BATCH_FILES or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _store(self, batch: list[_File], options: CopyOptions, report: CopyReport) -> None:
        """Store the missing files of a batch in one transaction, and then replace those that differ."""
        with self._documents.read() as rows:
            known = DocumentRows(rows).find_all([file.path for file in batch])
        missing = [file for file in batch if file.path not in known]
        if options.dry_run:
            report.copied += len(missing)
            report.copied_bytes += sum(len(file.data) for file in missing)
        elif missing:
            self._create(missing, report)
        for file in batch:
            if file.path not in known:
                continue
            if known[file.path].sha256 == file.sha256:
                report.equal += 1
            elif not options.replace:
                report.conflicts.append(file.path)
            elif options.dry_run or self._replace(file, known[file.path].sha256, report):
                report.replaced += 1
                report.copied_bytes += len(file.data)

    def _create(self, files: list[_File], report: CopyReport) -> None:
        created, refused, taken = [], {}, []
        with self._documents.write() as rows:
            version, documents = rows.lock_documents(), DocumentRows(rows)
            for file in files:
                try:
                    if documents.find(file.path) is not None:
                        taken.append(file.path)
                        continue
                    documents.require_place(file.path)
                except PathNotAllowed as error:
                    refused[file.path] = error.message
                    continue
                documents.put(file.path, file.data, version, file.mtime_ns)
                created.append(file)
        report.copied += len(created)
        report.copied_bytes += sum(len(file.data) for file in created)
        report.skipped |= refused
        report.conflicts += taken

    def _replace(self, file: _File, expected: bytes, report: CopyReport) -> bool:
        """Replace a document, and keep what it was in the history; return False if it has changed since."""
        if file.path in {IGNORE_FILE, *DREAM_NAMES}:
            # These are not memory, and have no history.
            with self._documents.write() as rows:
                DocumentRows(rows).put(file.path, file.data, rows.lock_documents(), file.mtime_ns)
            return True
        job = WriteJob(path=file.path, expected=expected, change=NewContent(file.data), caller=_CALLER)
        try:
            self._writer.edit(job)
        except ContentChanged:
            report.conflicts.append(file.path)
            return False
        return True

    def _verify_database(self, digests: Mapping[str, bytes], report: CopyReport) -> None:
        """Have the server hash all contents, and compare the hashes with those of the files."""
        paths = [path for path in digests if path not in set(report.conflicts)]
        for start in range(0, len(paths), _BATCH_FILES):
            some = paths[start : start + _BATCH_FILES]
            with self._documents.read() as rows:
                stored: dict[str, bytes] = dict(rows.all(_HASHES, paths=some))
            report.verified += len(some)
            report.mismatched += [path for path in some if stored.get(path) != digests[path]]

    def _write(self, path: str, digest: bytes, options: CopyOptions, report: CopyReport) -> bytes | None:
        """Write one document to the folder; return the SHA-256 that the file must have, or None if it was kept."""
        location = Location(path, str(self._folder), tuple(path.split("/")))
        try:
            before: bytes | None = sha256(read_file(location, 1 << 62)[0]).digest()
        except FileNotFound:
            before = None
        except PathNotAllowed as error:
            report.skipped[path] = error.message
            return None
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
            _write_file(location, bytes(content), mtime_ns, is_new=before is None)
        report.copied += before is None
        report.replaced += before is not None
        report.copied_bytes += len(content)
        return bytes(digest)

    def _verify_folder(self, digests: Mapping[str, bytes], report: CopyReport) -> None:
        for path, digest in digests.items():
            location = Location(path, str(self._folder), tuple(path.split("/")))
            try:
                data, _ = read_file(location, 1 << 62)
                is_equal = sha256(data).digest() == digest
            except MemorydError:
                is_equal = False
            report.verified += 1
            report.mismatched += [] if is_equal else [path]


def _refusal(roots: Roots, path: str, entry: "os.DirEntry[str]") -> str:
    """Return why a file below `memory/` is not copied; empty if it is."""
    if not entry.is_file(follow_symlinks=False):
        return "it is a link or a special file"
    try:
        resolve_for_append(roots, path)
    except PathNotAllowed as error:
        return error.message
    return ""


def _write_file(location: Location, data: bytes, mtime_ns: int, *, is_new: bool) -> None:
    """Write a durable file with a time; an existing one is replaced in one step.

    Raises:
        OSError: the file system refuses it.
    """
    draft = f".{uuid.uuid4().hex}.memoryd-copy"
    name = location.parts[-1]
    if is_new:
        write_new(location, data, draft)
    else:
        whole = Location(location.path, location.root, (*location.parts[:-1], draft))
        write_new(whole, data, f"{draft}.new")
    folder = open_directory(location.root, location.parts[:-1])
    try:
        if not is_new:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)
        os.fsync(folder)
    finally:
        os.close(folder)
