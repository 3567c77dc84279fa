"""The embedding cache in a SQLite file, for a copy into another store."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw

from memoryd_server.sqlite.connection import scalar
from memoryd_server.sqlite.stored_files import opened_file, translated
from memoryd_server.store import (
    BatchJob,
    CachedVector,
    CacheKey,
    RefusedText,
    StoredBatchJob,
    StoredCache,
    StoredUsage,
)

_NO_CACHE = StoredCache(0, lambda: iter(()), (), (), ())

_BATCH_VECTORS = 1_000
_BATCH_BYTES = 4 << 20

_Row = tuple[Any, ...]

# In the order of the primary key, so that SQLite sorts nothing.
_VECTORS = """SELECT provider, model, provider_key, hash, embedding, used_at_ms FROM embedding_cache
    ORDER BY provider, model, provider_key, hash"""
_REFUSED = "SELECT provider, model, provider_key, hash, reason, refused_at_ms FROM refused_texts"
_USAGE = "SELECT provider, model, calls, tokens, retries, cache_hits FROM provider_usage"
_JOBS = "SELECT name, job_id, texts, begun_at_ms, attempt, provider, model, provider_key FROM batch_jobs"


@contextmanager
def open_stored_cache(path: Path, *, in_use: bool = False) -> Iterator[StoredCache]:
    """Yield the cache in a file; an empty one if there is no file. `in_use` is as in `opened_file`.

    The file of an older memoryd can lack the tables of refused texts, usage and batch jobs.

    Raises:
        StoredFileUnusable: the file cannot be read; also raised by `vectors` of the cache.
    """
    with opened_file(path, in_use=in_use) as connection:
        if connection is None:
            yield _NO_CACHE
            return
        with translated():
            cache = StoredCache(
                int(scalar(connection, "SELECT count(*) FROM embedding_cache")),
                partial(_vectors, connection),
                [RefusedText(CacheKey(*row[:3]), *row[3:]) for row in _rows(connection, "refused_texts", _REFUSED)],
                [StoredUsage(row[0], row[1], row[2:]) for row in _rows(connection, "provider_usage", _USAGE)],
                [
                    StoredBatchJob(CacheKey(*row[5:]), BatchJob(*row[:5]), _hashes(connection, row[0]))
                    for row in _rows(connection, "batch_jobs", _JOBS)
                ],
            )
        yield cache


def _rows(connection: apsw.Connection, table: str, query: str) -> list[_Row]:
    if not scalar(connection, "SELECT 1 FROM sqlite_schema WHERE type='table' AND name=?", (table,)):
        return []
    return connection.execute(query).fetchall()


def _hashes(connection: apsw.Connection, name: str) -> list[bytes]:
    return [row[0] for row in connection.execute("SELECT hash FROM batch_texts WHERE name=?", (name,))]


def _vectors(connection: apsw.Connection) -> Iterator[tuple[CacheKey, list[CachedVector]]]:
    with translated():
        rows: Iterator[_Row] = iter(connection.execute(_VECTORS))
        for key, group in groupby(rows, key=lambda row: row[:3]):
            batch: list[CachedVector] = []
            size = 0
            for row in group:
                batch.append(CachedVector(*row[3:]))
                size += len(row[4])
                if len(batch) == _BATCH_VECTORS or size >= _BATCH_BYTES:
                    yield CacheKey(*key), batch
                    batch, size = [], 0
            if batch:
                yield CacheKey(*key), batch
