"""IndexReloader: load again what a daemon remembers of an index after another replica of its database has changed it.

The store reports changes, and also that changes may have been missed. A search with `min_revision` does not rely on
these reports: it loads the state itself, at intervals, while it waits.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from memoryd_server.agent.state import IndexMonitor
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import MemorydError, RevisionNotReached

RETRY_SECONDS = 5.0
"""How long after a failure the state is loaded again."""

POLL_SECONDS = 1.0
"""How often a search that waits for a revision loads the state."""


class IndexReloader:
    """Loads the state of one index. On the event loop's thread, unless a method says otherwise.

    `load` reads the state and updates `monitor`. After a reported change, `sync_reported` is called with whether the
    index has changed; if it has not, there may be files to index. The reloads for reports of all agents take their
    `turns`.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[None]],
        sync_reported: Callable[[bool], Awaitable[None]],
        monitor: IndexMonitor,
        *,
        turns: asyncio.Semaphore,
        tasks: BackgroundTasks,
    ) -> None:
        self._load = load
        self._sync_reported = sync_reported
        self._monitor = monitor
        self._turns = turns
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._loading = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        # Calls of `load`, and up to which of them the state is loaded.
        self._requested = self._loaded = 0

    def start(self) -> None:
        """Handle the changes that `note_change` records."""
        self._following = self._tasks.repeat("index reload", self._follow_changes, fault_pause_seconds=RETRY_SECONDS)

    async def stop(self) -> None:
        """Handle no further changes. A reload under way continues, because calls may wait for it."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    def note_change(self) -> None:
        """Record that the index or the files may have changed. From any thread. Several changes are one reload."""
        # The loop may be closed already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._is_due.set)

    async def _follow_changes(self) -> None:
        await self._is_due.wait()
        try:
            async with self._turns:
                self._is_due.clear()
                before = self._monitor.current.revision
                await self.load()
                await self._sync_reported(self._monitor.current.revision != before)
        except MemorydError:
            self._is_due.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def load(self) -> None:
        """Return when the changes from before this call are loaded. Calls that come together share one reload.

        Raises:
            MemorydError: the index cannot be read.
        """
        # A caller that is cancelled leaves the reload to the others.
        await asyncio.shield(self._tasks.spawn("index reload", self._load_shared(), expected=(MemorydError,)))

    async def _load_shared(self) -> None:
        self._requested += 1
        wanted = self._requested
        async with self._loading:
            if self._loaded < wanted:
                latest = self._requested
                await self._load()
                self._loaded = latest

    async def reached_within(self, seconds: float, revision: int) -> None:
        """Return when the index has reached `revision`, whichever replica has changed it.

        Raises:
            RevisionNotReached: it has not within `seconds`.
            MemorydError: it has not, and the index cannot be read.
        """
        until = time.monotonic() + seconds
        while not self._monitor.has_reached(revision):
            failure: MemorydError | None = None
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self.load()
            except TimeoutError:
                pass
            except MemorydError as error:
                failure = error
            left = max(0.0, until - time.monotonic())
            try:
                await self._monitor.reached_within(min(left, POLL_SECONDS), revision)
            except RevisionNotReached as error:
                if left <= POLL_SECONDS:
                    raise failure or error from None
