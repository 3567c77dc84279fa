"""PostgresEmbeddingCache: vectors, refused texts, provider usage and batch jobs of one agent, in the database.

They have no generation, so a rebuild of the index keeps them. A batch job is written before it is submitted, so that no
job is paid for twice.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from memoryd_server.errors import IndexUnavailable
from memoryd_server.model import Degradation
from memoryd_server.postgres.connection import Database, DatabaseUse
from memoryd_server.postgres.errors import bounded, storable
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.store import MAX_COUNT, BatchJob, CacheKey, Counts, ProviderModel

REFUSED_FOR_MS: Final = 24 * 60 * 60 * 1_000
"""How long a refused text is not sent again; the provider may accept it later."""

MAX_REFUSED: Final = 10_000

RETENTION_MS: Final = 7 * 24 * 60 * 60 * 1_000
"""How long the jobs of a provider that is no longer used are kept, in milliseconds."""

_MAX_REASON_CHARS = 400

_KEY = "agent_id = %(agent)s AND provider = %(provider)s AND model = %(model)s AND provider_key = %(provider_key)s"

_SUMS = ", ".join(
    f"{each} = least(provider_usage.{each}::numeric + excluded.{each}, {MAX_COUNT})"
    for each in ("calls", "tokens", "retries", "cache_hits")
)
_ADD_USAGE = f"""INSERT INTO provider_usage(agent_id, provider, model, calls, tokens, retries, cache_hits)
    VALUES(%(agent)s, %(provider)s, %(model)s, %(calls)s, %(tokens)s, %(retries)s, %(cache_hits)s)
    ON CONFLICT (agent_id, provider, model) DO UPDATE SET {_SUMS}"""
# For the time of the transaction. Two that change the same rows in another order would wait for each other.
_LOCK = "SELECT pg_advisory_xact_lock(%(class)s, hashtext(%(agent)s))"
_LOCK_CLASS: Final = 0x6D6D7263

Rows = list[tuple[Any, ...]]


class CacheTables:
    """Transactions on the tables of one agent's cache. Thread-safe. The first one creates missing tables."""

    def __init__(self, database: Database, agent_id: str) -> None:
        self._database = database
        self._agent_id = agent_id
        self._use = DatabaseUse(database)
        self._guard = threading.Lock()
        self._is_closed = False

    @contextmanager
    def write(self) -> Iterator["CacheTransaction"]:
        """Run the body in one transaction.

        Raises:
            DiskFull, IndexBusy, IndexReadOnly, IndexUnavailable: nothing of the body is kept.
        """
        self._check()
        # Threads of this process wait without a connection.
        with self._guard, self._database.write(self._agent_id, operation=Operation.CACHE_WRITE) as connection:
            transaction = CacheTransaction(connection, self._agent_id)
            transaction.rows(_LOCK, **{"class": _LOCK_CLASS})
            yield transaction

    def rows(self, query: str, /, **values: object) -> Rows:
        """Return the rows of a query, which takes `agent` and these values."""
        self._check()
        with self._database.read(self._agent_id, operation=Operation.CACHE_READ) as connection:
            return CacheTransaction(connection, self._agent_id).rows(query, **values)

    def _check(self) -> None:
        if self._is_closed:
            raise IndexUnavailable("the index is closed")
        self._use.begin()
        self._database.prepare()

    def close(self) -> None:
        """End the use of the database. Idempotent."""
        self._is_closed = True
        self._use.end()


class CacheTransaction:
    """Statements on the rows of one agent in one transaction; each takes `agent` and the given values."""

    def __init__(self, connection: Connection, agent_id: str) -> None:
        self._connection = connection
        self._agent_id = agent_id

    def rows(self, query: str, /, **values: object) -> Rows:
        """Return the rows of a statement."""
        rows: Rows = self._connection.execute(query, {"agent": self._agent_id, **values}, binary=True).fetchall()
        return rows

    def run(self, query: str, /, **values: object) -> int:
        """Execute a statement without a result; return the number of changed rows."""
        changed: int = self._connection.execute(query, {"agent": self._agent_id, **values}).rowcount
        return changed


