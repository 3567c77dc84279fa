"""VectorIndex: the nearest chunks by exact cosine, from vectors in memory or a scan of the stored ones.

The scan uses the distance function of the sqlite-vec extension, which is loaded and checked first; without it, numpy.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.sqlite import readers, resident
from memoryd_server.sqlite.connection import is_damage, scalar
from memoryd_server.sqlite.exact import ROUNDING, SPARE_CANDIDATES, ExactVectors, ResidentVectors, TopK
from memoryd_server.sqlite.reader import SqliteReader
from memoryd_server.sqlite.resident import ResidentIndex
from memoryd_server.sqlite.sign_bits import SignBits, bytes_a_chunk
from memoryd_server.store import ALL_CHUNKS, ChunkFilter, VectorHit
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors, exact_unit

PROBE_SECONDS = 30.0

Load = Callable[[apsw.Connection, str | None], None]

# Without it, SQLite derives the entry point from the name of the file, and the file may have any name.
_ENTRY_POINT = "sqlite3_vec_init"
_SUFFIXES = (".so", ".dylib", ".dll")
_PROBED_DIMENSIONS = 8

# sqlite-vec sums the products one after the other in float32, which is less exact than numpy.
_TIE = 4 * ROUNDING

# NULL for a vector of another length and for one with a number that is not finite. CASE, because SQLite may evaluate
# the terms of a WHERE clause in any order, and the function raises an error where the lengths differ.
_DISTANCE = "CASE length(embedding) WHEN ? THEN vec_distance_cosine(embedding, ?) END"
# Not a mask: of a few chunks among many, the vectors of the others are not read.
_AMONG = " WHERE chunk_id IN (SELECT value FROM json_each(?))"
_SCORED = f"SELECT chunk_id AS id, {_DISTANCE} AS score FROM vectors{{among}}"  # noqa: S608 -- constants
# The inner LIMIT keeps SQLite from computing each distance twice, for the comparison with NULL and for the order.
_NEAREST = f"SELECT id, score FROM ({_SCORED} ORDER BY score NULLS LAST LIMIT ?) WHERE score IS NOT NULL"  # noqa: S608
_WITHIN = f"SELECT id FROM ({_SCORED}) WHERE score <= ?"  # noqa: S608 -- constants


@dataclass(frozen=True, slots=True)
class LoadedVectorEngine:
    """The engine that scans the stored vectors while none are in memory.

    `version` and `path` are those of sqlite-vec, empty if it did not load. `load_error` is the reason why it did not
    load; None if it did, or if the settings disable it.
    """

    engine: Literal["sqlite-vec", "exact"]
    version: str = ""
    load_error: str | None = None
    path: str = ""


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


def _file_of(path: str) -> str:
    """Return the file that SQLite loads for a path, which may lack the suffix."""
    candidates = (path, *(path + suffix for suffix in _SUFFIXES))
    return next((file for file in candidates if Path(file).is_file()), path)


def probe_vector_extension(
    extension_path: str | None, timeout_seconds: float = PROBE_SECONDS, load_extension: Load = load
) -> LoadedVectorEngine:
    """Return sqlite-vec if it loads and computes known distances, else the exact engine with the reason.

    It is loaded on a separate thread, which is abandoned after `timeout_seconds`.
    """
    results: queue.SimpleQueue[LoadedVectorEngine] = queue.SimpleQueue()
    threading.Thread(
        target=lambda: results.put(_try_extension(extension_path, load_extension)), name="probe sqlite-vec", daemon=True
    ).start()
    try:
        return results.get(timeout=timeout_seconds)
    except queue.Empty:
        return LoadedVectorEngine("exact", load_error=f"sqlite-vec did not load within {timeout_seconds:g} s")


def _try_extension(extension_path: str | None, load_extension: Load) -> LoadedVectorEngine:
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            load_extension(connection, extension_path)
            version = _checked_version(connection)
            return LoadedVectorEngine("sqlite-vec", version, path=_file_of(extension_path or _installed()))
    except Exception as error:  # noqa: BLE001 -- any failure of a foreign library at start leaves the exact engine
        return LoadedVectorEngine("exact", load_error=described(error))


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


def nearest(connection: apsw.Connection, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
    """Return candidates that include the nearest `limit` chunks to a unit query, by scanning the stored vectors.

    `limit` is at least 1. `allowed` are the chunks that may be returned; None means all. The result is a little larger
    than `limit`, and includes every chunk that is as near as the last of the `limit`, up to rounding. No order. SQLite
    releases the interpreter lock while the statement runs, and no blob becomes a Python object, so other threads do not
    wait for the scan.

    Raises:
        apsw.SQLError: sqlite-vec is not loaded, or raises an error.
    """
    among = "" if allowed is None else _AMONG
    bindings = (query.nbytes, query.tobytes(), *(() if allowed is None else (readers.id_list(allowed.tolist()),)))
    wanted = limit + SPARE_CANDIDATES
    rows = readers.scored(connection, _NEAREST.format(among=among), (*bindings, wanted))
    ids, distances = np.array([row[0] for row in rows], np.int64), np.sort([row[1] for row in rows])
    if len(rows) < wanted or distances[-1] - distances[limit - 1] > _TIE:
        return ids
    return readers.ids(connection, _WITHIN.format(among=among), (*bindings, distances[limit - 1] + _TIE))


def described(error: Exception) -> str:
    """Return the type and the message of an error. The messages of apsw begin with the type."""
    name, message = type(error).__name__, str(error)
    return message if message.startswith(f"{name}: ") else f"{name}: {message}"


COARSE_ABOVE = 10_000
"""Number of chunks above which sign bits select the candidates; up to it, every vector is compared."""

MAX_CODES_BYTES = 32 * 2**20
"""The most bytes of codes (one byte per number) for an index with sign bits.

