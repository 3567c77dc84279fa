"""The embedding cache in a SQLite file, and the vectors of an index, for a copy into another store.

An index can have more vectors than the cache, which is limited, and does not outlive a removal of its file.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import apsw

from memoryd_server.sqlite.connection import scalar
from memoryd_server.sqlite.schema import VECTOR_IDENTITY, get_meta
from memoryd_server.sqlite.stored_files import StoredFileUnusable, opened_file, translated
from memoryd_server.store import (
    BatchJob,
    CachedVector,
    CacheKey,
    RefusedText,
    StoredBatchJob,
    StoredCache,
    StoredUsage,
    VectorIdentity,
)

_NO_CACHE = StoredCache(0, lambda: iter(()), (), (), ())

_BATCH_VECTORS = 1_000
_BATCH_BYTES = 4 << 20

_Row = tuple[Any, ...]

# In the order of the primary key, so that SQLite sorts nothing.
_VECTORS = """SELECT provider, model, provider_key, hash, embedding, used_at_ms FROM embedding_cache
    ORDER BY provider, model, provider_key, hash"""
# Of equal texts, one is enough.
_INDEX_VECTORS = """SELECT ?1, ?2, ?3, content_hash, embedding, ?4
    FROM (SELECT min(id) AS first FROM chunks JOIN vectors ON chunk_id = id GROUP BY content_hash)
    CROSS JOIN vectors ON chunk_id = first CROSS JOIN chunks ON id = first"""
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
                partial(_batches, partial(connection.execute, _VECTORS)),
                [RefusedText(CacheKey(*row[:3]), *row[3:]) for row in _rows(connection, "refused_texts", _REFUSED)],
                [StoredUsage(row[0], row[1], row[2:]) for row in _rows(connection, "provider_usage", _USAGE)],
                [
                    StoredBatchJob(CacheKey(*row[5:]), BatchJob(*row[:5]), _hashes(connection, row[0]))
                    for row in _rows(connection, "batch_jobs", _JOBS)
                ],
            )
        yield cache


@contextmanager
def open_index_vectors(path: Path, cache: Path, now_ms: int, *, in_use: bool = False) -> Iterator[StoredCache]:
    """Yield the vectors of an index, used at `now_ms`, as those of a cache. The index can be of any version.

    `cache` is the file of the cache next to it, which shows the key of the vectors. Raises as `open_stored_cache`.
    """
    with opened_file(path, in_use=in_use) as connection:
        identity = None
        if connection is not None:
            with translated():
                identity = VectorIdentity.from_json(str(get_meta(connection, VECTOR_IDENTITY) or ""))
        if connection is None or identity is None:
            yield _NO_CACHE
            return
        keys = _keys_of(identity, cache, in_use=in_use)
        with translated():
            count = int(scalar(connection, "SELECT count(*) FROM vectors")) * len(keys)
        queries = [
            partial(connection.execute, _INDEX_VECTORS, (key.provider, key.model, key.provider_key, now_ms))
            for key in keys
        ]
        yield StoredCache(count, lambda: chain.from_iterable(map(_batches, queries)), (), (), ())


def _keys_of(identity: VectorIdentity, cache: Path, *, in_use: bool) -> list[CacheKey]:
    """Return the keys under which an embedding looks for the vectors of an index; both if the cache has neither.

    The key has the dimensions of the settings, which the index does not store: it has those of its vectors.
    """
    keys = [replace(identity, dimensions=0).cache_key(), identity.cache_key()]
    query = "SELECT 1 FROM embedding_cache WHERE provider=? AND model=? AND provider_key=? LIMIT 1"
    found: list[CacheKey] = []
    with suppress(StoredFileUnusable), opened_file(cache, in_use=in_use) as connection, translated():
        if connection is not None:
            found = [key for key in keys if scalar(connection, query, (key.provider, key.model, key.provider_key))]
    return list(dict.fromkeys(found or keys))


def _rows(connection: apsw.Connection, table: str, query: str) -> list[_Row]:
    if not scalar(connection, "SELECT 1 FROM sqlite_schema WHERE type='table' AND name=?", (table,)):
        return []
    return connection.execute(query).fetchall()


def _hashes(connection: apsw.Connection, name: str) -> list[bytes]:
    return [row[0] for row in connection.execute("SELECT hash FROM batch_texts WHERE name=?", (name,))]


def _batches(query: Callable[[], Iterable[_Row]]) -> Iterator[tuple[CacheKey, list[CachedVector]]]:
    """Yield the rows of a query in batches of one key, of limited number and size."""
    with translated():
        rows = iter(query())
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
