"""One agent's index file: opened under a lock, rebuilt beside itself, swapped in whole."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from memoryd_server.errors import IndexTooNew, IndexUnavailable
from memoryd_server.index import purge, refresh, schema, swap
from memoryd_server.index.connection import APPLICATION_ID, open_reader, open_writer, transaction, translated
from memoryd_server.index.lock import IndexLock
from memoryd_server.index.reader import IndexReader, LastCounts, reading
from memoryd_server.index.readers import ReaderPool
from memoryd_server.index.schema import BuildIdentity, Difference
from memoryd_server.index.vector_rows import VectorChanges
from memoryd_server.index.writer import IndexWriter
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.text import Analyzer

READERS = 4

_HEADER_BYTES = 100

_T = TypeVar("_T")


class IndexStore:
    """The index at `path`, held by this process from `open` to `close`.

    `changes` hears of every vector and chunk that comes or goes. `open`, `writer` and the rebuild belong to the agent's
    one writer thread; `read` may be used from any thread.
    """

    def __init__(self, path: Path, identity: BuildIdentity, changes: VectorChanges | None = None) -> None:
        self._wanted_path = path
        self._identity = identity
        self._lock = IndexLock(path.with_name(path.name + ".lock"))
        self._connection: apsw.Connection | None = None
        self._pool: ReaderPool | None = None
        self._last_counts = LastCounts()
        self._changes = changes
        self.path = path
        self.built_with: BuildIdentity | None = None
        self.build_differences: tuple[Difference, ...] = ()
        self.keyword_outdated = False
        self.impairments: tuple[Degradation, ...] = ()

    def open(self) -> None:
        """Locks and opens the index, creating, recovering or setting aside what is at the path.

        Raises:
            IndexBusy: another process holds the index.
            IndexTooNew: a newer memoryd wrote it.
            IndexUnavailable: it can neither be opened nor made.
        """
        self._lock.acquire()
        try:
            with translated():
                self._open_file()
        except BaseException:
            self.close()
            raise

    def _open_file(self) -> None:
        self.path = self._own_path()
        swap.recover(self.path)
        try:
            self._connection = self._open_or_create()
        except (apsw.NotADBError, apsw.CorruptError) as error:
            self._quarantine(error)
            self._connection = self._open_or_create()
        self._pool = ReaderPool(self.path, READERS, open_reader)

    def _own_path(self) -> Path:
        """The configured path, or a sibling when another program's database is there."""
        if not _is_foreign(self._wanted_path):
            return self._wanted_path
        sibling = self._wanted_path.with_name(f"{self._wanted_path.stem}.memoryd.sqlite")
        if _is_foreign(sibling):
            raise IndexUnavailable(
                f"{self._wanted_path} and {sibling} were made by other programs; configure another path for the index"
            )
        reason = f"{self._wanted_path} was made by another program and is left untouched"
        self._impaired(str(self._wanted_path), str(sibling), reason)
        return sibling

    def _open_or_create(self) -> apsw.Connection:
        connection = open_writer(self.path)
        try:
            if schema.user_version(connection) < schema.SCHEMA_VERSION and not schema.is_empty(connection):
                connection = self._begun_anew(connection)
            if schema.is_empty(connection):
                with transaction(connection):
                    schema.create(connection, self._identity, revision=0)
            self._check_version(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begun_anew(self, connection: apsw.Connection) -> apsw.Connection:
        """An empty file in the place of one of an older schema: the index is derived, and the next sync fills it."""
        connection.close()
        swap.remove_database(self.path)
        return open_writer(self.path)

    def _check_version(self, connection: apsw.Connection) -> None:
        version = schema.user_version(connection)
        if version > schema.SCHEMA_VERSION:
            raise IndexTooNew(
                f"the index {self.path} has schema {version}, this memoryd knows {schema.SCHEMA_VERSION}; "
                "upgrade memoryd, or remove the file to have it rebuilt from the Markdown"
            )
        self.keyword_outdated = refresh.keyword_outdated(connection)
        self.built_with = BuildIdentity.from_json(str(schema.get_meta(connection, "identity")))
        self.build_differences = schema.build_differences(connection, self._identity)

    def _quarantine(self, error: Exception) -> None:
        aside = swap.set_aside(self.path, time.time())
        self._impaired(str(self.path), str(aside), f"the index was damaged ({error}); set aside, rebuilt from Markdown")

    def _impaired(self, wanted: str, used: str, reason: str) -> None:
        self.impairments += (Degradation(DegradationKind.INDEX_IMPAIRED, wanted, used, reason),)

    def close(self) -> None:
        """Closes every connection and gives the lock up. Closing twice is fine."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._close_writer()
        self._lock.release()

    def _close_writer(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def needs_rebuild(self) -> bool:
        """Whether the index was built with another identity, at least in part."""
        return bool(self.build_differences)

    @property
    def writer(self) -> IndexWriter:
        """The rows of the index, for the writer thread."""
        return IndexWriter(_opened(self._connection), self._identity, self._changes)

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[IndexReader]:
        """One snapshot of the index, until `time.monotonic()` passes `deadline`."""
        with reading(_opened(self._pool), self._last_counts, deadline) as reader:
            yield reader

    def refresh_keyword(self, analyzer: Analyzer, should_stop: Callable[[], bool]) -> int:
        """Builds the keyword leg anew from the stored text with the present analyzer; returns the new revision.

        Raises:
            SyncCancelled: `should_stop` said so; the old words stay in use.
        """
        revision = refresh.refresh_keyword(_opened(self._connection), analyzer, should_stop)
        self.keyword_outdated = False
        return revision

    @property
    def has_deleted_words(self) -> bool:
        """Whether words of deleted chunks may still be on the disk, so that `purge_deleted` is due."""
        return purge.has_deleted_words(_opened(self._connection))

    def purge_deleted(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Makes deleted words vanish from the disk, for the writer thread; false when it has to be tried again."""
        with translated():
            return purge.purge(_opened(self._connection), should_stop)

    def size_bytes(self) -> int:
        """Bytes on disk: the index with its write-ahead log."""
        return sum(_size_bytes(self.path.with_name(self.path.name + suffix)) for suffix in ("", "-wal"))

    @contextmanager
    def rebuilding(self) -> Iterator[IndexWriter]:
        """A writer into an empty file beside the index, swapped in when the block ends without an error.

        Readers see the old index until the swap, which waits for those at work and takes milliseconds.
        """
        beside = swap.rebuilding_path(self.path)
        swap.discard(self.path)
        connection = open_writer(beside)
        try:
            with transaction(connection):
                schema.create(connection, self._identity, revision=self.writer.revision())
            yield IndexWriter(connection, self._identity)
            _raise_revision_past(connection, self.writer.revision())
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except BaseException:
            connection.close()
            swap.remove_database(beside)
            raise
        connection.close()
        self._swap()

    def _swap(self) -> None:
        with _opened(self._pool).closed():
            self._close_writer()
            try:
                self._commit_swap()
            finally:
                self._connection = self._open_or_create()
                if self._changes is not None:
                    self._changes.reset()

    def _commit_swap(self) -> None:
        try:
            swap.commit(self.path)
        except BaseException:
            swap.discard(self.path)
            raise


def _raise_revision_past(connection: apsw.Connection, old_revision: int) -> None:
    writer = IndexWriter(connection)
    writer.set_revision(max(writer.revision(), old_revision) + 1)


def _size_bytes(path: Path) -> int:
    """The size of a file that may come and go, as a write-ahead log does."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _opened(value: _T | None) -> _T:
    if value is None:
        raise IndexUnavailable("the index is not open")
    return value


def _is_foreign(path: Path) -> bool:
    """Whether another program's SQLite database is at `path`. Damage is not foreignness.

    Read from the file's header, without opening the database, which could write beside it.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    mark = int.from_bytes(header[68:72], "big")
    return header.startswith(b"SQLite format 3\0") and mark != APPLICATION_ID