def _key_values(key: CacheKey) -> dict[str, str]:
    return {"provider": bounded(key.provider), "model": bounded(key.model), "provider_key": bounded(key.provider_key)}


def _put(transaction: CacheTransaction, key: CacheKey, vectors: Mapping[bytes, bytes], now_ms: int) -> None:
    if vectors:
        transaction.run(
            """INSERT INTO cached_vectors(agent_id, provider, model, provider_key, hash, embedding, used_at_ms)
                SELECT %(agent)s, %(provider)s, %(model)s, %(provider_key)s, hash, embedding, %(now)s
                FROM unnest(%(hashes)s::bytea[], %(vectors)s::bytea[]) AS t(hash, embedding)
                ON CONFLICT (agent_id, provider, model, provider_key, hash)
                    DO UPDATE SET embedding = excluded.embedding, used_at_ms = excluded.used_at_ms""",
            **_key_values(key),
            hashes=list(vectors.keys()),
            vectors=list(vectors.values()),
            now=now_ms,
        )


class PostgresBatchJobTable:
    """The batch jobs and the hashes of their texts. Thread-safe; each call is durable when it returns.

    `insert` puts vectors into the cache, within a transaction.
    """

    def __init__(
        self, tables: CacheTables, insert: Callable[[CacheTransaction, CacheKey, Mapping[bytes, bytes]], None]
    ) -> None:
        self._tables = tables
        self._insert = insert

    def add(self, key: CacheKey, job: BatchJob, hashes: Collection[bytes]) -> None:
        """Store a job before it is submitted."""
        with self._tables.write() as transaction:
            old = "SELECT name FROM batch_jobs WHERE agent_id = %(agent)s AND begun_at_ms < %(oldest)s"
            for table in ("batch_texts", "batch_jobs"):
                transaction.run(
                    f"DELETE FROM {table} WHERE agent_id = %(agent)s AND name IN ({old})",  # noqa: S608 -- constants
                    oldest=job.begun_at_ms - RETENTION_MS,
                )
            transaction.run(
                """INSERT INTO batch_jobs(agent_id, name, provider, model, provider_key, job_id, texts, begun_at_ms,
                        attempt)
                    VALUES(%(agent)s, %(name)s, %(provider)s, %(model)s, %(provider_key)s, %(job_id)s, %(texts)s,
                        %(begun)s, %(attempt)s)""",
                **_key_values(key),
                name=job.name,
                job_id=job.job_id,
                texts=job.texts,
                begun=job.begun_at_ms,
                attempt=job.attempt,
            )
            transaction.run(
                """INSERT INTO batch_texts(agent_id, name, hash)
                    SELECT %(agent)s, %(name)s, hash FROM unnest(%(hashes)s::bytea[]) AS t(hash)""",
                name=job.name,
                hashes=list(hashes),
            )

    def set_job_id(self, name: str, job_id: str) -> None:
        """Store the provider's id of a job."""
        query = "UPDATE batch_jobs SET job_id = %(job_id)s WHERE agent_id = %(agent)s AND name = %(name)s"
        with self._tables.write() as transaction:
            transaction.run(query, job_id=job_id, name=name)

    def jobs(self, key: CacheKey) -> list[BatchJob]:
        """Return the running jobs, oldest first."""
        query = f"""SELECT name, job_id, texts, begun_at_ms, attempt FROM batch_jobs WHERE {_KEY}
            ORDER BY begun_at_ms, name"""  # noqa: S608 -- a constant
        return [BatchJob(*row) for row in self._tables.rows(query, **_key_values(key))]

    def hashes(self, key: CacheKey) -> set[bytes]:
        """Return the hashes of the texts in running jobs."""
        query = f"""SELECT hash FROM batch_texts WHERE agent_id = %(agent)s
            AND name IN (SELECT name FROM batch_jobs WHERE {_KEY})"""  # noqa: S608 -- a constant
        return {row[0] for row in self._tables.rows(query, **_key_values(key))}

    def hashes_of(self, name: str) -> set[bytes]:
        """Return the hashes of the texts in one job."""
        query = "SELECT hash FROM batch_texts WHERE agent_id = %(agent)s AND name = %(name)s"
        return {row[0] for row in self._tables.rows(query, name=name)}

    def put_vectors(self, key: CacheKey, name: str, vectors: Mapping[bytes, bytes]) -> list[bytes]:
        """Put a job's vectors into the cache; return the hashes of those texts that the job still lists."""
        # Locked, so that a text that is forgotten during the call is not stored.
        query = """SELECT hash FROM batch_texts WHERE agent_id = %(agent)s AND name = %(name)s
            AND hash = ANY(%(hashes)s) FOR UPDATE"""
        with self._tables.write() as transaction:
            listed = {row[0] for row in transaction.rows(query, name=name, hashes=list(vectors))}
            wanted = [each for each in vectors if each in listed]
            self._insert(transaction, key, {each: vectors[each] for each in wanted})
        return wanted

    def delete(self, name: str) -> None:
        """Delete a job that will bring no more vectors."""
        with self._tables.write() as transaction:
            for table in ("batch_texts", "batch_jobs"):
                query = f"DELETE FROM {table} WHERE agent_id = %(agent)s AND name = %(name)s"  # noqa: S608 -- constants
                transaction.run(query, name=name)


