"""SqliteStore: one agent's index file.

The file is opened under a lock. A rebuild writes a second file and replaces the first when it is complete. A damaged or
removed file is re-created, empty, and the next sync fills it again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import apsw

from memoryd_server.errors import DiskFull, IndexDamaged, IndexReadOnly, IndexUnavailable, MemorydError, SyncCancelled
from memoryd_server.model import Degradation
from memoryd_server.sources import MOUNT_TABLE
from memoryd_server.sqlite import maintenance, opening, schema
from memoryd_server.sqlite.connection import (
    FileIdentity,
    JournalMode,
    file_ids,
    file_lost,
    impaired,
    journal_for,
    open_present_reader,
    translated,
)
from memoryd_server.sqlite.opening import IndexFacts, open_read_only, read_only_translated
from memoryd_server.sqlite.outside_readers import NoOutsideReaders, OutsideReaders, VectorObservers
from memoryd_server.sqlite.reader import ReaderCaches, SqliteReader, reading
from memoryd_server.sqlite.readers import ReaderPool
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.sqlite.vector_rows import VectorObserver
from memoryd_server.sqlite.writer import SqliteWriter
from memoryd_server.store import (
    BuildIdentity,
    Damage,
    Difference,
    IndexCounts,
    IndexHealth,
    StopSign,
    StoreSizes,
    VectorEngineStatus,
)
from memoryd_server.system import FileLock
from memoryd_server.text import Analyzer

READERS = 4

# The page cache that a writer keeps between two runs.
_MAX_IDLE_CACHE_BYTES = 2 * 2**20

_T = TypeVar("_T")


class SqliteStore:
    """The index at `path`, locked by this process from `open` to `close`.

    `vectors` finds the nearest chunks, and is called after each commit that changes vectors. `outside` are readers in
    other processes, which close the file whenever every connection has to be closed. `read` may be called on any
    thread, everything else only on the agent's writer thread.
    """

    def __init__(
        self,
        path: Path,
        identity: BuildIdentity,
        vectors: VectorIndex | None = None,
        mount_table: Path = MOUNT_TABLE,
        *,
        outside: OutsideReaders | None = None,
    ) -> None:
        self._outside: OutsideReaders = outside or NoOutsideReaders()
        self._wanted_path = path
        self._identity = identity
        self._identity_json = identity.to_json()
        self._mount_table = mount_table
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._connection: apsw.Connection | None = None
        self._pool: ReaderPool | None = None
        self._caches = ReaderCaches()
        self._vectors = vectors
        self._file_identity: FileIdentity | None = None
        self._foreign: Degradation | None = None
        self._journal_reason = ""
        self.health = IndexHealth()
        self.journal = JournalMode.LOG
        self.path = path
        self.built_with: BuildIdentity | None = None
        self.build_differences: tuple[Difference, ...] = ()
        self.keyword_outdated = False
        self._refusal: MemorydError | None = None
        self.has_completed_sync = False
        """Whether a sync has completed since the index was created; until then, its revision has no meaning."""

    def reserve(self) -> None:
        """Take the lock before `open`. `open` reports every other reason why the index cannot be opened.

        Raises:
            IndexBusy: another process holds the index.
        """
        with suppress(IndexReadOnly, DiskFull, IndexUnavailable):
            self._lock.acquire()

    def open(self) -> None:
        """Lock and open the index. Create it if it is missing, recover it after a crash, set it aside if it is damaged.

        An existing index is opened for reading if its folder cannot be written or the disk is full.

        Raises:
            IndexBusy: another process holds the index.
            IndexTooNew: the index was written by a newer memoryd.
            IndexReadOnly: the folder cannot be written and holds no index that could be read.
            DiskFull, IndexUnavailable: the index can neither be opened nor created.
        """
        try:
            try:
                self._lock.acquire()
                self._open_for_writing()
            except (IndexReadOnly, DiskFull) as error:
                self._open_for_reading(error)
        except BaseException:
            self.close()
            raise

    def _open_for_writing(self) -> None:
        self.journal, self._journal_reason = journal_for(self._wanted_path.parent, self._mount_table)
        with read_only_translated(self._wanted_path.parent), translated():
            self._open_file()
        self._pool = ReaderPool(self.path, READERS, open_present_reader)

    def _open_file(self) -> None:
        opening.move_former(self._wanted_path, self.journal)
        self.path, self._foreign = opening.usable_path(self._wanted_path)
        last = self._caches.counts
        opened = opening.open_index(self.path, self._identity, self.journal, last.revision if last else 0)
        self._connection = opened.connection
        self._file_identity = FileIdentity.of(self.path, is_local=self.journal is JournalMode.LOG)
        self._set_facts(opened.facts)
        if opened.incident is not None:
            self.health.record_incident(opened.incident)
        if self.journal is JournalMode.LOG:
            # With the other journal, a commit would wait for readers.
            self._outside.opened(self.path, file_ids(self.path))

    def _set_facts(self, facts: IndexFacts) -> None:
        self.keyword_outdated = facts.keyword_outdated
        self.built_with = facts.built_with
        self.build_differences = facts.differences
        self.has_completed_sync = facts.has_completed_sync

    def _open_for_reading(self, refusal: MemorydError) -> None:
        with translated():
            self._lock.acquire_to_read()
            self.path, self._foreign = opening.usable_path(opening.former_index(self._wanted_path) or self._wanted_path)
            self._pool = open_read_only(self.path, READERS, refusal)
            self._refusal = refusal
            with self._pool.connection() as connection:
                self._set_facts(IndexFacts.of(connection, self._identity))

    def close(self) -> None:
        """Close every connection and release the lock. Idempotent."""
        self._outside.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        # What refers to a closed store can stay until the next full collection of garbage.
        if self._vectors is not None:
            self._vectors.release_memory()
        self._caches.release_memory()
        self._close_writer()
        self._lock.release()

    def _close_writer(self) -> None:
        self._file_identity = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            # Closing copies the log into the file. If damage or a full disk prevents that, the log still holds it.
            with suppress(apsw.Error):
                connection.close()

    def writer(self) -> SqliteWriter:
        """Return the writer of the index, for the writer thread.

        Raises:
            IndexReadOnly, DiskFull: the index is open for reading only.
        """
        observer: VectorObserver | None = None if self._vectors is None else self._vectors.resident
        if observer is not None and not isinstance(self._outside, NoOutsideReaders):
            observer = VectorObservers((observer, self._outside))
        return SqliteWriter(self._write_connection, self._identity_json, observer)

    @property
    def _write_connection(self) -> apsw.Connection:
        if self._refusal is not None:
            raise type(self._refusal)(self._refusal.message)
        return _require_open(self._connection)

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[SqliteReader]:
        """Open one snapshot of the index, which can be read until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline passed during the read.
            IndexDamaged: the index is damaged or gone; `health` records it, and the next `repair` re-creates the index.
            IndexUnavailable: the index cannot be read.
        """
        nearest = None if self._vectors is None else self._vectors.search
        with (
            self._recording_damage(),
            reading(_require_open(self._pool), self._caches, deadline, nearest) as reader,
        ):
            # While the reader is open: a swap, which replaces the file too, waits until it is closed.
            if self._file_identity is not None and self._file_identity.is_gone(self.path):
                raise file_lost(self.path)
            yield reader

    @contextmanager
    def _recording_damage(self) -> Iterator[None]:
        """Record damage that the body meets in `health`."""
        generation = self.health.generation
        try:
            yield
        except IndexDamaged as error:
            self.health.record_damage(Damage(error.message, gone=not self.path.exists()), generation)
            raise

    def repair(self) -> bool:
        """Re-create the index, empty, if it was found damaged or gone; return whether it was. For the writer thread.

        If the index is open for reading because its folder could not be written, it is opened for writing if possible.

        Raises:
            IndexReadOnly: the folder cannot be written.
            IndexBusy: the lock file was gone, and another process holds the lock.
            DiskFull, IndexUnavailable: no index can be created.
        """
        if self._refusal is not None:
            self._reopen_for_writing()
            return False
        if self._file_identity is None or self._file_identity.has_changed(self.path):
            self.health.record_damage(Damage(file_lost(self.path).message, gone=True), self.health.generation)
        damage = self.health.damage
        if damage is None:
            return False
        # First, because their searches then continue on the connections of this process.
        self._outside.close()
        with _require_open(self._pool).closed():
            self._close_writer()
            self._recreate(damage)
            self.health.record_repair()
        return True

    def _recreate(self, damage: Damage) -> None:
        with read_only_translated(self.path.parent), translated():
            if not self.path.exists():
                opening.remove_journals(self.path)
            elif not damage.gone:
                self.health.record_incident(opening.set_aside(self.path, damage.reason))
                # From now on the file at the path is a new one, which a full disk may have left incomplete.
                self.health.damage = replace(damage, gone=True)
            if self._lock.is_lost:
                self._lock.release()
                self._lock.acquire()
            self._open_file()
        if damage.gone and self.health.incident is None:
            then = (
                "the index now at this path is being updated"
                if self.has_completed_sync
                else "the index is being rebuilt from the Markdown"
            )
            reason = f"{self.path} was removed or replaced while it was in use; {then}"
            self.health.record_incident(impaired(self._wanted_path, self.path, reason))
        _require_open(self._pool).path = self.path
        if self._vectors is not None:
            self._vectors.reset()

    def _reopen_for_writing(self) -> None:
        old = _require_open(self._pool)
        self._lock.release()
        try:
            self._lock.acquire()
            with old.closed():
                self._open_for_writing()
                self._refusal = None
        except (IndexReadOnly, DiskFull):
            self._lock.acquire_to_read()
            raise
        old.close()

    def exclusive(self, should_stop: StopSign) -> AbstractContextManager[None]:  # noqa: ARG002 -- the protocol
        """Do nothing: the lock of the file excludes other processes from `open` to `close`."""
        return nullcontext()

    def watch(self, on_change: Callable[[], None]) -> None:
        """Do nothing, for the same reason."""

    def reload(self) -> None:
        """Do nothing, for the same reason."""

    def on_sound_index(self, work: Callable[[StopSign], _T], should_stop: StopSign) -> _T:
        """Call `work` and return its result; repair the index and call `work` again if damage is found during it.

        `work` receives a stop sign that is also set by damage.

        Raises:
            IndexDamaged: the re-created index was damaged too, three times in a row.
        """
        for attempts_left in (2, 1, 0):
            self.repair()
            try:
                with self._recording_damage():
                    result = work(lambda: should_stop() or self.health.damage is not None)
            except IndexDamaged:
                if not attempts_left:
                    raise
            except SyncCancelled:
                if should_stop() or self.health.damage is None:
                    raise
            else:
                if self.health.damage is None:
                    self._shrink_page_cache()
                    self.has_completed_sync = True
                    self.health.record_completion()
                    return result
        raise IndexDamaged(f"{self.path} was damaged again each time it was re-created; check the disk that it is on")

    def degradations(self) -> tuple[Degradation, ...]:
        """Return why searches do not read a complete index at the configured path; reported with every answer."""
        read_only = None
        if self._refusal is not None:
            reason = f"nothing new is indexed: {self._refusal.message}"
            read_only = impaired(self.path, "the index as it is", reason)
        candidates = (self._foreign, self.health.incident, read_only)
        return tuple(degradation for degradation in candidates if degradation is not None)

    def remarks(self) -> tuple[Degradation, ...]:
        """Return the remarks that only Status reports, because they do not affect answers."""
        rollback = impaired("write-ahead log", "rollback journal", self._journal_reason)
        candidates = (self.health.past_incident, rollback if self._journal_reason else None)
        return tuple(degradation for degradation in candidates if degradation is not None)

    def refresh_keyword(self, analyzer: Analyzer, should_stop: StopSign) -> int:
        """Rebuild the keyword index from the stored text with this analyzer; return the new revision.

        Raises:
            SyncCancelled: `should_stop` returned true; the old keyword index stays in use.
        """
        with translated():
            revision = maintenance.refresh_keyword(self._write_connection, analyzer, should_stop)
        self.keyword_outdated = False
        return revision

    @property
    def has_deleted_text(self) -> bool:
        """Whether words of deleted chunks may still be on the disk, so that `purge` is due."""
        with self._recording_damage(), translated():
            return self._refusal is None and schema.has_deleted_words(self._write_connection)

    def purge(self, should_stop: StopSign = lambda: False) -> bool:
        """Overwrite deleted words on the disk, on the writer thread; return False if it has to be called again."""
        with self._recording_damage(), translated():
            return maintenance.purge(self._write_connection, should_stop)

    def index_vectors(self) -> None:
        """Do nothing: searches compare all vectors, or their signs."""

    def release_memory(self) -> None:
        """Release the memory that an idle index holds: vectors, readers and the writer's pages; empty the log."""
        self._outside.release_memory()
        if self._vectors is not None:
            self._vectors.release_memory()
        self._caches.release_memory()
        if self._pool is not None:
            self._pool.release()
        if self._connection is not None:
            with self._recording_damage(), translated():
                self._connection.execute("PRAGMA shrink_memory").fetchall()
                # `close` would do this too, but many agents that close together would all wait for the disk.
                self._connection.wal_checkpoint()

    def _shrink_page_cache(self) -> None:
        """Free the writer's page cache after a large run; the next run is usually small."""
        connection = _require_open(self._connection)
        used_bytes, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)
        if used_bytes > _MAX_IDLE_CACHE_BYTES:
            with translated():
                connection.execute("PRAGMA shrink_memory").fetchall()

    @property
    def is_idle(self) -> bool:
        """Whether no reader is open."""
        return self._pool is None or (self._pool.is_idle and self._outside.is_idle)

    @property
    def last_counts(self) -> IndexCounts | None:
        """The last counts taken, with their revision; None before the first count."""
        return self._caches.counts

    @property
    def location(self) -> str:
        """The path of the index."""
        return str(self.path)

    @property
    def schema_version(self) -> int:
        """The version of the tables."""
        return schema.SCHEMA_VERSION

    def sizes(self) -> StoreSizes:
        """Return the bytes on disk of the index and of its write-ahead log. Blocks."""
        return opening.sizes(self.path)

    def probe_vector_engine(self) -> None:
        """Determine whether sqlite-vec loads and computes right distances. Blocks."""
        if self._vectors is not None:
            self._vectors.probe()

    def vector_engine(self) -> VectorEngineStatus:
        """Return which engine compares the vectors of a small index, as last probed. No I/O, no lock."""
        if self._vectors is None:
            return VectorEngineStatus("exact")
        engine = self._vectors.engine
        return VectorEngineStatus(engine.engine, engine.version, engine.load_error, self._vectors.form, engine.path)

    def vector_memory_bytes(self) -> int:
        """Return the bytes of vectors and filters in memory. Waits for a commit that is changing the vectors."""
        vectors = 0 if self._vectors is None else self._vectors.memory_bytes
        return vectors + self._caches.filters.memory_bytes

    @contextmanager
    def rebuild(self) -> Iterator[SqliteWriter]:
        """Open a writer into an empty second file, which replaces the index when the block ends without an exception.

        Readers see the old index until the swap, which waits for open readers and takes milliseconds.
        """
        path = opening.rebuilding_path(self.path)
        with translated():
            opening.discard(self.path)
        revision = self.writer().revision()
        try:
            with opening.new_index(path, self._identity, self.journal, revision) as connection:
                yield SqliteWriter(connection, self._identity_json)
                with translated():
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except BaseException as error:
            with translated():
                opening.remove_database(path)
            # Damage that a reader or `repair` met is recorded already, and is the old index's.
            if isinstance(error, IndexDamaged) and self.health.damage is None:
                reason = f"the rebuilt index was damaged while it was written: {error.__cause__ or error}"
                raise IndexUnavailable(reason) from error
            raise
        with translated():
            self._swap()

    def _swap(self) -> None:
        self._outside.close()
        with _require_open(self._pool).closed():
            self._close_writer()
            try:
                self._commit_swap()
            finally:
                self._open_file()
                if self._vectors is not None:
                    self._vectors.reset()

    def _commit_swap(self) -> None:
        try:
            opening.commit(self.path)
        except BaseException:
            opening.discard(self.path)
            raise


def _require_open(value: _T | None) -> _T:
    if value is None:
        raise IndexUnavailable("the index is not open")
    return value
