"""An agent's files, on disk and in the index, as one list."""

from dataclasses import dataclass
from enum import StrEnum

from memoryd_server.index.plan import differs
from memoryd_server.index.sync import DiskState
from memoryd_server.model import FileFailure, Source, SourceFile
from memoryd_server.sources.forgotten import Forgotten
from memoryd_server.store.rows import FileRow


class FileState(StrEnum):
    """Whether a file can be found by a search; the names of the wire's enum."""

    INDEXED = "INDEXED"
    PENDING = "PENDING"
    STALE = "STALE"
    FAILED = "FAILED"
    GONE = "GONE"
    FORGOTTEN = "FORGOTTEN"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A memory file."""

    path: str
    source: Source
    size_bytes: int
    mtime_ns: int
    state: FileState
    error: str
    chunks: int


def list_files(disk: DiskState, forgotten: Forgotten) -> list[ListedFile]:
    """Every file on disk or in the index, by path."""
    listed = [_on_disk(file, disk.rows.get((file.source, file.path)), forgotten) for file in disk.discovery.files]
    listed += [_gone(row) for row in disk.plan.removed]
    listed += [_refused(failure) for failure in disk.discovery.failures]
    return sorted(listed, key=lambda file: (file.path, file.source))


def _on_disk(file: SourceFile, row: FileRow | None, forgotten: Forgotten) -> ListedFile:
    if row is None:
        state, error, chunks = FileState.PENDING, "", 0
    elif differs(file.stat, row.stat):
        state, error, chunks = FileState.STALE, "", row.chunk_count
    elif row.error is not None:
        state, error, chunks = FileState.FAILED, row.error, 0
    elif not row.chunk_count and forgotten.holds(row.path, row.content_hash):
        state, error, chunks = FileState.FORGOTTEN, "", 0
    else:
        state, error, chunks = FileState.INDEXED, "", row.chunk_count
    return ListedFile(file.path, file.source, file.stat.size_bytes, file.stat.mtime_ns, state, error, chunks)


def _gone(row: FileRow) -> ListedFile:
    return ListedFile(row.path, row.source, row.stat.size_bytes, row.stat.mtime_ns, FileState.GONE, "", row.chunk_count)


def _refused(failure: FileFailure) -> ListedFile:
    return ListedFile(failure.path, failure.source, 0, 0, FileState.FAILED, failure.error, 0)
