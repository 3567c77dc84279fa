"""VectorIndex: candidates, exact cosines; scan by sqlite-vec.

The vector leg of one agent: what is in memory, who scans what is not, and the exact answer.

Which chunks a question about some sources may be answered with.

The sqlite-vec extension: loads it, checks it, and finds the nearest stored vectors with its distance function.
"""

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import Source
from memoryd_server.sqlite import readers, resident
from memoryd_server.sqlite.connection import is_damage, scalar
from memoryd_server.sqlite.exact import ROUNDING, SPARE_CANDIDATES, ExactVectors, ResidentVectors, TopK
from memoryd_server.sqlite.reader import SqliteReader
from memoryd_server.sqlite.resident import ResidentIndex
from memoryd_server.sqlite.sign_bits import SignBits, bytes_a_chunk
from memoryd_server.store import VectorHit
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors, exact_unit

PROBE_SECONDS = 30.0

Load = Callable[[apsw.Connection, str | None], None]

# Without it, SQLite derives the entry point from the name of the file, and the file may have any name.
_ENTRY_POINT = "sqlite3_vec_init"
_PROBED_DIMENSIONS = 8

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
class LoadedVectorEngine:
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


def probe_vector_extension(
    extension_path: str | None, timeout_seconds: float = PROBE_SECONDS, load_extension: Load = load
) -> LoadedVectorEngine:
    """Return sqlite-vec if it loads and computes known distances, else the exact engine with the reason.

    Loading happens on a thread of its own, which is abandoned after `timeout_seconds`.
    """
    answers: queue.SimpleQueue[LoadedVectorEngine] = queue.SimpleQueue()
    threading.Thread(
        target=lambda: answers.put(_tried(extension_path, load_extension)), name="probe sqlite-vec", daemon=True
    ).start()
    try:
        return answers.get(timeout=timeout_seconds)
    except queue.Empty:
        return LoadedVectorEngine("exact", load_error=f"sqlite-vec did not answer within {timeout_seconds:g} s")


def _tried(extension_path: str | None, load_extension: Load) -> LoadedVectorEngine:
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            load_extension(connection, extension_path)
            return LoadedVectorEngine("sqlite-vec", _checked_version(connection))
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
    found = readers.scored(connection, _NEAREST.format(among=among), (*bindings, wanted))
    ids, distances = np.array([row[0] for row in found], np.int64), np.sort([row[1] for row in found])
    if len(found) < wanted or distances[-1] - distances[limit - 1] > _TIE:
        return ids
    return readers.ids(connection, _WITHIN.format(among=among), (*bindings, distances[limit - 1] + _TIE))


def described(error: Exception) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {error}"


COARSE_ABOVE = 10_000
"""Chunks above which a coarse index proposes the candidates; up to it every vector is compared."""

MOST_CODES_BYTES = 32 * 2**20
"""What a coarse index may take for a byte of each number: about as much as the largest index that is held whole."""

# How far a small index may outgrow that before it is loaded anew.
_OUTGROWN = 1.25

# The share of spare room in what is resident.
_SPARE = 1.25


