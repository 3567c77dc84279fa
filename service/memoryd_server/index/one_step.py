"""Many rows in one step of SQLite, as lists side by side.

The interpreter is let go for each step of a statement. Taking it up again is next to nothing for a thread that is
alone; where several search at once it is a wait for another one, some hundred times a search.
"""

import json
from collections.abc import Sequence
from typing import Any

import apsw
import numpy as np

from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors, from_blob


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
