"""The sqlite-vec extension: loads it, checks it, and finds the nearest stored vectors with its distance function."""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import apsw
import numpy as np

from memoryd_server.index import one_step
from memoryd_server.index.connection import scalar
from memoryd_server.index.vectors.ranking import ROUNDING
from memoryd_server.index.vectors.resident import SPARE_CANDIDATES
from memoryd_server.model import Source
from memoryd_server.vectors import Ids, Vectors

PROBE_SECONDS = 30.0

Load = Callable[[apsw.Connection, str | None], None]

# Without it, SQLite derives the entry point from the name of the file, and the file may have any name.
_ENTRY_POINT = "sqlite3_vec_init"
_PROBED_DIMENSIONS = 8
_NO_FUNCTION = "no such function: vec_distance_cosine"

# sqlite-vec sums the products one after the other in float32, which is less exact than numpy.
_TIE = 4 * ROUNDING

# NULL for a vector of another length and for one with a number that is not finite. CASE, because SQLite may evaluate
# the terms of a WHERE clause in any order, and the function raises an error where the lengths differ.
_DISTANCE = "CASE length(embedding) WHEN ? THEN vec_distance_cosine(embedding, ?) END"
_OF_SOURCES = (
    " WHERE chunk_id IN (SELECT chunks.id FROM files JOIN chunks ON file_id = files.id WHERE source IN ({marks}))"
)
_SCORED = f"SELECT chunk_id AS id, {_DISTANCE} AS score FROM vectors{{among}}"  # noqa: S608 -- constants
# The inner LIMIT keeps SQLite from computing each distance twice, for the comparison with NULL and for the order.
_NEAREST = f"SELECT id, score FROM ({_SCORED} ORDER BY score NULLS LAST LIMIT ?) WHERE score IS NOT NULL"  # noqa: S608
_WITHIN = f"SELECT id FROM ({_SCORED}) WHERE score <= ?"  # noqa: S608 -- constants


@dataclass(frozen=True, slots=True)
class VectorEngine:
    """The engine that scans the stored vectors while none are in memory.

    `version` is that of sqlite-vec, empty if it did not load. `load_error` is the reason why it did not load; None if
    it did, or if the settings disable it.
    """

    engine: Literal["sqlite-vec", "exact"]
    version: str = ""
    load_error: str | None = None


def load(connection: apsw.Connection, extension_path: str | None) -> None:
    """Load sqlite-vec into a connection, from `extension_path` or from the installed package.

    Raises:
        apsw.Error, ImportError, OSError: it does not load.
    """
    path = extension_path or _installed()
    connection.enable_load_extension(True)
    try:
        connection.load_extension(path, _ENTRY_POINT)
    finally:
        connection.enable_load_extension(False)


def _installed() -> str:
    import sqlite_vec  # type: ignore[import-untyped]  # noqa: PLC0415 -- a Python without it, or without the sqlite3 it imports, still serves

    return str(sqlite_vec.loadable_path())


def probe(
    extension_path: str | None, timeout_seconds: float = PROBE_SECONDS, load_extension: Load = load
) -> VectorEngine:
    """Return sqlite-vec if it loads and computes known distances, else the exact engine with the reason.

    Loading happens on a thread of its own, which is abandoned after `timeout_seconds`.
    """
    answers: queue.SimpleQueue[VectorEngine] = queue.SimpleQueue()
    threading.Thread(
        target=lambda: answers.put(_tried(extension_path, load_extension)), name="probe sqlite-vec", daemon=True
    ).start()
    try:
        return answers.get(timeout=timeout_seconds)
    except queue.Empty:
        return VectorEngine("exact", load_error=f"sqlite-vec did not answer within {timeout_seconds:g} s")


def _tried(extension_path: str | None, load_extension: Load) -> VectorEngine:
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            load_extension(connection, extension_path)
            return VectorEngine("sqlite-vec", _checked_version(connection))
    except Exception as error:  # noqa: BLE001 -- any failure of a foreign library at start leaves the exact engine
        return VectorEngine("exact", load_error=described(error))


def _checked_version(connection: apsw.Connection) -> str:
    """Return the version of an extension whose distances are right."""
    first, second = (vector.tobytes() for vector in np.eye(2, _PROBED_DIMENSIONS, dtype=np.float32))
    version, same, orthogonal = next(
        iter(
            connection.execute(
                "SELECT vec_version(), vec_distance_cosine(?1, ?1), vec_distance_cosine(?1, ?2)", (first, second)
            )
        )
    )
    if (same, orthogonal) != (0.0, 1.0):
        raise ValueError(
            f"sqlite-vec {version} loaded, but computes the cosine distances {same} and {orthogonal} instead of 0 and 1"
        )
    return str(version)


def is_loaded(connection: apsw.Connection) -> bool:
    """Return whether a connection has the functions of sqlite-vec."""
    return bool(scalar(connection, "SELECT count(*) FROM pragma_function_list WHERE name = 'vec_distance_cosine'"))


def nearest(connection: apsw.Connection, query: Vectors, limit: int, sources: Sequence[Source]) -> Ids:
    """Return chunks among which the nearest `limit` to a unit query are, by scanning the stored vectors.

    `limit` is at least 1; an empty `sources` means all. The result is a little larger than `limit`, and holds every
    chunk that is as near as the last of the `limit`, up to rounding. No order. SQLite releases the interpreter while
    the statement runs, and no blob becomes a Python object, so other threads do not wait for the scan.

    Raises:
        apsw.SQLError: sqlite-vec is not loaded, or raises an error.
    """
    among = _OF_SOURCES.format(marks=",".join("?" * len(sources))) if sources else ""
    bindings = (query.nbytes, query.tobytes(), *sources)
    wanted = limit + SPARE_CANDIDATES
    found = one_step.scored(connection, _NEAREST.format(among=among), (*bindings, wanted))
    ids, distances = np.array([row[0] for row in found], np.int64), np.sort([row[1] for row in found])
    if len(found) < wanted or distances[-1] - distances[limit - 1] > _TIE:
        return ids
    return one_step.ids(connection, _WITHIN.format(among=among), (*bindings, distances[limit - 1] + _TIE))


def described(error: Exception) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {error}"
