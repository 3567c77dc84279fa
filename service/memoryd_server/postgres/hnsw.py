"""The HNSW index of an agent with many vectors: when it is wanted, how it is created, and the search that uses it.

It is a partial index of the table `vectors`, for one set of one agent, so that searches and writes of other agents do
not use it, and nothing is moved. It holds the vectors as half-precision numbers. The catalog of the server is the only
record of it.
"""

import hashlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import psycopg
from psycopg import errors, sql

from memoryd_server.postgres.errors import translated
from memoryd_server.postgres.filters import file_condition, row_condition
from memoryd_server.postgres.scope import OWN, AgentScope, GenerationState, Row
from memoryd_server.postgres.session import Connection
from memoryd_server.postgres.vector_format import VectorBlob
from memoryd_server.store import ALL_CHUNKS, ChunkFilter

MAX_DIMENSIONS: Final = 4_000
"""The most dimensions of a vector that pgvector has an HNSW index for, as half-precision numbers."""

# An index is created when the vectors of almost all chunks are stored, because adding them one by one takes longer. It
# is dropped when there are so few that it would not be created for a while.
_MOST_PENDING = 0.1
_KEPT_ABOVE = 0.75

# pgvector's defaults, 16 and 64, connect the vectors of one cluster with too few of the others, so that some searches
# miss a whole cluster. More candidates double the time of the creation, more links take little time and space.
_LINKS = 32
_BUILD_CANDIDATES = 200

# If a filter leaves at most this number of chunks, or if the nearest vectors that the index returns include too few of
# them, all vectors of the filter are compared instead, which takes no longer.
_FEW_CHUNKS = 3_000
_MATCHING = f"SELECT coalesce(sum(chunk_count), 0)::bigint FROM files WHERE {OWN}{{files}}"  # noqa: S608 -- a constant

# Candidates that a search of the graph keeps, which a larger graph needs more of for the same recall; and the most
# vectors that it looks at for a filter.
_LEAST_CANDIDATES, _MOST_CANDIDATES = 100, 1_000
_CHUNKS_PER_CANDIDATE = 250
_SETTINGS = """SELECT set_config('hnsw.ef_search', %(candidates)s, true),
    set_config('hnsw.max_scan_tuples', '2000', true), set_config('hnsw.iterative_scan', 'strict_order', true)"""

# Two sessions that each create an index of the same table wait for one another. Parallel workers need shared memory,
# which containers often limit.
_BUILD_LOCK = 0x6D656D68
_BYTES_PER_ELEMENT = 2_000
_LEAST_BUILD_KB, _MOST_BUILD_KB = 64 << 10, 1 << 20
_BUILD_SETTINGS = """SELECT pg_try_advisory_lock(%s), set_config('statement_timeout', '0', false),
    set_config('lock_timeout', '0', false), set_config('max_parallel_maintenance_workers', '0', false),
    set_config('maintenance_work_mem', %s, false)"""
_STOP_CHECK_SECONDS = 0.2
_CANCEL_SECONDS = 5.0
_RETRY_SECONDS = 3600.0

# Iterative scans are new in pgvector 0.8.
_SUPPORTED = """SELECT 1 FROM pg_extension
    WHERE extname = 'vector' AND string_to_array(extversion, '.')::integer[] >= '{0,8}'"""
_EXISTING = """SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = 'vectors'::regclass AND starts_with(relname::text, %s) AND indisvalid = %s"""


@dataclass(frozen=True, slots=True)
class HnswIndex:
    """An index of the vectors of one set of a generation that have these dimensions."""

    generation: int
    vector_set: int
    dimensions: int

    @property
    def type(self) -> str:
        """The type of the numbers in the index."""
        return f"halfvec({self.dimensions:d})"

    def is_of(self, state: GenerationState) -> bool:
        """Return whether it is an index of the stored vectors."""
        return (self.generation, self.vector_set) == (state.generation, state.vector_set)


@dataclass(frozen=True, slots=True)
class HnswPlan:
    """The index that an agent with some number of vectors should have, and whether it has that one and no other."""

    wanted: HnswIndex | None
    vectors: int
    is_done: bool


