"""One agent's index file: opened under a lock, rebuilt beside itself, swapped in whole, begun anew where it is lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import apsw

from memoryd_server.errors import DiskFull, IndexDamaged, IndexReadOnly, IndexUnavailable, MemorydError, SyncCancelled
from memoryd_server.model import Degradation
from memoryd_server.sources import MOUNT_TABLE
from memoryd_server.sqlite import maintenance, opening, schema
from memoryd_server.sqlite.connection import FileIdentity, JournalMode, impaired, journal_for, open_reader, translated
from memoryd_server.sqlite.opening import IndexFacts, open_to_read, refusals_named
from memoryd_server.sqlite.reader import ReaderCaches, SqliteReader, reading
from memoryd_server.sqlite.readers import ReaderPool
from memoryd_server.sqlite.vector_index import VectorIndex
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

# A writer keeps so much between two runs.
_MOST_KEPT_BYTES = 2 * 2**20

_T = TypeVar("_T")


class SqliteStore:
    """The index at `path`, held by this process from `open` to `close`.

    `vectors` finds the nearest chunks, and hears of every vector and chunk that comes or goes. `read` may be used from
    any thread, all else belongs to the agent's one writer thread.
    """

    def __init__(
        self,
        path: Path,
        identity: BuildIdentity,
        vectors: VectorIndex | None = None,
        mount_table: Path = MOUNT_TABLE,
    ) -> None:
        self._wanted_path = path
        self._identity = identity
        self._mount_table = mount_table
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._connection: apsw.Connection | None = None
        self._pool: ReaderPool | None = None
        self._last_counts = ReaderCaches()
        self._vectors = vectors
        self._mark: FileIdentity | None = None
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
        """Whether a sync has completed since the index was begun; before that, revisions tell nothing."""

    def reserve(self) -> None:
        """Takes the lock ahead of `open`, which tells of all else that may keep the index from being opened.

        Raises:
            IndexBusy: another process holds the index.
        """
        with suppress(IndexReadOnly, DiskFull, IndexUnavailable):
            self._lock.acquire()

    def open(self) -> None:
        """Locks and opens the index, creating, recovering or setting aside what is at the path.

        Where the folder cannot be written, or its disk is full, an index in it is opened to be read.

        Raises:
            IndexBusy: another process holds the index.
            IndexTooNew: a newer memoryd wrote it.
            IndexReadOnly: the folder cannot be written and holds no index that could be read.
            DiskFull, IndexUnavailable: it can neither be opened nor made.
        """
        try:
            try:
                self._lock.acquire()
                self._open_to_write()
            except (IndexReadOnly, DiskFull) as error:
                self._open_to_read(error)
        except BaseException:
            self.close()
            raise

    def _open_to_write(self) -> None:
        self.journal, self._journal_reason = journal_for(self._wanted_path.parent, self._mount_table)
        with refusals_named(self._wanted_path.parent), translated():
            self._open_file()
        self._pool = ReaderPool(self.path, READERS, self._open_reader)

    def _open_file(self) -> None:
        self.path, self._foreign = opening.own_path(self._wanted_path)
        known = self._last_counts.counts
        opened = opening.open_index(self.path, self._identity, self.journal, known.revision if known else 0)
        self._connection = opened.connection
        self._mark = FileIdentity.of(self.path, is_local=self.journal is JournalMode.LOG)
        self._note(opened.facts)
        if opened.mishap is not None:
            self.health.happened(opened.mishap)

    def _note(self, facts: IndexFacts) -> None:
        self.keyword_outdated = facts.keyword_outdated
        self.built_with = facts.built_with
        self.build_differences = facts.differences
        self.has_completed_sync = facts.whole

    def _open_to_read(self, refusal: MemorydError) -> None:
        with translated():
            self._lock.acquire_to_read()
            self.path, self._foreign = opening.own_path(self._wanted_path)
            self._pool = open_to_read(self.path, READERS, refusal)
            self._refusal = refusal
            with self._pool.connection() as connection:
                self._note(IndexFacts.of(connection, self._identity))

    def _open_reader(self, path: Path) -> apsw.Connection:
        try:
            return open_reader(path)
        except apsw.CantOpenError as error:
            if path.exists():
                raise
            raise _lost(path) from error

    def close(self) -> None:
        """Closes every connection and gives the lock up. Closing twice is fine."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._close_writer()
        self._lock.release()

    def _close_writer(self) -> None:
        self._mark = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            # Closing copies the log into the file, which damage or a full disk may refuse; nothing is lost by that.
            with suppress(apsw.Error):
                connection.close()

    def writer(self) -> SqliteWriter:
        """The rows of the index, for the writer thread.

        Raises:
            IndexReadOnly, DiskFull: the index could only be opened to be read.
        """
        return SqliteWriter(self._writing, self._identity, self._vectors)

    @property
    def _writing(self) -> apsw.Connection:
        if self._refusal is not None:
            raise type(self._refusal)(self._refusal.message)
        return _opened(self._connection)

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[SqliteReader]:
        """One snapshot of the index, until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline came first.
            IndexDamaged: the index was found damaged or gone; `health` tells that, and the next `repair` begins anew.
            IndexUnavailable: it cannot be read.
        """
        nearest = None if self._vectors is None else self._vectors.search
        with self._noticing(), reading(_opened(self._pool), self._last_counts, deadline, nearest) as reader:
            # Within the reader's turn: a swap, which changes the file too, waits for its end.
            if self._mark is not None and self._mark.is_gone(self.path):
                raise _lost(self.path)
            yield reader

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Remembers damage that its body meets."""
        generation = self.health.generation
        try:
            yield
        except IndexDamaged as error:
            self.health.found(Damage(error.message, gone=not self.path.exists()), generation)
            raise

    def repair(self) -> bool:
        """Begins the index anew where it was found damaged or gone; true when it did. For the writer thread.

        Where the folder could not be written and can be now, writing begins.

        Raises:
            IndexReadOnly: the folder cannot be written.
            IndexBusy: another process has taken the lock, whose file was gone.
            DiskFull, IndexUnavailable: no index can be made.
        """
        if self._refusal is not None:
            self._begin_writing()
            return False
        if self._mark is None or self._mark.has_changed(self.path):
            self.health.found(Damage(_lost(self.path).message, gone=True), self.health.generation)
        damage = self.health.damage
        if damage is None:
            return False
        with _opened(self._pool).closed():
            self._close_writer()
            self._begin_anew(damage)
            self.health.mended()
        return True

    def _begin_anew(self, damage: Damage) -> None:
        with refusals_named(self.path.parent), translated():
            if not self.path.exists():
                opening.remove_journals(self.path)
            elif not damage.gone:
                self.health.happened(opening.set_aside(self.path, damage.reason))
                # What stands there from now on is our own beginning, whose end may have to wait for space.
                self.health.damage = replace(damage, gone=True)
            if self._lock.is_lost:
                self._lock.release()
                self._lock.acquire()
            self._open_file()
        if damage.gone and self.health.incident is None:
            then = (
                "what stands there now is brought up to date" if self.has_completed_sync else "the index is built anew"
            )
            reason = f"{self.path} was removed or replaced while it was in use; {then}"
            self.health.happened(impaired(self._wanted_path, self.path, reason))
        _opened(self._pool).path = self.path
        if self._vectors is not None:
            self._vectors.reset()

    def _begin_writing(self) -> None:
        old = _opened(self._pool)
        self._lock.release()
        try:
            self._lock.acquire()
            with old.closed():
                self._open_to_write()
                self._refusal = None
        except (IndexReadOnly, DiskFull):
            self._lock.acquire_to_read()
            raise
        old.close()

    def on_sound_index(self, work: Callable[[StopSign], _T], should_stop: StopSign) -> _T:
        """Does `work`, which stops where it is told to, on a sound index: again where damage came up meanwhile.

        Raises:
            IndexDamaged: what was begun anew was damaged, too, time and again.
        """
        for turns_left in (2, 1, 0):
            self.repair()
            try:
                with self._noticing():
                    done = work(lambda: should_stop() or self.health.damage is not None)
            except IndexDamaged:
                if not turns_left:
                    raise
            except SyncCancelled:
                if should_stop() or self.health.damage is None:
                    raise
            else:
                if self.health.damage is None:
                    self._give_back_pages()
                    self.has_completed_sync = True
                    self.health.rebuilt()
                    return done
        raise IndexDamaged("the index was found damaged each time that it was begun anew; look at the disk it is on")

    def degradations(self) -> tuple[Degradation, ...]:
        """What stands in for a whole index of our own, for every answer to say."""
        read_only = None
        if self._refusal is not None:
            reason = f"nothing new is taken up: {self._refusal.message}"
            read_only = impaired(self.path, "the index as it is", reason)
        found = (self._foreign, self.health.incident, read_only)
        return tuple(degradation for degradation in found if degradation is not None)

    def remarks(self) -> tuple[Degradation, ...]:
        """What Status tells beyond that: no answer is the worse for it."""
        rollback = impaired("write-ahead log", "rollback journal", self._journal_reason)
        found = (self.health.past_incident, rollback if self._journal_reason else None)
        return tuple(degradation for degradation in found if degradation is not None)

    def refresh_keyword(self, analyzer: Analyzer, should_stop: StopSign) -> int:
        """Builds the keyword leg anew from the stored text with the present analyzer; returns the new revision.

        Raises:
            SyncCancelled: `should_stop` said so; the old words stay in use.
        """
        with translated():
            revision = maintenance.refresh_keyword(self._writing, analyzer, should_stop)
        self.keyword_outdated = False
        return revision

    @property
    def has_deleted_text(self) -> bool:
        """Whether words of deleted chunks may still be on the disk, so that `purge` is due."""
        with self._noticing(), translated():
            return self._refusal is None and maintenance.has_deleted_words(self._writing)

    def purge(self, should_stop: StopSign = lambda: False) -> bool:
        """Makes deleted words vanish from the disk, for the writer thread; false when it has to be tried again."""
        with self._noticing(), translated():
            return maintenance.purge(self._writing, should_stop)

    def release_memory(self) -> None:
        """Gives back what costs memory while nobody asks: vectors, readers, the writer's pages; empties the log."""
        if self._vectors is not None:
            self._vectors.unload()
        self._last_counts.rest()
        if self._pool is not None:
            self._pool.release()
        if self._connection is not None:
            with self._noticing(), translated():
                self._connection.execute("PRAGMA shrink_memory").fetchall()
                # What closing would do. Many agents that close at once would all wait for the disk.
                self._connection.wal_checkpoint()

    def _give_back_pages(self) -> None:
        """Frees what a large run has filled the writer's cache with: the next run is small, most often."""
        connection = _opened(self._connection)
        kept, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)
        if kept > _MOST_KEPT_BYTES:
            with translated():
                connection.execute("PRAGMA shrink_memory").fetchall()

    @property
    def is_idle(self) -> bool:
        """Whether no reader is open."""
        return self._pool is None or self._pool.at_rest

    @property
    def last_counts(self) -> IndexCounts | None:
        """What was counted last, of the revision that it names; None where nothing was."""
        return self._last_counts.counts

    @property
    def location(self) -> str:
        """The path of the index."""
        return str(self.path)

    @property
    def schema_version(self) -> int:
        """The version of the tables."""
        return schema.SCHEMA_VERSION

    def sizes(self) -> StoreSizes:
        """Bytes on disk: the index, and its write-ahead log."""
        return opening.sizes(self.path)

    def probe_vector_engine(self) -> None:
        """Finds out whether sqlite-vec serves."""
        if self._vectors is not None:
            self._vectors.probe()

    def vector_engine(self) -> VectorEngineStatus:
        """Who compares the vectors of a small index, as last found out."""
        if self._vectors is None:
            return VectorEngineStatus("exact")
        engine = self._vectors.engine
        return VectorEngineStatus(engine.engine, engine.version, engine.load_error, self._vectors.form)

    def vector_memory_bytes(self) -> int:
        """What vectors take in memory. Waits for a commit that changes them."""
        return 0 if self._vectors is None else self._vectors.memory_bytes

    @contextmanager
    def rebuild(self) -> Iterator[SqliteWriter]:
        """A writer into an empty file beside the index, swapped in when the block ends without an error.

        Readers see the old index until the swap, which waits for those at work and takes milliseconds.
        """
        beside = opening.rebuilding_path(self.path)
        with translated():
            opening.discard(self.path)
        revision = self.writer().revision()
        try:
            with opening.begun(beside, self._identity, self.journal, revision) as connection:
                yield SqliteWriter(connection, self._identity)
                with translated():
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except BaseException as error:
            with translated():
                opening.remove_database(beside)
            # Damage that a reader or `repair` met is known already, and is the old index's.
            if isinstance(error, IndexDamaged) and self.health.damage is None:
                words = f"the rebuilt index was damaged while it was written: {error.__cause__ or error}"
                raise IndexUnavailable(words) from error
            raise
        with translated():
            self._swap()

    def _swap(self) -> None:
        with _opened(self._pool).closed():
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


def _lost(path: Path) -> IndexDamaged:
    return IndexDamaged(
        f"{path} was removed or replaced while it was in use; it is opened again or built anew from the Markdown",
        retry_after_seconds=1.0,
    )


def _opened(value: _T | None) -> _T:
    if value is None:
        raise IndexUnavailable("the index is not open")
    return value
