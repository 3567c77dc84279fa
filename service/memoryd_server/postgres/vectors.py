"""The two sets of vectors of an index, stored and staged, and the nearest chunks to a vector.

A set is the vectors with the same number. The staged set replaces the stored one when its number does.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memoryd_server.postgres import hnsw
from memoryd_server.postgres.filters import Condition, chunk_condition, listed_condition
from memoryd_server.postgres.hnsw import HnswIndex
from memoryd_server.postgres.scope import OWN, AgentScope, Row
from memoryd_server.postgres.vector_format import VectorBlob
from memoryd_server.store import ChunkFilter, PendingChunk, StoredVector, VectorHit, VectorIdentity
from memoryd_server.vectors import Vectors, exact_unit, from_blobs, to_blob

# Every search reads the identity of the vectors, which hardly ever changes.
parse_identity = lru_cache(maxsize=256)(VectorIdentity.from_json)

OpenScope = Callable[[], AbstractContextManager[AgentScope]]
"""Opens the scope of one call: that of a snapshot, or a transaction."""

_IN_SET = f"{OWN} AND vector_set = %(set)s"
_MISSING = f"chunks WHERE {OWN} AND id NOT IN (SELECT chunk_id FROM vectors WHERE {_IN_SET})"  # noqa: S608 -- constants

# pgvector sums in float32, so candidates that are nearly as near as the last one are compared exactly.
_ROUNDING = 2e-5
_SPARE_CANDIDATES = 16
_DISTANCES = f"""SELECT chunk_id, embedding, embedding <=> %(query)s AS distance FROM vectors
    WHERE {_IN_SET} AND dimensions = %(dimensions)s{{among}}"""  # noqa: S608 -- constants
_NEAREST = f"{_DISTANCES} ORDER BY distance LIMIT %(wanted)s"
_WITHIN = f"SELECT chunk_id, embedding FROM ({_DISTANCES}) AS near WHERE distance <= %(most)s"  # noqa: S608 -- constants


class PostgresVectors:
    """One set of vectors of an index, for reading."""

    def __init__(self, open_scope: OpenScope, *, is_staged: bool = False) -> None:
        self._open_scope = open_scope
        self._is_staged = is_staged

    def _set(self, scope: AgentScope) -> int:
        """Return the number of the set; one that no set has if the staged set is gone."""
        return (scope.state.staged_set or 0) if self._is_staged else scope.state.vector_set

    def vector_identity(self) -> VectorIdentity | None:
        """Return the identity of the vectors, as given to `begin_vectors`; None if there never were any."""
        with self._open_scope() as scope:
            stored = scope.state.staged_identity if self._is_staged else scope.state.vector_identity
        return parse_identity(stored or "")

    def staged(self) -> "PostgresVectors | None":
        """Return the staged set; None if there is none."""
        with self._open_scope() as scope:
            return None if scope.state.staged_set is None else PostgresVectors(self._open_scope, is_staged=True)

    def failover_record(self) -> str:
        """Return the record last passed to `record_failover`; empty if there is none."""
        with self._open_scope() as scope:
            return scope.state.failover_record

    def vector_dimensions(self) -> int:
        """Return the length of the vectors; 0 if there are none."""
        with self._open_scope() as scope:
            query = f"SELECT dimensions FROM vectors WHERE {_IN_SET} ORDER BY chunk_id LIMIT 1"  # noqa: S608 -- constants
            rows = scope.all(query, set=self._set(scope))
        return int(rows[0][0]) if rows else 0

    def stored_vectors(self, after: int, limit: int) -> list[StoredVector]:
        """Return up to `limit` vectors, by chunk id, after id `after`."""
        query = """SELECT chunk_id, content_hash, embedding
            FROM (SELECT chunk_id, embedding FROM vectors WHERE agent_id = %(agent)s AND generation = %(generation)s
                AND vector_set = %(set)s AND chunk_id > %(after)s ORDER BY chunk_id LIMIT %(limit)s) AS v
            JOIN chunks AS c ON c.agent_id = %(agent)s AND c.generation = %(generation)s AND c.id = chunk_id
            ORDER BY chunk_id"""
        with self._open_scope() as scope:
            rows = scope.all(query, set=self._set(scope), after=after, limit=limit)
        return [StoredVector(*row) for row in rows]

    def count_chunks(self) -> int:
        """Return the number of chunks, with a vector or without."""
        with self._open_scope() as scope:
            return scope.state.chunk_count

    def count_pending(self) -> int:
        """Return the number of chunks without a vector."""
        with self._open_scope() as scope:
            return int(scope.one(f"SELECT count(*) FROM {_MISSING}", set=self._set(scope))[0])  # noqa: S608 -- constants

    def pending_hashes(self) -> list[bytes]:
        """Return the content hash of each chunk without a vector."""
        with self._open_scope() as scope:
            rows = scope.all(f"SELECT content_hash FROM {_MISSING}", set=self._set(scope))  # noqa: S608 -- constants
        return [row[0] for row in rows]

    def pending_chunks(self, after: int, limit: int, *, everything: bool) -> list[PendingChunk]:
        """Return up to `limit` chunks without a vector, by id, after id `after`; all chunks if `everything`."""
        source = f"chunks WHERE {OWN}" if everything else _MISSING
        query = f"SELECT id, content_hash, text FROM {source} AND id > %(after)s ORDER BY id LIMIT %(limit)s"  # noqa: S608 -- constants
        with self._open_scope() as scope:
            rows = scope.all(query, set=self._set(scope), after=after, limit=limit)
        return [PendingChunk(*row) for row in rows]


class PostgresVectorWriter(PostgresVectors):
    """Changes one set of vectors, each call in its own transaction, which `change` opens."""

    def __init__(self, open_scope: OpenScope, change: OpenScope, *, is_staged: bool = False) -> None:
        super().__init__(open_scope, is_staged=is_staged)
        self._change = change

    def begin_vectors(self, identity: VectorIdentity) -> None:
        """Delete every vector of the set and store the identity of the next ones."""
        with self._change() as scope:
            delete_set(scope, self._set(scope))
            self._store_identity(scope, identity)
            if not self._is_staged:
                forget_centre(scope)

    def set_dimensions(self, identity: VectorIdentity) -> None:
        """Store the identity once its dimensions are known, and delete vectors of other lengths."""
        query = f"DELETE FROM vectors WHERE {_IN_SET} AND dimensions <> %(dimensions)s"  # noqa: S608 -- constants
        with self._change() as scope:
            scope.run(query, set=self._set(scope), dimensions=identity.dimensions)
            self._store_identity(scope, identity)

    def put_vectors(self, vectors: Mapping[int, bytes]) -> int:
        """Store vectors by chunk id; return the index revision, which only vectors of the stored set raise.

        The vectors of chunks that are no longer in the index are ignored.
        """
        with self._change() as scope:
            insert_vectors(scope, self._set(scope), vectors)
            return scope.state.revision if self._is_staged else scope.raise_revision()

    def _store_identity(self, scope: AgentScope, identity: VectorIdentity) -> None:
        column = "staged_identity" if self._is_staged else "vector_identity"
        scope.run(f"UPDATE generations SET {column} = %(identity)s WHERE {OWN}", identity=identity.to_json())  # noqa: S608 -- constants


def insert_vectors(scope: AgentScope, number: int, vectors: Mapping[int, bytes]) -> None:
    """Store vectors of a set by chunk id."""
    query = f"""INSERT INTO vectors(agent_id, generation, vector_set, chunk_id, dimensions, embedding)
        SELECT %(agent)s, %(generation)s, %(set)s, * FROM unnest(%(ids)s::bigint[], %(lengths)s::integer[],
                %(vectors)b::vector[]) AS t(chunk_id, dimensions, embedding)
            WHERE chunk_id IN (SELECT id FROM chunks WHERE {OWN} AND id = ANY(%(ids)s))
        ON CONFLICT (agent_id, generation, vector_set, chunk_id)
            DO UPDATE SET dimensions = excluded.dimensions, embedding = excluded.embedding"""  # noqa: S608 -- a constant
    if vectors:
        blobs = [VectorBlob(data) for data in vectors.values()]
        scope.run(query, set=number, ids=list(vectors), lengths=[each.dimensions for each in blobs], vectors=blobs)


def delete_set(scope: AgentScope, number: int) -> None:
    """Delete the vectors of a set."""
    scope.run(f"DELETE FROM vectors WHERE {_IN_SET}", set=number)  # noqa: S608 -- constants


def remove_vectors(scope: AgentScope, chunk_ids: Sequence[int]) -> None:
    """Delete the vectors of these chunks from all sets."""
    sets = [number for number in (scope.state.vector_set, scope.state.staged_set) if number is not None]
    query = f"DELETE FROM vectors WHERE {OWN} AND vector_set = ANY(%(sets)s) AND chunk_id = ANY(%(ids)s)"  # noqa: S608 -- a constant
    scope.run(query, sets=sets, ids=list(chunk_ids))


def nearest(
    scope: AgentScope, query: Vectors, limit: int, among: ChunkFilter, index: HnswIndex | None = None
) -> list[VectorHit]:
    """Return the nearest chunks with their exact cosines, best first, the smaller id first among equals.

    If `index` is one of the stored vectors, chunks may be missing.

    Raises:
        ValueError: the query has no direction.
    """
    direction = exact_unit(query)
    if limit < 1:
        return []
    if index is None or not index.is_of(scope.state) or index.dimensions != len(direction):
        rows = _compared(scope, direction, limit, chunk_condition(among, "chunk_id"))
    else:
        blob = VectorBlob(to_blob(direction))
        found = hnsw.candidates(scope, index, blob, limit + _SPARE_CANDIDATES, among)
        rows = _compared(scope, direction, limit, listed_condition(among, "chunk_id")) if found is None else found
    ids, vectors = from_blobs([(row[0], row[1]) for row in rows], len(direction))
    exact = np.clip((vectors.astype(np.float64) * direction).sum(axis=1), -1.0, 1.0)
    order = np.lexsort((ids, -exact))[:limit]
    return [VectorHit(*pair) for pair in zip(ids[order].tolist(), exact[order].tolist(), strict=True)]


def _compared(scope: AgentScope, direction: NDArray[np.float64], limit: int, selection: Condition) -> list[Row]:
    """Return the ids and vectors of all chunks that may be among the nearest, after a comparison with all vectors."""
    condition, values = selection
    parameters = {
        **values,
        "query": VectorBlob(to_blob(direction)),
        "dimensions": len(direction),
        "set": scope.state.vector_set,
    }
    wanted = limit + _SPARE_CANDIDATES
    rows = scope.all(_NEAREST.format(among=condition), **parameters, wanted=wanted)
    # A vector without a direction has no distance, and is last.
    distances = [row[2] for row in rows if np.isfinite(row[2])]
    if len(distances) == wanted and distances[-1] - distances[limit - 1] <= _ROUNDING:
        rows = scope.all(_WITHIN.format(among=condition), **parameters, most=distances[limit - 1] + _ROUNDING)
    return rows


def cosines(scope: AgentScope, ids: Sequence[int], query: Vectors) -> dict[int, float]:
    """Return the cosine of each chunk's vector with the unit vector `query`; chunks without one are left out."""
    present, vectors = vectors_of(scope, ids, len(query))
    return dict(zip(present, (vectors @ query).tolist(), strict=True))


