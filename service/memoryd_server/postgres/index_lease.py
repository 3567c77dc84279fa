"""IndexLease: the lease of one index, held by blocks that change it, or as long as the index is open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from memoryd_server.errors import IndexDamaged, MemorydError
from memoryd_server.postgres.changes import notifying
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.writer import AgentWriter
from memoryd_server.store import StopSign


class IndexLease:
    """Lets `writer` change the index of an agent while this replica holds the lease. For the agent's writer thread.

    `is_kept` is whether the lease is held from `reserve` to `close`. `catch_up` loads what other replicas have changed.
    `known_fence` is the fence after which nothing has changed since the last load; None if that is not known.
    """

    def __init__(
        self,
        database: Database,
        agent_id: str,
        writer: AgentWriter,
        *,
        is_kept: bool,
        catch_up: Callable[[], None],
    ) -> None:
        self._database = database
        self._agent_id = agent_id
        self._writer = writer
        self._is_kept = is_kept
        self._catch_up = catch_up
        # How many blocks are nested.
        self._depth = 0
        self.known_fence: int | None = None

    def reserve(self) -> None:
        """Acquire a lease that is kept; wait only as long as its holder does not renew it. Raises as `AgentLeases`."""
        if self._is_kept and self._writer.fence is None:
            self._database.prepare()
            self._writer.begin(self._database.leases.acquire_unused(self._agent_id).fence)

    def close(self) -> None:
        """Release the lease. Idempotent."""
        if self._writer.fence is not None:
            self._writer.end()
            self._database.leases.release(self._agent_id)

    @contextmanager
    def held(self, should_stop: StopSign) -> Iterator[None]:
        """Hold the lease until the block ends; wait while another replica does. Blocks can be nested.

        Raises:
            IndexBusy: `should_stop` returned true during the wait.
            IndexUnavailable, IndexReadOnly, DiskFull: the lease cannot be acquired.
        """
        if self._depth == 0:
            self._acquire(should_stop)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._release()

    def _acquire(self, should_stop: StopSign) -> None:
        writer, leases = self._writer, self._database.leases
        if writer.is_lost:
            self.close()
        if writer.fence is not None:
            return
        if self._database.changes.take_request(self._agent_id):
            leases.leave_to_others(should_stop)
        should_stop = notifying(should_stop, self._ask)
        try:
            lease = leases.acquire(self._agent_id, should_stop)
        except IndexDamaged:
            # The block repairs the index in new tables.
            self._database.prepare(again=True)
            lease = leases.acquire(self._agent_id, should_stop)
        writer.begin(lease.fence)
        is_known = lease.before == self.known_fence
        self.known_fence = lease.fence
        try:
            if not is_known:
                self._catch_up()
        except BaseException:
            self.close()
            raise

    def _ask(self) -> None:
        # The next one asks again.
        with suppress(MemorydError):
            self._database.changes.notify(self._agent_id, waits=True)

    def _release(self) -> None:
        # Before the release, so that a replica that is killed in between leaves an expired lease.
        self._writer.notify()
        if not self._is_kept:
            self.close()
