"""The embedding cache: vectors, refused texts, provider usage and batch jobs, in a file separate from the index.

Neither a rebuild nor a damaged index loses embeddings that were paid for. Everything in the file can be made again, so
no problem with the file stops an agent. A batch job is written before it is submitted, so that no job is paid for
twice.
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
    damage_reason,
    impaired,
    is_damage,
    open_writer,
    scalar,
    transaction,
    translated,
)
from memoryd_server.store import MAX_COUNT, BatchJob, CacheKey, Counts, ProviderModel

# How long after a failure to open the file the next attempt is made.
RETRY_MS = 60_000

_T = TypeVar("_T")


class CacheFile:
    """One connection to the cache file, for one caller at a time; missing `tables` are created.

    A damaged file is set aside and a removed one re-created. If the file cannot be opened, or `path` is None, the cache
    is in memory. `problem` reports this. The file is opened on first use, and again after `release_memory`. `now_ms` is
    the wall clock in Unix milliseconds.
    """

    def __init__(
        self, path: Path | None, tables: tuple[str, ...], journal: JournalMode, now_ms: Callable[[], int]
    ) -> None:
        self._path = path
        self._tables = tables
        self._journal = journal
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._identity: FileIdentity | None = None
        self._tried_at_ms = 0
        self._closed = False
        self._connection: apsw.Connection | None = None
        self.problem: Degradation | None = None

    def use(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """Return the result of `work`; if it meets damage, set the file aside and call `work` again on an empty one.

        Raises:
            DiskFull, IndexBusy, IndexUnavailable: the file cannot be used; nothing of `work` is kept.
        """
        with self._guard, translated():
            if self._closed:
                raise IndexUnavailable("the index is closed")
            self._check_file()
            connection = self._open()
            try:
                return work(connection)
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                self._close()
                self._set_aside(error)
            try:
                return work(self._open())
            except apsw.Error as error:
                raise IndexUnavailable(f"the embedding cache cannot be used: {error}") from error

    def _check_file(self) -> None:
        """Close the connection if the file was removed or it is time to retry opening it."""
        if self._path is None or self._connection is None:
            return
        is_gone = self._identity is not None and self._identity.has_changed(self._path)
        if is_gone or (self._identity is None and self._now_ms() - self._tried_at_ms > RETRY_MS):
            self._close()
            if not self._path.exists():
                opening.remove_journals(self._path)

    def _close(self) -> None:
        self._identity = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> apsw.Connection:
        if self._path is None:
            return self._create_tables(apsw.Connection(":memory:"))
        try:
            return self._open_file(self._path)
        except (apsw.Error, OSError) as error:
            self._tried_at_ms = self._now_ms()
            self.problem = self._degradation("memory", f"the embedding cache cannot be opened ({error})")
            return self._create_tables(apsw.Connection(":memory:"))

    def _open_file(self, path: Path) -> apsw.Connection:
        try:
            connection = self._create_tables(open_writer(path, self._journal))
        except apsw.Error as error:
            if not is_damage(error):
                raise
            self._set_aside(error)
            connection = self._create_tables(open_writer(path, self._journal))
        # Rows are read once, so a larger page cache would only cost memory, for each agent.
        connection.execute("PRAGMA cache_size=-2000").fetchall()
        self._identity = FileIdentity.of(path, is_local=self._journal is JournalMode.LOG)
        if self.problem is not None and self.problem.used == "memory":
            self.problem = None
        return connection

    def _create_tables(self, connection: apsw.Connection) -> apsw.Connection:
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
        what = f"the embedding cache was damaged ({damage_reason(error)}) and set aside as {aside}"
        self.problem = self._degradation(str(aside), what)

    def _degradation(self, used: str, what: str) -> Degradation:
        reason = f"{what}; vectors that were in it are requested again when they are needed"
        return impaired(self._path, used, reason)

    def release_memory(self) -> None:
        """Close the file until it is used again; a cache in memory stays."""
        with self._guard:
            if self._identity is not None:
                self._close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._guard:
            self._closed = True
            self._close()


_JOB_TABLES = (
    """CREATE TABLE IF NOT EXISTS batch_jobs(
        name TEXT PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, provider_key TEXT NOT NULL,
        job_id TEXT NOT NULL, texts INTEGER NOT NULL, begun_at_ms INTEGER NOT NULL, attempt INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS batch_texts(name TEXT, hash BLOB, PRIMARY KEY(name, hash)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS batch_texts_by_hash ON batch_texts(hash)",
)

RETENTION_MS = 7 * 24 * 60 * 60 * 1_000
"""How long the jobs of a provider that is no longer used are kept, in milliseconds."""

Insert = Callable[[apsw.Connection, CacheKey, Mapping[bytes, bytes]], None]


class SqliteBatchJobTable:
    """The batch jobs and the hashes of their texts. Thread-safe; each call is durable when it returns.

    `insert` puts vectors into the cache, within a transaction. Every method raises the errors of `CacheFile.use`.
    """

    def __init__(self, file: CacheFile, insert: Insert) -> None:
        self._file = file
        self._insert = insert

    def add(self, key: CacheKey, job: BatchJob, hashes: Collection[bytes]) -> None:
        """Store a job before it is submitted."""
        row = (job.name, key.provider, key.model, key.provider_key, job.job_id, job.texts, job.begun_at_ms, job.attempt)

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM batch_jobs WHERE begun_at_ms < ?", (job.begun_at_ms - RETENTION_MS,))
                connection.execute("DELETE FROM batch_texts WHERE name NOT IN (SELECT name FROM batch_jobs)")
                connection.execute("INSERT INTO batch_jobs VALUES(?,?,?,?,?,?,?,?)", row)
                connection.executemany("INSERT INTO batch_texts VALUES(?,?)", [(job.name, each) for each in hashes])

        self._file.use(write)

    def set_job_id(self, name: str, job_id: str) -> None:
        """Store the provider's id of a job."""
        self._file.use(
            lambda connection: connection.execute(
                "UPDATE batch_jobs SET job_id=? WHERE name=?", (job_id, name)
            ).fetchall()
        )

    def jobs(self, key: CacheKey) -> list[BatchJob]:
        """Return the running jobs, oldest first."""
        query = (
            "SELECT name, job_id, texts, begun_at_ms, attempt FROM batch_jobs"
            " WHERE provider=? AND model=? AND provider_key=? ORDER BY begun_at_ms, name"
        )
        values = (key.provider, key.model, key.provider_key)
        return self._file.use(lambda connection: [BatchJob(*row) for row in connection.execute(query, values)])

    def hashes(self, key: CacheKey) -> set[bytes]:
        """Return the hashes of the texts in running jobs."""
        query = (
            "SELECT hash FROM batch_texts JOIN batch_jobs USING(name) WHERE provider=? AND model=? AND provider_key=?"
        )
        values = (key.provider, key.model, key.provider_key)
        return self._file.use(lambda connection: {row[0] for row in connection.execute(query, values)})

    def hashes_of(self, name: str) -> set[bytes]:
        """Return the hashes of the texts in one job."""
        query = "SELECT hash FROM batch_texts WHERE name=?"
        return self._file.use(lambda connection: {row[0] for row in connection.execute(query, (name,))})

    def put_vectors(self, key: CacheKey, name: str, vectors: Mapping[bytes, bytes]) -> list[bytes]:
        """Put a job's vectors into the cache; return the hashes of those texts that the job still lists."""

        def write(connection: apsw.Connection) -> list[bytes]:
            query = "SELECT 1 FROM batch_texts WHERE name=? AND hash=?"
            with transaction(connection):
                wanted = [each for each in vectors if connection.execute(query, (name, each)).fetchall()]
                self._insert(connection, key, {each: vectors[each] for each in wanted})
            return wanted

        return self._file.use(write)

    def delete(self, name: str) -> None:
        """Delete a job that will bring no more vectors."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM batch_texts WHERE name=?", (name,))
                connection.execute("DELETE FROM batch_jobs WHERE name=?", (name,))

        self._file.use(write)


REFUSED_FOR_MS = 24 * 60 * 60 * 1_000
"""How long a refused text is not sent again; the provider may accept it later."""

MAX_REFUSED = 10_000

_HASHES_PER_QUERY = 400
_MAX_REASON_CHARS = 400

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
    *_JOB_TABLES,
)


_SUMS = ", ".join(
    f"{each}=min({each} + excluded.{each}, {MAX_COUNT})" for each in ("calls", "tokens", "retries", "cache_hits")
)
_ADD_USAGE = f"""INSERT INTO provider_usage VALUES(?,?,?,?,?,?)
    ON CONFLICT(provider, model) DO UPDATE SET {_SUMS}"""


class EmbeddingCache:
    """Vectors as little-endian float32 blobs, by cache key and SHA-256 of the text; evicts the least recently used.

    The file also stores the texts that a provider has refused, the usage of each provider, and the running batch jobs.
    A `path` of None keeps everything in memory. The vectors of a damaged or removed file have to be paid for again;
    `problem` reports this. Thread-safe; calls are serialized. `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(
        self,
        path: Path | None,
        max_entries: int,
        now_ms: Callable[[], int],
        journal: JournalMode = JournalMode.LOG,
        *,
        max_refused: int = MAX_REFUSED,
    ) -> None:
        self._max_refused = max_refused
        self.max_entries = max_entries
        # The number of rows is at most this; None if it is unknown.
        self._most_rows: int | None = None
        self._now_ms = now_ms
        self._file = CacheFile(path, _TABLES, journal, now_ms)
        self.jobs = SqliteBatchJobTable(self._file, self._insert)

    @property
    def problem(self) -> Degradation | None:
        """Why the file was replaced or is not in use; None if it is intact."""
        return self._file.problem

    def get(self, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached vectors of these texts, by hash; a hit counts as a use."""
        vectors: dict[bytes, bytes] = {}
        for start in range(0, len(hashes), _HASHES_PER_QUERY):
            batch = hashes[start : start + _HASHES_PER_QUERY]
            vectors.update(self._file.use(partial(self._get, key=key, hashes=batch)))
        return vectors

    def _get(self, connection: apsw.Connection, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        query = f"SELECT hash, embedding FROM embedding_cache WHERE {_where(hashes)}"  # noqa: S608 -- constants and marks
        rows = dict(connection.execute(query, (key.provider, key.model, key.provider_key, *hashes)))
        if rows:
            with transaction(connection):
                connection.execute(
                    f"UPDATE embedding_cache SET used_at_ms=? WHERE {_where(rows)}",  # noqa: S608 -- constants and marks
                    (self._now_ms(), key.provider, key.model, key.provider_key, *rows),
                )
        return rows

    def put(self, key: CacheKey, vectors: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Store vectors by hash, in one transaction; beyond `max_entries`, the least recently used are deleted."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                self._insert(connection, key, dict(vectors))

        self._file.use(write)

    def _insert(self, connection: apsw.Connection, key: CacheKey, vectors: Mapping[bytes, bytes]) -> None:
        now = self._now_ms()
        # In the order of the primary key, so that rows of the same page are written together.
        texts = sorted(vectors)
        rows = [(key.provider, key.model, key.provider_key, text, vectors[text], now) for text in texts]
        connection.executemany("INSERT OR REPLACE INTO embedding_cache VALUES(?,?,?,?,?,?)", rows)
        self._prune(connection, len(rows))

    def _prune(self, connection: apsw.Connection, added: int) -> None:
        # Counting reads an index with every row, so rows are counted again only if there may be too many.
        if self._most_rows is not None and self._most_rows + added <= self.max_entries:
            self._most_rows += added
            return
        surplus = _count(connection) - self.max_entries
        self._most_rows = self.max_entries + min(surplus, 0)
        if surplus > 0:
            connection.execute(
                "DELETE FROM embedding_cache WHERE (provider, model, provider_key, hash) IN"
                " (SELECT provider, model, provider_key, hash FROM embedding_cache ORDER BY used_at_ms LIMIT ?)",
                (surplus,),
            )

    def refusals(self, key: CacheKey) -> dict[bytes, str]:
        """Return the reasons of the provider's refusals within the last day, by text hash."""
        since = self._now_ms() - REFUSED_FOR_MS
        query = (
            "SELECT hash, reason FROM refused_texts"
            " WHERE provider=? AND model=? AND provider_key=? AND refused_at_ms > ?"
        )
        values = (key.provider, key.model, key.provider_key, since)
        return self._file.use(lambda connection: dict(connection.execute(query, values)))

    def add_refusals(self, key: CacheKey, reasons: Mapping[bytes, str]) -> None:
        """Store the reasons of the provider's refusals, by text hash; beyond 10,000, the oldest are deleted."""
        now = self._now_ms()
        rows = [
            (key.provider, key.model, key.provider_key, text, reason[:_MAX_REASON_CHARS], now)
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
                    (self._max_refused,),
                )

        self._file.use(write)

    def clear_refusals(self) -> None:
        """Delete every refusal, of all providers."""
        self._file.use(lambda connection: connection.execute("DELETE FROM refused_texts").fetchall())

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Delete the vectors and refusals of these texts, by hash, of all providers; return the number of vectors.

        Vectors that a running batch job brings for these texts are ignored.
        """
        rows = [(text,) for text in set(hashes)]

        def write(connection: apsw.Connection) -> int:
            before = connection.total_changes()
            with transaction(connection):
                connection.executemany("DELETE FROM embedding_cache WHERE hash=?", rows)
                deleted = connection.total_changes() - before
                connection.executemany("DELETE FROM refused_texts WHERE hash=?", rows)
                # Then `put_vectors` ignores the vectors of these texts.
                connection.executemany("DELETE FROM batch_texts WHERE hash=?", rows)
            # Deleted rows are overwritten in the file; without a checkpoint the log would still hold them.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return deleted

        return self._file.use(write) if rows else 0

    def usage(self) -> dict[ProviderModel, Counts]:
        """Return the total usage of each provider and model."""

        def read(connection: apsw.Connection) -> dict[ProviderModel, Counts]:
            rows: list[tuple[Any, ...]] = connection.execute("SELECT * FROM provider_usage").fetchall()
            return {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in rows}

        return self._file.use(read)

    def add_usage(self, usage: Mapping[ProviderModel, Counts]) -> None:
        """Add to the total usage of providers and models, up to `MAX_COUNT`."""
        rows = [(*provider_model, *counts) for provider_model, counts in usage.items()]

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.executemany(_ADD_USAGE, rows)

        self._file.use(write)

    def count(self) -> int:
        """Return the number of cached vectors."""
        return self._file.use(_count)

    def release_memory(self) -> None:
        """Close the file until it is used again."""
        self._file.release_memory()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def _where(hashes: Collection[bytes]) -> str:
    return f"provider=? AND model=? AND provider_key=? AND hash IN ({','.join('?' * len(hashes))})"


def _count(connection: apsw.Connection) -> int:
    return int(scalar(connection, "SELECT count(*) FROM embedding_cache"))