def vectors_of(scope: AgentScope, ids: Sequence[int], dimensions: int) -> tuple[list[int], Vectors]:
    """Return the ids of those of these chunks that have a vector of these dimensions, and the vectors, one per row."""
    statement = f"SELECT chunk_id, embedding FROM vectors WHERE {_IN_SET} AND chunk_id = ANY(%(ids)s)"  # noqa: S608 -- constants
    rows = scope.all(statement, set=scope.state.vector_set, ids=list(ids))
    present, vectors = from_blobs([(row[0], row[1]) for row in rows], dimensions)
    return present.tolist(), vectors


SAMPLED = 128
"""At least this many vectors are averaged, if the index has as many, and less than twice as many."""


def read_centre(scope: AgentScope, dimensions: int) -> Vectors | None:
    """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""
    blob = scope.one(f"SELECT vector_centre FROM generations WHERE {OWN}")[0]  # noqa: S608 -- a constant
    if blob is None:
        return None
    centre = np.frombuffer(blob, "<f4").astype(np.float32)
    return centre if len(centre) == dimensions else None


def measure_centre(scope: AgentScope) -> None:
    """Measure the mean of some of the stored vectors and store it, unless it was measured at this revision."""
    if scope.state.vector_centre_revision == scope.state.revision:
        return
    number = scope.state.vector_set
    count, first = scope.one(f"SELECT count(*), min(chunk_id) FROM vectors WHERE {_IN_SET}", set=number)  # noqa: S608 -- constants
    step = max(1, count // SAMPLED)
    sampled = f"""SELECT chunk_id, embedding FROM vectors
        WHERE {_IN_SET} AND (chunk_id %% %(step)s = 0 OR chunk_id = %(first)s) ORDER BY chunk_id LIMIT %(limit)s"""  # noqa: S608 -- constants
    rows = scope.all(sampled, set=number, step=step, first=first, limit=4 * SAMPLED)
    if not rows:
        return
    blobs = [(row[0], row[1]) for row in rows]
    _, vectors = from_blobs(blobs, len(blobs[0][1]) // 4)
    centre = to_blob(vectors.mean(axis=0, dtype=np.float64))
    scope.run(
        f"UPDATE generations SET vector_centre = %(centre)s, vector_centre_revision = revision WHERE {OWN}",  # noqa: S608 -- a constant
        centre=centre,
    )


def forget_centre(scope: AgentScope) -> None:
    """Delete the mean, in the transaction that deletes the vectors."""
    scope.run(f"UPDATE generations SET vector_centre = NULL, vector_centre_revision = NULL WHERE {OWN}")  # noqa: S608 -- a constant
