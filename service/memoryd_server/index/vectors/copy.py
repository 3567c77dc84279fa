"""A few vectors in sqlite-vec: a copy in memory, never the truth."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import numpy as np

from memoryd_server.index.connection import scalar, transaction
from memoryd_server.index.vectors.extension import create_copy, open_copy
from memoryd_server.index.vectors.ranking import ROUNDING
from memoryd_server.index.vectors.resident import SPARE_CANDIDATES
from memoryd_server.vectors import Ids, Vectors

# vec0 refuses a larger k.
_MOST_NEIGHBOURS = 4_096

# vec0 adds up one by one, which loses more than numpy's way.
_TIE = 4 * ROUNDING

# Holes that are not worth a reload.
_FEW_HOLES = 1_024

_NEAREST = "SELECT chunk_id, distance FROM copy WHERE embedding MATCH ? AND k = ?"
_AMONG = " AND chunk_id IN (SELECT value FROM json_each(?))"


class CopyFailed(Exception):
    """sqlite-vec refused or failed; the blobs are unharmed."""


class Vec0Copy:
    """A vec0 table in a database of its own in memory.

    vec0 does not reuse the room of deleted rows: worn when more than half of it is such holes, or when it has outgrown
    `most` rows.

    Raises:
        CopyFailed: from every method, when sqlite-vec fails.
    """

    def __init__(self, extension_path: str | None, dimensions: int, most: int) -> None:
        self._lock = threading.Lock()
        self._dimensions = dimensions
        self._most = most
        self._ids: set[int] = set()
        self._written = 0
        with _failing():
            self._connection = open_copy(extension_path)
            create_copy(self._connection, dimensions)

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids | None:
        """The nearest, a few more, and whatever is as near as the last asked for."""
        wanted = limit + SPARE_CANDIDATES
        while wanted <= _MOST_NEIGHBOURS:
            found = self._nearest(query, wanted, allowed)
            if len(found) < wanted or found[-1][1] - found[limit - 1][1] > _TIE:
                return np.fromiter((row[0] for row in found), np.int64, len(found))
            wanted *= 4
        return None

    def _nearest(self, query: Vectors, count: int, allowed: Ids | None) -> list[tuple[int, float]]:
        values: tuple[bytes | int | str, ...] = (query.tobytes(), count)
        with self._lock, _failing():
            if allowed is None:
                return list(self._connection.execute(_NEAREST, values))
            return list(self._connection.execute(_NEAREST + _AMONG, (*values, json.dumps(allowed.tolist()))))

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Takes in chunks that are not there yet."""
        rows = zip(ids.tolist(), map(bytes, vectors), strict=True)
        with self._lock, _failing(), transaction(self._connection):
            self._connection.executemany("INSERT INTO copy(chunk_id, embedding) VALUES(?, ?)", rows)
        self._ids.update(ids.tolist())
        self._written += len(ids)

    def discard(self, ids: Ids) -> None:
        """Drops chunks, those that are there."""
        gone = self._ids.intersection(ids.tolist())
        with self._lock, _failing(), transaction(self._connection):
            self._connection.executemany("DELETE FROM copy WHERE chunk_id = ?", [(item,) for item in gone])
        self._ids -= gone

    @property
    def form(self) -> str:
        """See `Resident`."""
        return "whole"

    @property
    def memory_bytes(self) -> int:
        """What the database takes."""
        with self._lock, _failing():
            return int(scalar(self._connection, "PRAGMA page_count") * scalar(self._connection, "PRAGMA page_size"))

    @property
    def worn(self) -> bool:
        """Whether there are more holes than rows, or more rows than it is meant for."""
        holes = self._written - len(self._ids)
        return len(self._ids) > self._most or holes > max(len(self._ids), _FEW_HOLES)


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (apsw.Error, ImportError, OSError) as error:
        raise CopyFailed(f"{type(error).__name__}: {error}") from error
