"""ReaderPool, and helpers that read many rows in one step of SQLite.

The pool holds a few read-only connections, and closes them all during a swap.

A statement releases the interpreter lock at each step. Taking the lock again costs almost nothing if one thread
searches; if several do, each step is a wait, some hundred times per search. Therefore the helpers aggregate all rows
into one.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from memoryd_server.errors import DeadlineTooShort, IndexUnavailable
from memoryd_server.sqlite.connection import open_reader
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors, from_blob


class ReaderPool:
    """Lends at most `size` connections to `path`, opened on first use and kept.

    A connection costs about a millisecond to open and some megabytes of page cache to keep. `path` may be changed while
    the pool is closed.
    """

    def __init__(self, path: Path, size: int, open_connection: Callable[[Path], apsw.Connection] = open_reader) -> None:
        self.path = path
        self._size = size
        self._open = open_connection
        self._idle: list[apsw.Connection] = []
        self._changed = threading.Condition()
        self._in_use = 0
        self._closing = False
        self._ended = False
        self._closed_lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """Lend a connection to this thread until the block ends; waits if all are in use."""
        with self._permit():
            connection = self._take()
            healthy = False
            try:
                yield connection
                healthy = True
            except (apsw.InterruptError, DeadlineTooShort):
                healthy = True
                raise
            finally:
                self._return(connection, healthy=healthy)

    @contextmanager
    def _permit(self) -> Iterator[None]:
        # Not a semaphore: `closed` has to come before readers that arrive later, or it could wait forever.
        with self._changed:
            self._changed.wait_for(lambda: not self._closing and self._in_use < self._size)
            self._in_use += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_use -= 1
                self._changed.notify_all()

    def _take(self) -> apsw.Connection:
        if self._ended:
            raise IndexUnavailable("the index is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._open(self.path)

    def _return(self, connection: apsw.Connection, *, healthy: bool) -> None:
        if healthy:
            self._idle.append(connection)
        else:
            connection.close()

    @property
    def is_idle(self) -> bool:
        """Whether no connection is open."""
        return not self._in_use and not self._idle

    def release(self) -> None:
        """Close the connections that are not in use, with their page caches; the next reader opens a new one."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait for the open readers, close every connection, and let none open until the block ends."""
        with self._closed_lock:
            try:
                with self._changed:
                    self._closing = True
                    self._changed.wait_for(lambda: self._in_use == 0)
                while self._idle:
                    self._idle.pop().close()
                yield
            finally:
                with self._changed:
                    self._closing = False
                    self._changed.notify_all()

    def close(self) -> None:
        """Wait for the open readers and close every connection; later readers are refused."""
        with self.closed():
            self._ended = True


def id_list(ids: Sequence[int]) -> str:
    """Return integers as a JSON list, by Python's own notation, which is several times as fast as `json.dumps`."""
    return str(list(ids))


def scored(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> list[tuple[int, float]]:
    """Return the rows of a query for `id` and `score`, in its order."""
    # 17 digits identify every double. MATERIALIZED, because FTS5 computes no score inside an aggregate.
    step = "SELECT group_concat(id), group_concat(printf('%!.17g', score)) FROM matches"
    ids, scores = _row(connection, f"WITH matches AS MATERIALIZED ({query}) {step}", bindings)
    return [] if ids is None else list(zip(map(int, ids.split(",")), map(float, scores.split(",")), strict=True))


def ids(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> Ids:
    """Return the rows of a query for `id`, in its order."""
    (joined,) = _row(connection, f"SELECT coalesce(group_concat(id), '') FROM ({query})", bindings)  # noqa: S608 -- ours
    return np.fromstring(joined, np.int64, sep=",")


def ids_and_blob(connection: apsw.Connection, query: str) -> tuple[Ids, bytes]:
    """Return the rows of a query for `id` and `blob`, in its order; the blobs are joined."""
    step = "SELECT coalesce(group_concat(id), ''), CAST(coalesce(group_concat(blob, ''), '') AS BLOB)"
    joined, blobs = _row(connection, f"{step} FROM ({query})", ())
    return np.fromstring(joined, np.int64, sep=","), blobs


def table(connection: apsw.Connection, columns: str, source: str, bindings: tuple[Any, ...]) -> list[list[Any]]:
    """Return the columns of all rows of `source`, which is what follows the columns in a SELECT without an order."""
    (rows,) = _row(connection, f"SELECT json_group_array(json_array({columns})) {source}", bindings)
    parsed: list[list[Any]] = json.loads(rows)
    return parsed


def table_with_text(
    connection: apsw.Connection, columns: str, text: str, source: str, bindings: tuple[Any, ...]
) -> list[list[Any]]:
    """Return the rows of `table` with the column `text`, of long texts, as the last; JSON would cost three times more.

    A text may have any characters. None is not allowed.
    """
    rows, joined = _row(
        connection,
        f"SELECT json_group_array(json_array({columns}, octet_length({text}))), CAST(group_concat({text}, '') AS BLOB)"
        f" {source}",
        bindings,
    )
    parsed: list[list[Any]] = json.loads(rows)
    at = 0
    for row in parsed:
        end = at + row[-1]
        row[-1] = joined[at:end].decode()
        at = end
    return parsed


def vectors(connection: apsw.Connection, ids: Sequence[int], dimensions: int) -> tuple[Ids, Vectors]:
    """Return the ids of these chunks that have a vector of these dimensions, and the vectors, one per row."""
    width = dimensions * FLOAT_BYTES
    joined, blob = _row(
        connection,
        "SELECT group_concat(chunk_id), CAST(group_concat(embedding, '') AS BLOB) FROM vectors"
        " WHERE chunk_id IN (SELECT value FROM json_each(?)) AND length(embedding) = ?",
        (id_list(ids), width),
    )
    if joined is None:
        return np.empty(0, np.int64), np.empty((0, dimensions), np.float32)
    present = np.array(joined.split(","), np.int64)
    if len(blob) != len(present) * width:
        raise AssertionError(f"SQLite joined {len(present)} vectors of {width} bytes into {len(blob)} bytes")
    return present, from_blob(blob).reshape(-1, dimensions)


def _row(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the one row of a query of aggregates, which has a row even if nothing matched."""
    row: tuple[Any, ...] = next(iter(connection.execute(query, bindings)))
    return row
