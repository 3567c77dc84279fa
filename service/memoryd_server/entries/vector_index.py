"""The index of a dataset's vectors, for datasets so large that comparing with each of them takes too long.

It holds every vector with a byte a number, undivided: a search goes through all of them, proposes, and the vectors
themselves decide. So what is found is what a search without an index finds, and rows that came since are looked at
beside it.
"""

from typing import Any

from memoryd_server.entries.schema import VECTOR

INDEXED_FROM = 4_000_000
"""Numbers, rows by dimensions. Up to there a search without an index takes some fifteen milliseconds."""

MOST_PARTS = 8
"""Each tidying adds a part for the rows that came since the last one; of so many, one index is made again."""

PROPOSED = 64
"""How many vectors are compared exactly, at least."""

_GROWTH = 2
"""The bytes are scaled to the vectors of the day it was made; of so many times as many, it is made anew."""

_NAME = "vectors_of_"


def refine_factor(limit: int) -> int:
    """How many times as many as are asked for are compared exactly."""
    return max(4, -(-PROPOSED // limit))


def index_vectors(table: Any, dimensions: int, *, anew: bool) -> None:
    """Gives a dataset the index that it needs, if it needs one and has none that fits, or it is to be made `anew`."""
    rows = table.count_rows(f"{VECTOR} IS NOT NULL") if dimensions else 0
    there = [index.name for index in table.list_indices() if index.columns == [VECTOR]]
    if rows * dimensions < INDEXED_FROM or (not anew and any(_fits(table, name, rows) for name in there)):
        return
    from lancedb.index import IvfSq  # noqa: PLC0415 -- an extra

    name = f"{_NAME}{rows}"
    table.create_index(VECTOR, config=IvfSq(distance_type="l2", num_partitions=1), name=name, replace=True)
    for old in there:
        if old != name:
            table.drop_index(old)


def _fits(table: Any, name: str, rows: int) -> bool:
    made_of = name.removeprefix(_NAME)
    if not made_of.isdigit() or rows >= _GROWTH * int(made_of):
        return False
    return int(table.index_stats(name).num_indices) < MOST_PARTS
