"""Reader pool; many rows in one step.

A small pool of read-only connections, and the gate that a swap closes for a moment.

Many rows in one step of SQLite, as lists side by side.

The interpreter is let go for each step of a statement. Taking it up again is next to nothing for a thread that is
alone; where several search at once it is a wait for another one, some hundred times a search.
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
    """Hands out at most `size` connections to `path`, opened on first use and kept.

    A reader costs about a millisecond to open and some megabytes of page cache to keep. `path` may be changed while the
    pool is closed.
    """

    def __init__(self, path: Path, size: int, open_connection: Callable[[Path], apsw.Connection] = open_reader) -> None:
        self.path = path
        self._size = size
        self._open = open_connection
        self._idle: list[apsw.Connection] = []
        self._changed = threading.Condition()
        self._at_work = 0
        self._closing = False
        self._ended = False
        self._gate = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """A connection for this thread alone until the block ends."""
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
                self._give_back(connection, healthy=healthy)

    @contextmanager
    def _permit(self) -> Iterator[None]:
        # Not a semaphore: whoever closes the gate must come before the readers that arrive after, or never come at all.
        with self._changed:
            self._changed.wait_for(lambda: not self._closing and self._at_work < self._size)
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _take(self) -> apsw.Connection:
        if self._ended:
            raise IndexUnavailable("the index is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._open(self.path)

    def _give_back(self, connection: apsw.Connection, *, healthy: bool) -> None:
        if healthy:
            self._idle.append(connection)
        else:
            connection.close()

    @property
    def at_rest(self) -> bool:
        """Whether no connection is open."""
        return not self._at_work and not self._idle

    def release(self) -> None:
        """Closes the connections that nobody uses, with their pages; who reads next opens one."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Waits for the readers at work, closes every connection, and lets none open until the block ends."""
        with self._gate:
            try:
                with self._changed:
                    self._closing = True
                    self._changed.wait_for(lambda: self._at_work == 0)
                while self._idle:
                    self._idle.pop().close()
                yield
            finally:
                with self._changed:
                    self._closing = False
                    self._changed.notify_all()

    def close(self) -> None:
        """Waits for the readers at work and closes every connection for good; who comes later is refused."""
        with self.closed():
            self._ended = True


def id_list(ids: Sequence[int]) -> str:
    """Integers in Python's notation of a list, which is JSON's too and made several times as fast."""
    return str(list(ids))


def scored(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> list[tuple[int, float]]:
    """The rows of a query for `id` and `score`, in its order."""
    # 17 digits tell every double. MATERIALIZED: FTS5 computes no score inside an aggregate.
    step = "SELECT group_concat(id), group_concat(printf('%!.17g', score)) FROM found"
    ids, scores = _row(connection, f"WITH found AS MATERIALIZED ({query}) {step}", bindings)
    return [] if ids is None else list(zip(map(int, ids.split(",")), map(float, scores.split(",")), strict=True))


def ids(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> Ids:
    """The rows of a query for `id`, in its order."""
    (found,) = _row(connection, f"SELECT group_concat(id) FROM ({query})", bindings)  # noqa: S608 -- ours
    return np.array([] if found is None else found.split(","), np.int64)


def table(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> list[list[Any]]:
    """The rows of a query for `row`, a JSON array."""
    (rows,) = _row(connection, f"SELECT json_group_array(json(row)) FROM ({query})", bindings)  # noqa: S608 -- ours
    found: list[list[Any]] = json.loads(rows)
    return found


def vectors(connection: apsw.Connection, ids: Sequence[int], dimensions: int) -> tuple[Ids, Vectors]:
    """The stored vectors of these chunks, one a row, and whose they are; those of other dimensions are left out."""
    width = dimensions * FLOAT_BYTES
    found, blob = _row(
        connection,
        "SELECT group_concat(chunk_id), CAST(group_concat(embedding, '') AS BLOB) FROM vectors"
        " WHERE chunk_id IN (SELECT value FROM json_each(?)) AND length(embedding) = ?",
        (id_list(ids), width),
    )
    if found is None:
        return np.empty(0, np.int64), np.empty((0, dimensions), np.float32)
    whose = np.array(found.split(","), np.int64)
    if len(blob) != len(whose) * width:
        raise AssertionError("SQLite joins blobs otherwise than this was written for")
    return whose, from_blob(blob).reshape(-1, dimensions)


def _row(connection: apsw.Connection, query: str, bindings: tuple[Any, ...]) -> tuple[Any, ...]:
    """The one row that aggregates give, whatever they have found."""
    row: tuple[Any, ...] = next(iter(connection.execute(query, bindings)))
    return row
