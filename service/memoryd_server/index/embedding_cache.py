"""Embeddings by what made them, in a file of their own: neither a rebuild nor a damaged index loses paid ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from memoryd_server.index.batch_book import TABLES as BATCH_TABLES
from memoryd_server.index.batch_book import BatchBook
from memoryd_server.index.cache_file import CacheFile
from memoryd_server.index.connection import Journal, scalar, transaction
from memoryd_server.model import Degradation
from memoryd_server.store.rows import CacheKey, Counts, Maker

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
    *BATCH_TABLES,
)


class EmbeddingCache:
    """Vectors as little-endian float32 blobs, by maker and SHA-256 of the text; the least recently used go first.

    Beside them stand the texts that a maker has refused, how much was asked of each, and the batch jobs under way.
    `path` None keeps everything in memory. What a damaged or removed file held is paid for again; `problem` says so.
    Thread-safe; one caller at a time is served. `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(
        self, path: Path | None, max_entries: int, now_ms: Callable[[], int], journal: Journal = Journal.LOG
    ) -> None:
        self.max_entries = max_entries
        self._now_ms = now_ms
        self._file = CacheFile(path, _TABLES, journal, now_ms)
        self.jobs = BatchBook(self._file, self._insert)

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
