"""Cache file: vectors, refusals, usage, batch jobs.

Embeddings by what made them, in a file of their own: neither a rebuild nor a damaged index loses paid ones.

The file of the embedding cache. What it holds can be made again, so no trouble with it stops an agent.

The batch jobs under way, in the embedding cache's file: written before a job is made, so that none is paid twice.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from memoryd_server.errors import IndexUnavailable
from memoryd_server.model import Degradation
from memoryd_server.sqlite import opening
from memoryd_server.sqlite.connection import (
    FileIdentity,
    JournalMode,
    damage_words,
    impaired,
    is_damage,
    open_writer,
    scalar,
    transaction,
    translated,
)
from memoryd_server.store import BatchJob, CacheKey, Counts, Maker

# A file that could not be opened is tried again after so long.
RETRY_MS = 60_000

_T = TypeVar("_T")


class CacheFile:
    """One connection for one caller at a time; `tables` are made where they are missing.

    A damaged file is set aside, a removed one begun anew, and memory stands in for one that cannot be opened, as it
    does for a `path` of None. `trouble` says so. The file is opened when it is first used, and again after a rest.
    `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(
        self, path: Path | None, tables: tuple[str, ...], journal: JournalMode, now_ms: Callable[[], int]
    ) -> None:
        self._path = path
        self._tables = tables
        self._journal = journal
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._mark: FileIdentity | None = None
        self._tried_at_ms = 0
        self._closed = False
        self._connection: apsw.Connection | None = None
        self.trouble: Degradation | None = None

    def use(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """What `work` answers, on an empty file where it met damage.

        Raises:
            DiskFull, IndexBusy, IndexUnavailable: the file cannot be used; nothing of `work` is kept.
        """
        with self._guard, translated():
            if self._closed:
                raise IndexUnavailable("the embedding cache is closed")
            self._look()
            connection = self._opened()
            try:
                return work(connection)
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                self._let_go()
                self._set_aside(error)
            try:
                return work(self._opened())
            except apsw.Error as error:
                raise IndexUnavailable(f"the embedding cache cannot be used: {error}") from error

    def _look(self) -> None:
        """Lets the file go where it was removed, or could not be opened a while ago, for it to be opened again."""
        if self._path is None or self._connection is None:
            return
        is_gone = self._mark is not None and self._mark.has_changed(self._path)
        if is_gone or (self._mark is None and self._now_ms() - self._tried_at_ms > RETRY_MS):
            self._let_go()
            if not self._path.exists():
                opening.remove_journals(self._path)

    def _let_go(self) -> None:
        self._mark = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._anew()
        return self._connection

    def _anew(self) -> apsw.Connection:
        if self._path is None:
            return self._made(apsw.Connection(":memory:"))
        try:
            return self._from_disk(self._path)
        except (apsw.Error, OSError) as error:
            self._tried_at_ms = self._now_ms()
            self.trouble = self._told("memory", f"the embedding cache cannot be opened ({error})")
            return self._made(apsw.Connection(":memory:"))

    def _from_disk(self, path: Path) -> apsw.Connection:
        try:
            connection = self._made(open_writer(path, self._journal))
        except apsw.Error as error:
            if not is_damage(error):
                raise
            self._set_aside(error)
            connection = self._made(open_writer(path, self._journal))
        # What is read from here is read once: pages that are kept would be kept for nothing, in every agent.
        connection.execute("PRAGMA cache_size=-2000").fetchall()
        self._mark = FileIdentity.of(path, is_local=self._journal is JournalMode.LOG)
        if self.trouble is not None and self.trouble.used == "memory":
            self.trouble = None
        return connection

    def _made(self, connection: apsw.Connection) -> apsw.Connection:
        try:
            for statement in self._tables:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, error: apsw.Error) -> None:
        if self._path is None:
            raise error
        aside = opening.move_aside(self._path, self._now_ms() / 1000)
        words = f"the embedding cache was damaged ({damage_words(error)}) and set aside as {aside}"
        self.trouble = self._told(str(aside), words)

    def _told(self, used: str, words: str) -> Degradation:
        reason = f"{words}; vectors that it held are made again where they are needed"
        return impaired(self._path, used, reason)

    def rest(self) -> None:
        """Lets the file go until it is used again; what stands in for one that cannot be opened stays."""
        with self._guard:
            if self._mark is not None:
                self._let_go()

    def close(self) -> None:
        """Closes the file. Closing twice is fine."""
        with self._guard:
            self._closed = True
            self._let_go()


TABLES = (
    """CREATE TABLE IF NOT EXISTS batch_jobs(
        name TEXT PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL,
        job_id TEXT NOT NULL, texts INTEGER NOT NULL, begun_at_ms INTEGER NOT NULL, attempt INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS batch_texts(name TEXT, hash BLOB, PRIMARY KEY(name, hash)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS batch_texts_by_hash ON batch_texts(hash)",
)

KEPT_MS = 7 * 24 * 60 * 60 * 1_000
"""Jobs of a maker that is not asked any more are forgotten after so long."""

Insert = Callable[[apsw.Connection, CacheKey, Mapping[bytes, bytes]], None]


class SqliteBatchJobTable:
    """The jobs and the hashes of the texts that they are to bring. Thread-safe; what it says is written at once.

    `insert` puts vectors into the cache, within a transaction. Every method raises what `CacheFile.use` does.
    """

    def __init__(self, file: CacheFile, insert: Insert) -> None:
        self._file = file
        self._insert = insert

    def begin(self, key: CacheKey, job: BatchJob, hashes: Collection[bytes]) -> None:
        """Notes a job that is about to be made."""
        row = (job.name, key.provider, key.model, key.provider_key, job.job_id, job.texts, job.begun_at_ms, job.attempt)

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM batch_jobs WHERE begun_at_ms < ?", (job.begun_at_ms - KEPT_MS,))
                connection.execute("DELETE FROM batch_texts WHERE name NOT IN (SELECT name FROM batch_jobs)")
                connection.execute("INSERT INTO batch_jobs VALUES(?,?,?,?,?,?,?,?)", row)
                connection.executemany("INSERT INTO batch_texts VALUES(?,?)", [(job.name, each) for each in hashes])

        self._file.use(write)

    def made(self, name: str, job_id: str) -> None:
        """Notes the provider's id of a job."""
        self._file.use(
            lambda connection: connection.execute(
                "UPDATE batch_jobs SET job_id=? WHERE name=?", (job_id, name)
            ).fetchall()
        )

    def jobs(self, key: CacheKey) -> list[BatchJob]:
        """The jobs under way, the oldest first."""
        query = (
            "SELECT name, job_id, texts, begun_at_ms, attempt FROM batch_jobs"
            " WHERE provider=? AND model=? AND provider_key=? ORDER BY begun_at_ms, name"
        )
        values = (key.provider, key.model, key.provider_key)
        return self._file.use(lambda connection: [BatchJob(*row) for row in connection.execute(query, values)])

    def hashes(self, key: CacheKey) -> set[bytes]:
        """The texts that jobs under way are to bring."""
        query = (
            "SELECT hash FROM batch_texts JOIN batch_jobs USING(name) WHERE provider=? AND model=? AND provider_key=?"
        )
        values = (key.provider, key.model, key.provider_key)
        return self._file.use(lambda connection: {row[0] for row in connection.execute(query, values)})

    def hashes_of(self, name: str) -> set[bytes]:
        """The texts that one job is to bring."""
        query = "SELECT hash FROM batch_texts WHERE name=?"
        return self._file.use(lambda connection: {row[0] for row in connection.execute(query, (name,))})

    def take(self, key: CacheKey, name: str, vectors: Mapping[bytes, bytes]) -> list[bytes]:
        """Puts what a job has made into the cache; the texts that were still wanted of it."""

        def write(connection: apsw.Connection) -> list[bytes]:
            query = "SELECT 1 FROM batch_texts WHERE name=? AND hash=?"
            with transaction(connection):
                wanted = [each for each in vectors if connection.execute(query, (name, each)).fetchall()]
                self._insert(connection, key, {each: vectors[each] for each in wanted})
            return wanted

        return self._file.use(write)

    def end(self, name: str) -> None:
        """Forgets a job: nothing more comes of it."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM batch_texts WHERE name=?", (name,))
                connection.execute("DELETE FROM batch_jobs WHERE name=?", (name,))

        self._file.use(write)


REFUSED_FOR_MS = 24 * 60 * 60 * 1_000
"""A text that was refused is asked for again after so long: the provider may have learnt to read it."""

MOST_REFUSED = 10_000

_HASHES_A_QUERY = 400
_MOST_REASON_CHARS = 400

_TABLES = (
    """CREATE TABLE IF NOT EXISTS embedding_cache(
        provider TEXT, model TEXT, provider_key TEXT, hash BLOB, embedding BLOB NOT NULL, used_at_ms INTEGER NOT NULL,
        PRIMARY KEY(provider, model, provider_key, hash)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS embedding_cache_by_use ON embedding_cache(used_at_ms)",
    """CREATE TABLE IF NOT EXISTS refused_texts(
        provider TEXT, model TEXT, provider_key TEXT, hash BLOB, reason TEXT NOT NULL, refused_at_ms INTEGER NOT NULL,
        PRIMARY KEY(provider, model, provider_key, hash)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS provider_usage(
        provider TEXT, model TEXT, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, retries INTEGER NOT NULL,
        cache_hits INTEGER NOT NULL, PRIMARY KEY(provider, model)) WITHOUT ROWID""",
    *TABLES,
)


class EmbeddingCache:
    """Vectors as little-endian float32 blobs, by maker and SHA-256 of the text; the least recently used go first.

    Beside them stand the texts that a maker has refused, how much was asked of each, and the batch jobs under way.
    `path` None keeps everything in memory. What a damaged or removed file held is paid for again; `problem` says so.
    Thread-safe; one caller at a time is served. `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(
        self, path: Path | None, max_entries: int, now_ms: Callable[[], int], journal: JournalMode = JournalMode.LOG
    ) -> None:
        self.max_entries = max_entries
        self._now_ms = now_ms
        self._file = CacheFile(path, _TABLES, journal, now_ms)
        self.jobs = SqliteBatchJobTable(self._file, self._insert)

    @property
    def problem(self) -> Degradation | None:
        """What became of the file, where it could not be used as it was; None when nothing did."""
        return self._file.trouble

    def get(self, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The vectors held for these texts, by hash; a hit counts as a use."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(hashes), _HASHES_A_QUERY):
            some = hashes[start : start + _HASHES_A_QUERY]
            found.update(self._file.use(partial(self._get, key=key, hashes=some)))
        return found

    def _get(self, connection: apsw.Connection, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        where = f"provider=? AND model=? AND provider_key=? AND hash IN ({','.join('?' * len(hashes))})"
        values = (key.provider, key.model, key.provider_key, *hashes)
        with transaction(connection):
            rows = dict(connection.execute(f"SELECT hash, embedding FROM embedding_cache WHERE {where}", values))  # noqa: S608
            connection.execute(
                f"UPDATE embedding_cache SET used_at_ms=? WHERE {where}",  # noqa: S608 -- constants and marks
                (self._now_ms(), *values),
            )
        return rows

    def put(self, key: CacheKey, vectors: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Stores vectors by hash, at once and for good, and lets the least recently used go beyond the limit."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                self._insert(connection, key, dict(vectors))

        self._file.use(write)

    def _insert(self, connection: apsw.Connection, key: CacheKey, vectors: Mapping[bytes, bytes]) -> None:
        now = self._now_ms()
        rows = [(key.provider, key.model, key.provider_key, text, vector, now) for text, vector in vectors.items()]
        connection.executemany("INSERT OR REPLACE INTO embedding_cache VALUES(?,?,?,?,?,?)", rows)
        self._prune(connection)

    def _prune(self, connection: apsw.Connection) -> None:
        surplus = _count(connection) - self.max_entries
        if surplus > 0:
            connection.execute(
                "DELETE FROM embedding_cache WHERE (provider, model, provider_key, hash) IN"
                " (SELECT provider, model, provider_key, hash FROM embedding_cache ORDER BY used_at_ms LIMIT ?)",
                (surplus,),
            )

    def refused(self, key: CacheKey) -> dict[bytes, str]:
        """The texts, by hash, that this maker has refused within the last day, and why."""
        since = self._now_ms() - REFUSED_FOR_MS
        query = (
            "SELECT hash, reason FROM refused_texts"
            " WHERE provider=? AND model=? AND provider_key=? AND refused_at_ms > ?"
        )
        values = (key.provider, key.model, key.provider_key, since)
        return self._file.use(lambda connection: dict(connection.execute(query, values)))

    def refuse(self, key: CacheKey, reasons: Mapping[bytes, str]) -> None:
        """Remembers texts, by hash, that this maker refuses; of more than 10,000 the oldest are forgotten."""
        now = self._now_ms()
        rows = [
            (key.provider, key.model, key.provider_key, text, reason[:_MOST_REASON_CHARS], now)
            for text, reason in reasons.items()
        ]

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.executemany("INSERT OR REPLACE INTO refused_texts VALUES(?,?,?,?,?,?)", rows)
                connection.execute("DELETE FROM refused_texts WHERE refused_at_ms <= ?", (now - REFUSED_FOR_MS,))
                connection.execute(
                    "DELETE FROM refused_texts WHERE (provider, model, provider_key, hash) IN"
                    " (SELECT provider, model, provider_key, hash FROM refused_texts"
                    " ORDER BY refused_at_ms DESC LIMIT -1 OFFSET ?)",
                    (MOST_REFUSED,),
                )

        self._file.use(write)

    def forget_refused(self) -> None:
        """Forgets every refusal, whoever refused."""
        self._file.use(lambda connection: connection.execute("DELETE FROM refused_texts").fetchall())

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Forgets these texts, by hash, whoever made or refused a vector of them; how many vectors were held.

        What a batch job under way brings of them is not taken in.
        """
        rows = [(text,) for text in set(hashes)]

        def write(connection: apsw.Connection) -> int:
            before = connection.total_changes()
            with transaction(connection):
                connection.executemany("DELETE FROM embedding_cache WHERE hash=?", rows)
                forgotten = connection.total_changes() - before
                connection.executemany("DELETE FROM refused_texts WHERE hash=?", rows)
                # What a batch job still makes of them is not wanted.
                connection.executemany("DELETE FROM batch_texts WHERE hash=?", rows)
            # What is deleted is overwritten in the file, and the log would still hold it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return forgotten

        return self._file.use(write) if rows else 0

    def usage(self) -> dict[Maker, Counts]:
        """How much was asked of each maker, as it was noted last."""

        def read(connection: apsw.Connection) -> dict[Maker, Counts]:
            rows: list[tuple[Any, ...]] = connection.execute("SELECT * FROM provider_usage").fetchall()
            return {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in rows}

        return self._file.use(read)

    def note_usage(self, usage: Mapping[Maker, Counts]) -> None:
        """Notes how much was asked of makers, all in all."""
        rows = [(*maker, *counts) for maker, counts in usage.items()]

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.executemany("INSERT OR REPLACE INTO provider_usage VALUES(?,?,?,?,?,?)", rows)

        self._file.use(write)

    def count(self) -> int:
        """Vectors held."""
        return self._file.use(_count)

    def release_memory(self) -> None:
        """Lets its file go until it is used again."""
        self._file.rest()

    def close(self) -> None:
        """Closes the file. Closing twice is fine."""
        self._file.close()


def _count(connection: apsw.Connection) -> int:
    return int(scalar(connection, "SELECT count(*) FROM embedding_cache"))
