"""PostgresStandby: one agent's index and documents on a standby. PostgresStandbyView: the same for one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from memoryd_server.postgres.agent_database import AgentRows
from memoryd_server.postgres.documents import DocumentCorpus
from memoryd_server.postgres.hnsw import HnswIndex
from memoryd_server.postgres.reader import PostgresReader, PostgresReaderCaches
from memoryd_server.postgres.scope import AgentScope
from memoryd_server.postgres.session import Connection
from memoryd_server.postgres.standby import Standby
from memoryd_server.sources import Corpus
from memoryd_server.store import ReadBound, StandbyOutcome, StandbyUnusable


class PostgresStandby:
    """Reads one agent's index and documents on a standby. Thread-safe.

    `hnsw` returns the HNSW index that searches on the primary use.
    """

    def __init__(self, standby: Standby, agent_id: str, hnsw: Callable[[], HnswIndex | None]) -> None:
        self.standby = standby
        self.agent_id = agent_id
        self.hnsw = hnsw
        # Not those of the primary, which may have another revision.
        self.caches = PostgresReaderCaches()

    def view(self, bound: ReadBound) -> "PostgresStandbyView":
        """Return the index and documents of the agent for one call. Does not connect."""
        return PostgresStandbyView(self, bound)

    def release_memory(self) -> None:
        """Release the memory that an idle index holds: the frequencies of terms."""
        self.caches.release_memory()


class PostgresStandbyView:
    """An agent's index and documents on a standby, for one call, on one thread at a time. Every method blocks.

    Reads within `snapshot`, or within a block of `read`, see the same moment.

    Raises:
        StandbyUnusable: the standby is older than the bound allows, or cannot be used; raised by every method that
            reads.
    """

    def __init__(self, agent: PostgresStandby, bound: ReadBound) -> None:
        self._agent = agent
        self._bound = bound
        self._connection: Connection | None = None

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a snapshot of the agent's rows, unless one is open."""
        if self._connection is not None:
            yield self._connection
            return
        with self._agent.standby.read(self._agent.agent_id, self._bound) as connection:
            self._connection = connection
            try:
                yield connection
            finally:
                self._connection = None

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[PostgresReader]:  # noqa: ARG002 -- that of the bound applies
        """Open a snapshot of the index."""
        agent = self._agent
        with self.snapshot() as connection:
            scope = AgentScope.load(connection, agent.agent_id, deadline=connection.deadline)
            least, state = self._bound.min_revision, scope.state
            if least and (state.revision < least or state.last_sync_ms is None):
                raise StandbyUnusable(f"the standby has not reached the revision {least}", StandbyOutcome.BEHIND)
            yield PostgresReader(scope, agent.caches, agent.hnsw())

    def corpus(self, of: Corpus) -> Corpus:
        """Return the same corpus with the documents of the standby; `of` itself if its files are in folders."""
        if isinstance(of, DocumentCorpus):
            return replace(of, documents=_StandbyDocuments(self._agent.agent_id, self))
        return of


@dataclass(frozen=True, slots=True)
class _StandbyDocuments:
    """The documents of an agent in the snapshots of a view."""

    agent_id: str
    view: PostgresStandbyView

    @contextmanager
    def read(self) -> Iterator[AgentRows]:
        """Open a snapshot of the agent's rows, unless the view has one."""
        with self.view.snapshot() as connection:
            yield AgentRows(connection, self.agent_id)
