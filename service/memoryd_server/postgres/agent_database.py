"""AgentDatabase: transactions on the documents and transcripts of one agent. AgentRows: statements in a transaction."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from memoryd_server.errors import IndexDamaged, IndexUnavailable
from memoryd_server.postgres.connection import Database, DatabaseUse
from memoryd_server.postgres.errors import translated
from memoryd_server.postgres.replica import Replica
from memoryd_server.postgres.session import Connection, Operation

Row = tuple[Any, ...]

_LOCK = """INSERT INTO document_states(agent_id, next_version, append_keys) VALUES(%(agent)s, 2, 0)
    ON CONFLICT (agent_id) DO UPDATE SET next_version = document_states.next_version + 1
    RETURNING next_version - 1"""


class AgentRows:
    """Statements on the rows of one agent in one transaction. Every statement gets the agent as a parameter."""

    def __init__(self, connection: Connection, agent_id: str) -> None:
        self.connection = connection
        self.agent_id = agent_id

    def all(self, query: str, /, **values: object) -> list[Row]:
        """Return the rows of a statement, which takes `agent` and these values."""
        rows: list[Row] = self.connection.execute(query, {"agent": self.agent_id, **values}, binary=True).fetchall()
        return rows

    def run(self, query: str, /, **values: object) -> int:
        """Execute a statement without a result; return the number of changed rows."""
        changed: int = self.connection.execute(query, {"agent": self.agent_id, **values}).rowcount
        return changed

    def numbers(self, query: str, /, **values: object) -> list[int]:
        """Return the first column of all rows of a statement."""
        return [row[0] for row in self.all(query, **values)]

    def lock_documents(self) -> int:
        """Wait until this is the only write to the agent's documents and transcripts; return its version.

        Versions rise with each write, also with one that changes nothing.
        """
        return self.numbers(_LOCK)[0]


class DocumentReads(Protocol):
    """Opens snapshots of the documents and transcripts of one agent."""

    @property
    def agent_id(self) -> str:
        """The agent."""

    def read(self) -> AbstractContextManager[AgentRows]:
        """Open a snapshot of the agent's rows."""


class AgentDatabase:
    """The documents and transcripts of one agent in a database. Thread-safe. Blocks.

    `use` keeps the connections of the database open between the transactions.
    """

    def __init__(self, database: Database, agent_id: str, use: DatabaseUse) -> None:
        self.agent_id = agent_id
        self._database = database
        self._use = use

    @property
    def location(self) -> str:
        """The hosts and the name of the database, without a user or password."""
        return self._database.location

    @contextmanager
    def read(self) -> Iterator[AgentRows]:
        """Open a snapshot of the agent's rows.

        Raises:
            IndexUnavailable, IndexBusy: the database cannot be used.
        """
        operation = Operation.DOCUMENTS_READ
        with self._translated(), self._database.read(self.agent_id, operation=operation) as connection:
            yield AgentRows(connection, self.agent_id)

    @contextmanager
    def write(self) -> Iterator[AgentRows]:
        """Run the block in one transaction: committed as a whole, or rolled back.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the transaction is not committed. If the server was
                lost during the commit, it may be.
        """
        operation, is_complete = Operation.DOCUMENTS_WRITE, False
        try:
            with self._translated(), self._database.write(self.agent_id, operation=operation) as connection:
                yield AgentRows(connection, self.agent_id)
                is_complete = True
        except IndexUnavailable as error:
            if not is_complete or error.retry_after_seconds is None:
                raise
            raise IndexUnavailable(
                f"{error.message}; the connection was lost during the commit, so the change may be stored: repeat the "
                "request with the same idempotency key, or read before you repeat it",
                retry_after_seconds=error.retry_after_seconds,
            ) from error

    def notify_replicas(self) -> None:
        """Notify the running daemons of a change, so that they index it soon. Raises as `read`."""
        with self._translated():
            self._database.changes.notify(self.agent_id)

    @property
    def replica(self) -> Replica:
        """This process among those that use the database."""
        return self._database.replica

    def require_beat(self) -> None:
        """Wait until the other replicas know this one. Raises as `read`."""
        with self._translated(), translated():
            self._database.replica.require_beat()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Prepare the database, and report missing tables as lost documents, which a sync cannot restore."""
        self._use.begin()
        try:
            self._database.prepare()
            yield
        except IndexDamaged as error:
            raise IndexUnavailable(
                f"the documents of the agent {self.agent_id!r} cannot be used: {error.message}; restore the database "
                "from a backup"
            ) from error
