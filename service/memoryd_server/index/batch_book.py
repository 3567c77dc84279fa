"""The batch jobs under way, in the embedding cache's file: written before a job is made, so that none is paid twice."""

from collections.abc import Callable, Collection, Mapping

import apsw

from memoryd_server.index.cache_file import CacheFile
from memoryd_server.index.connection import transaction
from memoryd_server.store.rows import BatchJob, CacheKey

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


class BatchBook:
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