class PostgresEmbeddingCache:
    """Vectors as little-endian float32 blobs, by cache key and SHA-256 of the text; evicts the least recently used.

    Thread-safe. `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(
        self,
        database: Database,
        agent_id: str,
        max_entries: int,
        now_ms: Callable[[], int],
        *,
        max_refused: int = MAX_REFUSED,
    ) -> None:
        self.max_entries = max_entries
        self._max_refused = max_refused
        self._now_ms = now_ms
        self._tables = CacheTables(database, agent_id)
        self.jobs = PostgresBatchJobTable(self._tables, self._insert)

    @property
    def problem(self) -> Degradation | None:
        """Always None: the cache is in the same database as the index."""
        return None

    def get(self, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached vectors of these texts, by hash; a hit counts as a use."""
        query = f"""UPDATE cached_vectors SET used_at_ms = %(now)s WHERE {_KEY} AND hash = ANY(%(hashes)s)
            RETURNING hash, embedding"""  # noqa: S608 -- a constant
        if not hashes:
            return {}
        with self._tables.write() as transaction:
            return dict(transaction.rows(query, **_key_values(key), hashes=list(hashes), now=self._now_ms()))

    def put(self, key: CacheKey, vectors: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Store vectors by hash, in one transaction; beyond `max_entries`, the least recently used are deleted."""
        with self._tables.write() as transaction:
            self._insert(transaction, key, dict(vectors))

    def _insert(self, transaction: CacheTransaction, key: CacheKey, vectors: Mapping[bytes, bytes]) -> None:
        _put(transaction, key, vectors, self._now_ms())
        surplus = _count(transaction.rows) - self.max_entries
        if surplus > 0:
            transaction.run(
                """DELETE FROM cached_vectors WHERE agent_id = %(agent)s
                    AND (provider, model, provider_key, hash) IN (
                        SELECT provider, model, provider_key, hash FROM cached_vectors WHERE agent_id = %(agent)s
                            ORDER BY used_at_ms LIMIT %(surplus)s)""",
                surplus=surplus,
            )

    def refusals(self, key: CacheKey) -> dict[bytes, str]:
        """Return the reasons of the provider's refusals within the last day, by text hash."""
        query = f"SELECT hash, reason FROM refused_texts WHERE {_KEY} AND refused_at_ms > %(since)s"  # noqa: S608 -- a constant
        return dict(self._tables.rows(query, **_key_values(key), since=self._now_ms() - REFUSED_FOR_MS))

    def add_refusals(self, key: CacheKey, reasons: Mapping[bytes, str]) -> None:
        """Store the reasons of the provider's refusals, by text hash; beyond the limit, the oldest are deleted."""
        now = self._now_ms()
        with self._tables.write() as transaction:
            transaction.run(
                """INSERT INTO refused_texts(agent_id, provider, model, provider_key, hash, reason, refused_at_ms)
                    SELECT %(agent)s, %(provider)s, %(model)s, %(provider_key)s, hash, reason, %(now)s
                    FROM unnest(%(hashes)s::bytea[], %(reasons)s::text[]) AS t(hash, reason)
                    ON CONFLICT (agent_id, provider, model, provider_key, hash)
                        DO UPDATE SET reason = excluded.reason, refused_at_ms = excluded.refused_at_ms""",
                **_key_values(key),
                hashes=list(reasons),
                reasons=[storable(reason[:_MAX_REASON_CHARS]) for reason in reasons.values()],
                now=now,
            )
            transaction.run(
                "DELETE FROM refused_texts WHERE agent_id = %(agent)s AND refused_at_ms <= %(oldest)s",
                oldest=now - REFUSED_FOR_MS,
            )
            transaction.run(
                """DELETE FROM refused_texts WHERE agent_id = %(agent)s
                    AND (provider, model, provider_key, hash) IN (
                        SELECT provider, model, provider_key, hash FROM refused_texts WHERE agent_id = %(agent)s
                            ORDER BY refused_at_ms DESC OFFSET %(most)s)""",
                most=self._max_refused,
            )

    def clear_refusals(self) -> None:
        """Delete every refusal, of all providers."""
        with self._tables.write() as transaction:
            transaction.run("DELETE FROM refused_texts WHERE agent_id = %(agent)s")

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Delete the vectors and refusals of these texts, by hash, of all providers; return the number of vectors.

        Vectors that a running batch job brings for these texts are ignored.
        """
        texts = list(set(hashes))
        if not texts:
            return 0
        deleted = 0
        with self._tables.write() as transaction:
            # The texts of jobs first: `put_vectors` locks them.
            for table in ("batch_texts", "refused_texts", "cached_vectors"):
                query = f"DELETE FROM {table} WHERE agent_id = %(agent)s AND hash = ANY(%(hashes)s)"  # noqa: S608 -- constants
                deleted = transaction.run(query, hashes=texts)
        return deleted

    def usage(self) -> dict[ProviderModel, Counts]:
        """Return the total usage of each provider and model. Long names are those of `bounded`."""
        query = """SELECT provider, model, calls, tokens, retries, cache_hits FROM provider_usage
            WHERE agent_id = %(agent)s"""
        return {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in self._tables.rows(query)}

    def add_usage(self, usage: Mapping[ProviderModel, Counts]) -> None:
        """Add to the total usage of providers and models, up to `MAX_COUNT`. Other replicas add theirs."""
        if not usage:
            return
        with self._tables.write() as transaction:
            for (provider, model), (calls, tokens, retries, cache_hits) in usage.items():
                transaction.run(
                    _ADD_USAGE,
                    provider=bounded(provider),
                    model=bounded(model),
                    calls=calls,
                    tokens=tokens,
                    retries=retries,
                    cache_hits=cache_hits,
                )

    def count(self) -> int:
        """Return the number of cached vectors."""
        return _count(self._tables.rows)

    def release_memory(self) -> None:
        """Do nothing: an unused connection is closed after a while."""

    def close(self) -> None:
        """End the use of the database. Idempotent."""
        self._tables.close()


def cached_bytes(database: Database, agent_id: str) -> int:
    """Return the bytes of an agent's cached vectors. Blocks.

    Raises:
        IndexUnavailable: the database cannot be used.
    """
    query = "SELECT coalesce(sum(octet_length(embedding)), 0)::bigint FROM cached_vectors WHERE agent_id = %(agent)s"
    with database.read(agent_id, operation=Operation.CACHE_READ) as connection:
        return int(CacheTransaction(connection, agent_id).rows(query)[0][0])


def _count(rows: Callable[[str], Rows]) -> int:
    return int(rows("SELECT count(*) FROM cached_vectors WHERE agent_id = %(agent)s")[0][0])
