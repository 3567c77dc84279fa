"""EditPause: a mark in the database that stops the edits of one agent in all replicas, while sources are forgotten."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from memoryd_server.errors import IndexBusy, MemorydError
from memoryd_server.postgres.agent_database import AgentDatabase, AgentRows
from memoryd_server.postgres.session import Connection
from memoryd_server.writing import PAUSE_SECONDS

_T = TypeVar("_T")

_STEP_SECONDS: Final = 0.1

# The mark is the id of the replica and a random name. That of a replica that has expired has no effect.
_PAUSED = """SELECT 1 FROM document_states JOIN replicas ON replica_id = split_part(edits_paused_by, ' ', 1)
    WHERE agent_id = %(agent)s AND replica_id <> %(own)s AND expires_at > clock_timestamp()"""
_BEGIN = "UPDATE document_states SET edits_paused_by = %(mark)s WHERE agent_id = %(agent)s"
_END = "UPDATE document_states SET edits_paused_by = NULL WHERE agent_id = %(agent)s AND edits_paused_by = %(mark)s"


class _EditsPaused(IndexBusy):
    """Another replica has paused the edits."""


class EditPause:
    """Whether edits of an agent's documents are paused. Thread-safe. Blocks.

    The threads of one replica exclude each other before they use it. `new_id` returns a new random name at each call.
    """

    def __init__(self, database: AgentDatabase, new_id: Callable[[], str]) -> None:
        self._database = database
        self._new_id = new_id

    def require_none(self, rows: AgentRows) -> None:
        """Raise IndexBusy if another replica has paused the edits, in a transaction that has locked the documents."""
        if rows.all(_PAUSED, own=self._database.replica.replica_id):
            raise _EditsPaused(
                "another memoryd is forgetting something of this agent; try again", retry_after_seconds=1.0
            )

    def repeated(self, work: Callable[[], _T], most_seconds: float = PAUSE_SECONDS) -> _T:
        """Return the result of `work`; while the edits are paused, call it again until `most_seconds` have passed."""
        until = time.monotonic() + most_seconds
        while True:
            try:
                return work()
            except _EditsPaused:
                if time.monotonic() > until:
                    raise
            time.sleep(_STEP_SECONDS)

    @contextmanager
    def begun(self, most_seconds: float) -> Iterator[None]:
        """Let no other replica begin an edit until the block ends.

        Raises:
            IndexBusy: an edit or a pause of another replica has not ended after `most_seconds`.
            IndexUnavailable, IndexReadOnly, DiskFull: the database cannot be used.
        """
        mark = f"{self._database.replica.replica_id} {self._new_id()}"
        self._database.require_beat()
        try:
            self.repeated(lambda: self._begin(mark), most_seconds)
        except _EditsPaused:
            raise
        except MemorydError:
            # The mark may be stored, and lasts as long as this replica.
            self._end_later(mark)
            raise
        try:
            yield
        finally:
            try:
                with self._database.write() as rows:
                    rows.run(_END, mark=mark)
            except MemorydError:
                self._end_later(mark)

    def _end_later(self, mark: str) -> None:
        self._database.replica.after_beat(partial(self._end, mark))

    def _begin(self, mark: str) -> None:
        with self._database.write() as rows:
            # Waits for an edit that is under way.
            rows.lock_documents()
            self.require_none(rows)
            rows.run(_BEGIN, mark=mark)

    def _end(self, mark: str, connection: Connection) -> None:
        agent_id = self._database.agent_id
        with connection.transaction():
            connection.execute("SELECT set_config('memoryd.agent', %s, true)", (agent_id,))
            connection.execute(_END, {"agent": agent_id, "mark": mark})