def candidates(
    scope: AgentScope, index: HnswIndex, query: VectorBlob, limit: int, among: ChunkFilter
) -> list[Row] | None:
    """Return the ids and vectors of chunks that are probably the nearest; None if it is better to compare all vectors.

    That is the case if the filter leaves few chunks, or if fewer than `limit` were found.
    """
    if among != ALL_CHUNKS:
        files, of_files = file_condition(among)
        if scope.one(_MATCHING.format(files=files), **of_files)[0] <= _FEW_CHUNKS:
            return None
    condition, values = row_condition(among, "chunk_id")
    statement = f"""SELECT chunk_id, embedding FROM vectors
        WHERE {OWN} AND vector_set = %(set)s AND dimensions = %(dimensions)s{condition}
        ORDER BY embedding::{index.type} <=> %(query)s::{index.type} LIMIT %(limit)s"""  # noqa: S608 -- constants and a number
    numbers = {"set": index.vector_set, "dimensions": index.dimensions, "limit": limit}
    searched = min(max(_LEAST_CANDIDATES, scope.state.chunk_count // _CHUNKS_PER_CANDIDATE), _MOST_CANDIDATES)
    scope.run(_SETTINGS, candidates=str(searched))
    rows = scope.all(statement, **values, **numbers, query=query)
    return rows if len(rows) == limit else None


class AgentHnsw:
    """The HNSW index of one agent with more than `above` vectors; no index if that is 0. Thread-safe. Blocks.

    `connect` opens a connection for the creation of an index. `current` is the index that was last found or created,
    which searches may use.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        agent_id: str,
        above: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._agent_id = agent_id
        self._above = above
        self._monotonic = monotonic
        self._retry_at = -math.inf
        self._stopped = threading.Event()
        digest = hashlib.sha256(agent_id.encode()).hexdigest()
        self._prefix = f"vectors_hnsw_{digest[:20]}_"
        self.current: HnswIndex | None = None

    def open(self) -> None:
        """Allow `update` again, after `stop`."""
        self._stopped.clear()
        self._retry_at = -math.inf

    def load(self, connection: Connection) -> None:
        """Find the index that another process has created."""
        self.current = next(filter(None, map(self._parsed, self._existing(connection, valid=True))), None)

    def stop(self) -> None:
        """Cancel `update`, until the next `open`."""
        self._stopped.set()

    def plan(self, scope: AgentScope) -> HnswPlan:
        """Compare the index that the stored vectors should have with those that exist."""
        wanted = self._wanted(scope)
        valid, invalid = (self._existing(scope.connection, valid=valid) for valid in (True, False))
        is_done = not invalid and valid == ([self._name(wanted)] if wanted else [])
        if is_done:
            self.current = wanted
        return HnswPlan(wanted, scope.state.chunk_count, is_done)

    def _wanted(self, scope: AgentScope) -> HnswIndex | None:
        state, current = scope.state, self.current
        is_kept = current is not None and current.is_of(state)
        least = self._above * _KEPT_ABOVE if is_kept else self._above
        if not self._above or state.chunk_count <= least:
            return None
        query = f"SELECT count(*), max(dimensions) FROM vectors WHERE {OWN} AND vector_set = %(set)s"  # noqa: S608 -- a constant
        count, dimensions = scope.one(query, set=state.vector_set)
        if count <= least or (not is_kept and count < (1 - _MOST_PENDING) * state.chunk_count):
            return None
        if dimensions > MAX_DIMENSIONS or not scope.all(_SUPPORTED):
            return None
        return HnswIndex(state.generation, state.vector_set, dimensions)

    def update(self, plan: HnswPlan) -> bool:
        """Create the index if it is missing, and drop any other one of the agent.

        Return whether that is done; False if another process is creating an index, an attempt has failed within the
        last hour, or `stop` was called. Other sessions continue to read and write. The thread must have no transaction
        open: the server waits for the end of all that have begun before. Takes minutes for 100,000 vectors.

        Raises:
            DiskFull, IndexReadOnly, IndexUnavailable: the server does not create it.
        """
        if plan.is_done:
            return True
        if self._monotonic() < self._retry_at:
            return False
        with translated(has_deadline=False), self._connect() as connection:
            connection.statement_seconds = math.inf
            connection.check_seconds = _STOP_CHECK_SECONDS
            connection.check_server = partial(self._cancel_if_stopped, connection)
            try:
                return self._update(connection, plan.wanted, plan.vectors)
            except psycopg.Error:
                if self._stopped.is_set():
                    return False
                # A server that was restarted probably creates it.
                if not connection.broken:
                    self._retry_at = self._monotonic() + _RETRY_SECONDS
                raise

    def _cancel_if_stopped(self, connection: Connection) -> None:
        if self._stopped.is_set():
            connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def _update(self, connection: Connection, wanted: HnswIndex | None, vectors: int) -> bool:
        row = connection.execute(_BUILD_SETTINGS, (_BUILD_LOCK, f"{_build_kilobytes(wanted, vectors)}kB")).fetchone()
        if row is None or not row[0]:
            return False
        valid = self._existing(connection, valid=True)
        name = self._name(wanted) if wanted else ""
        if self.current != wanted:
            self.current = None
        for unwanted in (*self._existing(connection, valid=False), *(each for each in valid if each != name)):
            self._run(connection, sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(unwanted)))
        if wanted is not None and name not in valid:
            self._run(connection, self._creation(wanted))
        self.current = wanted
        return True

    def _run(self, connection: Connection, statement: sql.Composed) -> None:
        """Execute a statement unless `stop` was called, which cancels it."""
        if self._stopped.is_set():
            raise errors.QueryCanceled
        connection.execute(statement)

    def _creation(self, index: HnswIndex) -> sql.Composed:
        # Vectors of other dimensions, which another model makes, cannot be cast.
        return sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON vectors USING hnsw ((embedding::{type}) halfvec_cosine_ops)"
            " WITH (m = {links}, ef_construction = {candidates})"
            " WHERE agent_id = {agent} AND generation = {generation} AND vector_set = {set}"
            " AND dimensions = {dimensions}"
        ).format(
            name=sql.Identifier(self._name(index)),
            links=sql.Literal(_LINKS),
            candidates=sql.Literal(_BUILD_CANDIDATES),
            type=sql.SQL(index.type),
            agent=sql.Literal(self._agent_id),
            generation=sql.Literal(index.generation),
            set=sql.Literal(index.vector_set),
            dimensions=sql.Literal(index.dimensions),
        )

    def _existing(self, connection: Connection, *, valid: bool) -> list[str]:
        return [row[0] for row in connection.execute(_EXISTING, (self._prefix, valid))]

    def _name(self, index: HnswIndex) -> str:
        return f"{self._prefix}{index.generation}_{index.vector_set}_{index.dimensions}"

    def _parsed(self, name: str) -> HnswIndex | None:
        try:
            return HnswIndex(*map(int, name.removeprefix(self._prefix).split("_")))
        except (ValueError, TypeError):
            return None


def _build_kilobytes(index: HnswIndex | None, vectors: int) -> int:
    """Return how much memory the creation of an index needs; with less, it takes several times as long."""
    dimensions = 0 if index is None else index.dimensions
    wanted = vectors * (_BYTES_PER_ELEMENT + 2 * dimensions) >> 10
    return min(max(wanted, _LEAST_BUILD_KB), _MOST_BUILD_KB)