class VectorIndex:
    """Finds the nearest chunks of one agent's index. Any thread may search; the writer thread applies changes.

    A small index is compared whole in memory. A large one, or one that would not fit the memory budget whole, is
    narrowed down by sign bits. While no vectors are in memory, because the budget is too small, another search is
    loading them or the snapshot is too old to load from, the stored vectors are scanned: by sqlite-vec if it loads,
    else by numpy, with the same results.
    """

    def __init__(
        self,
        *,
        sqlite_vec: bool,
        extension_path: str | None,
        memory_budget_bytes: int,
        coarse_above: int = COARSE_ABOVE,
        most_codes_bytes: int = MOST_CODES_BYTES,
        load_extension: Load = load,
    ) -> None:
        self._wanted = sqlite_vec
        self._extension_path = extension_path
        self._load_extension = load_extension
        self._budget_bytes = memory_budget_bytes
        self._coarse_above = coarse_above
        self._most_codes_bytes = most_codes_bytes
        self._engine = LoadedVectorEngine("exact", load_error="sqlite-vec was not probed yet" if sqlite_vec else None)
        self._allowed = SourceFilter()
        self._residency = ResidentIndex(self._begin, memory_budget_bytes)

    @property
    def engine(self) -> LoadedVectorEngine:
        """The engine that scans stored vectors, as last determined."""
        return self._engine

    def probe(self, timeout_seconds: float = PROBE_SECONDS) -> LoadedVectorEngine:
        """Determine whether sqlite-vec loads and computes right distances. Blocks; call it at start."""
        if self._wanted:
            self._engine = probe_vector_extension(self._extension_path, timeout_seconds, self._load_extension)
        return self._engine

    def search(
        self,
        reader: SqliteReader,
        query: NDArray[np.float32],
        limit: int,
        sources: Sequence[Source] = (),
    ) -> list[VectorHit]:
        """Return the nearest chunks of the reader's snapshot, best first, equals by chunk id.

        Empty `sources` means all. The cosines are exact, from the stored vectors. Vectors of another dimension than the
        query's are left out.

        Raises:
            ValueError: the query has no direction: zero, or a number that is not finite.
        """
        direction = exact_unit(query)
        if limit < 1:
            return []
        best = TopK(direction, limit)
        rough, named = direction.astype(np.float32), restricting(sources)
        candidates = None
        if self._residency.prepare(reader, len(rough)):
            candidates = self._residency.candidates(rough, limit, self._allowed.ids(reader, named))
        if candidates is None:
            candidates = self._scanned(reader, rough, limit, named)
        if candidates is None:
            resident.offer_all(reader, len(rough), self._allowed.ids(reader, named), best)
        else:
            resident.offer(reader, len(rough), candidates, best)
        return best.hits()

    def _scanned(self, reader: SqliteReader, query: Vectors, limit: int, sources: Sequence[Source]) -> Ids | None:
        """Return the candidates that sqlite-vec finds among the stored vectors; None if it does not serve."""
        if self._engine.engine != "sqlite-vec":
            return None
        try:
            if not is_loaded(reader.connection):
                self._load_extension(reader.connection, self._extension_path)
            return nearest(reader.connection, query, limit, sources)
        except (apsw.SQLError, apsw.ExtensionLoadingError, ImportError, OSError) as error:
            if is_damage(error):
                raise
            self._engine = LoadedVectorEngine("exact", self._engine.version, described(error))
            return None

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Update memory after a commit; the writer thread calls it immediately after the commit.

        `added` holds the blobs of new and changed chunks, `removed` the chunks that lost theirs; an id that is
        in both is added.
        """
        self._residency.apply(added, removed)

    def reset(self) -> None:
        """Forgets what is resident, after a rebuild, a swap or another identity."""
        self._residency.reset()
        self._allowed.forget()

    def unload(self) -> None:
        """Gives the memory of an idle agent back; the next search loads anew."""
        self._residency.unload()
        self._allowed.forget()

    @property
    def form(self) -> str:
        """What is held in memory of each vector: `whole`, `bits`, or nothing (empty)."""
        return self._residency.form

    @property
    def memory_bytes(self) -> int:
        """What is resident."""
        return self._residency.memory_bytes + self._allowed.memory_bytes

    def _begin(self, reader: SqliteReader, dimensions: int) -> ResidentVectors | None:
        """An empty resident of the kind that suits the snapshot."""
        count = reader.embedding_count()
        room = self._budget_bytes / _SPARE
        if count <= self._coarse_above and count * FLOAT_BYTES * dimensions <= room:
            return ExactVectors(dimensions, count, int(self._coarse_above * _OUTGROWN))
        if count * bytes_a_chunk(dimensions) > room:
            return None
        codes_fit = (
            count * dimensions <= self._most_codes_bytes and count * bytes_a_chunk(dimensions, with_codes=True) <= room
        )
        return SignBits(resident.sample_mean(reader, dimensions), count, with_codes=codes_fit)


def restricting(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources of a filter, each once; empty if the filter leaves no chunk out."""
    wanted = frozenset(sources)
    return () if wanted == frozenset(Source) else tuple(sorted(wanted))


class SourceFilter:
    """The answers to such questions, true as long as their revision is the index's. For any thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[Source, ...], tuple[int, Ids]] = {}

    def ids(self, reader: SqliteReader, sources: tuple[Source, ...]) -> Ids | None:
        """Return the sorted chunks of `restricting` sources in the reader's snapshot; None if there are no sources."""
        if not sources:
            return None
        revision = reader.revision
        known = self._known.get(sources)
        if known is not None and known[0] == revision:
            return known[1]
        ids = np.sort(np.array(reader.chunk_ids(sources), np.int64))
        self._known = {**self._known, sources: (revision, ids)}
        return ids

    def forget(self) -> None:
        """Gives the memory back."""
        self._known = {}

    @property
    def memory_bytes(self) -> int:
        """What is remembered takes."""
        return sum(ids.nbytes for _, ids in self._known.values())