About as much memory as the largest index whose vectors are all in memory.
"""

# How far a small index may grow above `COARSE_ABOVE` before it is loaded again, with sign bits.
_GROWTH_LIMIT = 1.25

# Allocated memory per byte used.
_SPARE = 1.25


class VectorIndex:
    """Finds the nearest chunks of one agent's index. Any thread may search; the writer thread applies changes.

    All vectors of a small index are in memory and are compared. For a large index, or one whose vectors do not fit the
    memory budget, sign bits select the candidates. The stored vectors are scanned while none are in memory: because the
    budget is too small, another search is loading them, or the snapshot is too old to load from. sqlite-vec scans if it
    loads, else numpy, with the same results.

    `resident` has the vectors in memory; the writer thread applies each commit to it. `on_load_error` is called on any
    thread with the reason each time that sqlite-vec does not load or fails.
    """

    def __init__(
        self,
        *,
        sqlite_vec: bool,
        extension_path: str | None,
        memory_budget_bytes: int,
        coarse_above: int = COARSE_ABOVE,
        max_codes_bytes: int = MAX_CODES_BYTES,
        load_extension: Load = load,
        on_load_error: Callable[[str], None] = lambda _: None,
        page_rows: int = resident.PAGE_ROWS,
    ) -> None:
        self._use_sqlite_vec = sqlite_vec
        self._on_load_error = on_load_error
        self._extension_path = extension_path
        self._load_extension = load_extension
        self._budget_bytes = memory_budget_bytes
        self._coarse_above = coarse_above
        self._max_codes_bytes = max_codes_bytes
        self._page_rows = page_rows
        self._engine = LoadedVectorEngine(
            "exact", load_error="sqlite-vec has not been probed yet" if sqlite_vec else None
        )
        self.resident = ResidentIndex(self._new_resident, memory_budget_bytes, page_rows)

    @property
    def engine(self) -> LoadedVectorEngine:
        """The engine that scans stored vectors, as last determined."""
        return self._engine

    def probe(self, timeout_seconds: float = PROBE_SECONDS) -> LoadedVectorEngine:
        """Determine whether sqlite-vec loads and computes right distances. Blocks; call it at start."""
        if self._use_sqlite_vec:
            self._set_engine(probe_vector_extension(self._extension_path, timeout_seconds, self._load_extension))
        return self._engine

    def _set_engine(self, engine: LoadedVectorEngine) -> None:
        self._engine = engine
        if engine.load_error is not None:
            self._on_load_error(engine.load_error)

    def search(
        self,
        reader: SqliteReader,
        query: NDArray[np.float32],
        limit: int,
        among: ChunkFilter = ALL_CHUNKS,
    ) -> list[VectorHit]:
        """Return the nearest chunks of the reader's snapshot, best first, the smaller id first among equals.

        The cosines are exact, from the stored vectors. Vectors of another length than the query's are left out.

        Raises:
            ValueError: the query has no direction: it is zero, or has a number that is not finite.
        """
        direction = exact_unit(query)
        selected = reader.selected(among)
        if limit < 1 or (selected is not None and not selected):
            return []
        best, rough = TopK(direction, limit), direction.astype(np.float32)
        allowed, candidates = None if selected is None else selected.ids, None
        if self.resident.prepare(reader, len(rough)):
            candidates = self.resident.candidates(rough, limit, allowed)
        if candidates is None:
            candidates = self._scan(reader, rough, limit, allowed)
        if candidates is None:
            resident.offer_all(reader, len(rough), allowed, best, self._page_rows)
        else:
            resident.offer(reader, len(rough), candidates, best, self._page_rows)
        return best.hits()

    def _scan(self, reader: SqliteReader, query: Vectors, limit: int, allowed: Ids | None) -> Ids | None:
        """Return the candidates that sqlite-vec finds among the stored vectors; None if it cannot be used."""
        if self._engine.engine != "sqlite-vec":
            return None
        try:
            if not is_loaded(reader.connection):
                self._load_extension(reader.connection, self._extension_path)
            return nearest(reader.connection, query, limit, allowed)
        except (apsw.SQLError, apsw.ExtensionLoadingError, ImportError, OSError) as error:
            if is_damage(error):
                raise
            self._set_engine(LoadedVectorEngine("exact", self._engine.version, described(error)))
            return None

    def reset(self) -> None:
        """Drop the vectors in memory, after a rebuild, a swap or a change of identity."""
        self.resident.reset()

    def release_memory(self) -> None:
        """Release the memory of an idle agent; the next search loads the vectors again."""
        self.resident.release_memory()

    @property
    def form(self) -> str:
        """The form of the vectors in memory: `whole`, `bits`, or empty if there are none."""
        return self.resident.form

    @property
    def memory_bytes(self) -> int:
        """The bytes that vectors take in memory. Waits for a commit that is changing them."""
        return self.resident.memory_bytes

    def _new_resident(self, reader: SqliteReader, dimensions: int) -> ResidentVectors | None:
        """Return empty resident vectors in the form that suits the snapshot; None if no form fits the budget."""
        count = reader.embedding_count()
        room = self._budget_bytes / _SPARE
        if count <= self._coarse_above and count * FLOAT_BYTES * dimensions <= room:
            return ExactVectors(dimensions, count, int(self._coarse_above * _GROWTH_LIMIT))
        if count * bytes_a_chunk(dimensions) > room:
            return None
        codes_fit = (
            count * dimensions <= self._max_codes_bytes and count * bytes_a_chunk(dimensions, with_codes=True) <= room
        )
        return SignBits(resident.sample_mean(reader, dimensions), count, with_codes=codes_fit)
