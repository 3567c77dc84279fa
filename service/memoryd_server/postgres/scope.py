"""AgentScope: the rows of one agent's generation in one transaction. Every statement gets both as parameters."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from memoryd_server.errors import DeadlineTooShort, IndexDamaged
from memoryd_server.postgres.session import Connection

Row = tuple[Any, ...]

OWN = "agent_id = %(agent)s AND generation = %(generation)s"
"""The condition of every statement on one table."""

_STATE = """SELECT generation, revision, chunk_count, token_count, vector_identity, vector_set, staged_identity,
    staged_set, failover_record, last_sync_ms, annotated, vector_centre_revision, next_file_id, next_chunk_id
    FROM generations WHERE agent_id = %(agent)s AND generation = """
_ROWS_PER_INSERT = 20_000

# The timeout of statements, which counts from the start of each, is shortened when it is too long by this.
_LATE_SECONDS = 0.25
_SET_TIMEOUT = "SELECT set_config('statement_timeout', %s, true)"

_CURRENT = "(SELECT generation FROM agents WHERE agent_id = %(agent)s)"

# Unix milliseconds of the server. A new revision is never below them, so that it rises even if the rows are lost.
NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@dataclass(frozen=True, slots=True)
class Columns:
    """The table and the columns of rows to insert, each a name and a type, in addition to agent and generation."""

    table: str
    columns: tuple[tuple[str, str], ...]
    conflict: str = ""

    @property
    def statement(self) -> str:
        """An INSERT of one array per column."""
        names = ", ".join(name for name, _ in self.columns)
        arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in self.columns)
        return (
            f"INSERT INTO {self.table}(agent_id, generation, {names})"  # noqa: S608 -- constants
            f" SELECT %(agent)s, %(generation)s, * FROM unnest({arrays}){self.conflict}"
        )


@dataclass(frozen=True, slots=True)
class GenerationState:
    """The single values of a generation: the columns of `generations` that readers and writers use."""

    generation: int
    revision: int
    chunk_count: int
    token_count: int
    vector_identity: str
    vector_set: int
    staged_identity: str | None
    staged_set: int | None
    failover_record: str
    last_sync_ms: int | None
    annotated: bool
    vector_centre_revision: int | None
    next_file_id: int
    next_chunk_id: int


def missing_index(agent_id: str) -> IndexDamaged:
    """Return the error of an agent without rows."""
    return IndexDamaged(
        f"the database has no index of the agent {agent_id!r}; it is rebuilt from the Markdown",
        retry_after_seconds=1.0,
    )


class AgentScope:
    """Statements on the rows of one agent's generation.

    `state` is that of the start of the transaction, and `revision` the one that readers see after it.
    """

    def __init__(
        self, connection: Connection, agent_id: str, state: GenerationState, deadline: float | None = None
    ) -> None:
        self.connection = connection
        self.state = state
        self.revision = state.revision
        self._deadline = deadline
        self._limited_at = time.monotonic()
        self._key: Mapping[str, object] = {"agent": agent_id, "generation": state.generation}

    @classmethod
    def load(
        cls, connection: Connection, agent_id: str, generation: int | None = None, deadline: float | None = None
    ) -> Self:
        """Return the scope of a generation; of the one that readers see if `generation` is None.

        Raises:
            IndexDamaged: the agent has no such generation.
        """
        found = cls.find(connection, agent_id, generation, deadline)
        if found is None:
            raise missing_index(agent_id)
        return found

    @classmethod
    def find(
        cls, connection: Connection, agent_id: str, generation: int | None = None, deadline: float | None = None
    ) -> Self | None:
        """Return the scope as `load`; None if the agent has no such generation."""
        query = _STATE + (_CURRENT if generation is None else "%(generation)s")
        key = {"agent": agent_id, "generation": generation}
        row = connection.execute(query, key, binary=True).fetchone()
        return None if row is None else cls(connection, agent_id, GenerationState(*row), deadline)

    def all(self, query: str, /, **values: object) -> list[Row]:
        """Return the rows of a statement, which takes `agent`, `generation` and these values."""
        if self._deadline is not None:
            self._limit(self._deadline)
        rows: list[Row] = self.connection.execute(query, {**self._key, **values}, binary=True).fetchall()
        return rows

    def _limit(self, deadline: float) -> None:
        """Let the next statement end at the deadline, which the transaction began with."""
        now = time.monotonic()
        left_ms = int(1000 * (deadline - now))
        if left_ms <= 0:
            raise DeadlineTooShort(
                "the search did not finish before the deadline; allow more time or shorten the query"
            )
        if now - self._limited_at > _LATE_SECONDS:
            self.connection.execute(_SET_TIMEOUT, (str(left_ms),))
            self._limited_at = now

    def one(self, query: str, /, **values: object) -> Row:
        """Return the row of a statement that has one."""
        return self.all(query, **values)[0]

    def run(self, query: str, /, **values: object) -> int:
        """Execute a statement without a result; return the number of changed rows."""
        changed: int = self.connection.execute(query, {**self._key, **values}).rowcount
        return changed

    def insert(self, into: Columns, rows: Sequence[Row]) -> None:
        """Insert rows, some thousand in each statement."""
        names = [name for name, _ in into.columns]
        for start in range(0, len(rows), _ROWS_PER_INSERT):
            columns = zip(*rows[start : start + _ROWS_PER_INSERT], strict=True)
            self.run(into.statement, **dict(zip(names, map(list, columns), strict=True)))

    def run_many(self, query: str, values: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement once for each of the values."""
        if values:
            with self.connection.cursor() as cursor:
                cursor.executemany(query, [{**self._key, **each} for each in values])

    def raise_revision(self) -> int:
        """Raise the revision, and return it."""
        query = f"UPDATE generations SET revision = greatest(revision + 1, {NOW_MS}) WHERE {OWN} RETURNING revision"  # noqa: S608 -- constants
        self.revision = int(self.one(query)[0])
        return self.revision
