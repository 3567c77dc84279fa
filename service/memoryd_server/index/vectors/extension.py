"""The sqlite-vec extension: loaded the one way that memoryd loads it, and proved by use."""

import queue
import threading
from dataclasses import dataclass
from typing import Literal

import apsw
import numpy as np

from memoryd_server.index.connection import scalar

PROBE_SECONDS = 30.0

# Named, because SQLite guesses it from the file's name, and a file may have any.
_ENTRY_POINT = "sqlite3_vec_init"
_PROBED_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class VectorEngine:
    """Who compares the vectors of a small index.

    `version` is sqlite-vec's, empty when it did not load; `load_error` says why it did not, and is None when it did or
    was not asked to.
    """

    engine: Literal["sqlite-vec", "exact"]
    version: str = ""
    load_error: str | None = None


def open_copy(extension_path: str | None) -> apsw.Connection:
    """An empty database in memory, with sqlite-vec from `extension_path`, or the one that is installed.

    Raises:
        apsw.Error, ImportError, OSError: it does not load.
    """
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(extension_path or _installed(), _ENTRY_POINT)
    connection.enable_load_extension(False)
    return connection


def _installed() -> str:
    import sqlite_vec  # type: ignore[import-untyped]  # noqa: PLC0415 -- a Python without it, or without the sqlite3 it imports, still serves

    return str(sqlite_vec.loadable_path())


def create_copy(connection: apsw.Connection, dimensions: int) -> None:
    """Makes the `copy` table for vectors of so many dimensions."""
    connection.execute(
        f"CREATE VIRTUAL TABLE copy USING vec0(chunk_id INTEGER PRIMARY KEY,"
        f" embedding FLOAT[{dimensions}] DISTANCE_METRIC=cosine, CHUNK_SIZE=256)"
    )


def probe(extension_path: str | None, timeout_seconds: float = PROBE_SECONDS) -> VectorEngine:
    """Loads the extension, stores vectors and finds one again, on a thread of its own that is waited for so long."""
    answers: queue.SimpleQueue[VectorEngine] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_tried(extension_path)), name="probe sqlite-vec", daemon=True).start()
    try:
        return answers.get(timeout=timeout_seconds)
    except queue.Empty:
        return VectorEngine("exact", load_error=f"sqlite-vec did not answer within {timeout_seconds:g} s")


def _tried(extension_path: str | None) -> VectorEngine:
    try:
        return VectorEngine("sqlite-vec", _round_trip(extension_path))
    except Exception as error:  # noqa: BLE001 -- whatever a foreign library does at start, the exact engine serves
        return VectorEngine("exact", load_error=f"{type(error).__name__}: {error}")


def _round_trip(extension_path: str | None) -> str:
    """The version of an extension that finds what it was given."""
    connection = open_copy(extension_path)
    try:
        create_copy(connection, _PROBED_DIMENSIONS)
        vectors = np.eye(_PROBED_DIMENSIONS, dtype=np.float32)
        rows = [(number, vector.tobytes()) for number, vector in enumerate(vectors, 1)]
        connection.executemany("INSERT INTO copy(chunk_id, embedding) VALUES(?, ?)", rows)
        query = "SELECT chunk_id, distance FROM copy WHERE embedding MATCH ? AND k = 2"
        found = connection.execute(query, (rows[2][1],)).fetchall()
        if not found or found[0] != (rows[2][0], 0.0):
            raise LookupError(f"sqlite-vec loaded, but does not find a vector that was stored: {found}")
        return str(scalar(connection, "SELECT vec_version()"))
    finally:
        connection.close()
