"""The syncs that nobody asked for: after file events, at intervals, and whenever disk and index are found to differ."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress

from memoryd_server.backend.board import StateBoard
from memoryd_server.backend.config import SyncConfig
from memoryd_server.backend.coordinator import SyncCoordinator
from memoryd_server.backend.sync_run import SyncTrigger
from memoryd_server.errors import MemorydError
from memoryd_server.index.sync import SyncEngine
from memoryd_server.sources import WatchedRoot, Watcher

# Under a steady stream of events a sync starts after this many debounces all the same.
MOST_DEBOUNCES = 5

# Searches start no other sync for so long after one has failed, on a full disk for example.
RETRY_SECONDS = 10.0


class BackgroundSync:
    """Keeps one agent's index fresh until it is stopped.

    `note_change` may be called from any thread; everything else belongs to the event loop's.
    """

    def __init__(
        self,
        config: SyncConfig,
        engine: SyncEngine,
        coordinator: SyncCoordinator,
        board: StateBoard,
        *,
        make_watcher: Callable[[Callable[[], None]], Watcher],
        threads: Executor,
        tidy: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._config = config
        self._engine = engine
        self._coordinator = coordinator
        self._board = board
        self._threads = threads
        self._tidy = tidy
        self._watcher = make_watcher(self.note_change) if config.watch else None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._first_event: float | None = None

    async def start(self) -> None:
        """Starts watching, and a first sync."""
        if self._watcher is not None:
            await self._loop.run_in_executor(self._threads, self._watcher.start)
        self._spawn(self._sync(SyncTrigger.STARTUP))
        self._spawn(self._reconcile())
        if self._config.interval_seconds > 0:
            self._spawn(self._at_intervals())

    async def stop(self) -> None:
        """Stops watching and every timer."""
        # First, and on a thread: what it has still told arrives here before this goes on, and no event comes after.
        if self._watcher is not None:
            await self._loop.run_in_executor(self._threads, self._watcher.stop)
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def watched_roots(self) -> tuple[WatchedRoot, ...]:
        """How each root is watched; empty when watching is off."""
        return () if self._watcher is None else self._watcher.status()

    def sync_soon(self, trigger: SyncTrigger) -> None:
        """Starts a sync unless one is under way or has just failed, and does not wait for it."""
        if self._coordinator.active is None and self._coordinator.seconds_since_failure() > RETRY_SECONDS:
            self._spawn(self._sync(trigger))

    def note_change(self) -> None:
        """Tells that files have changed; the sync follows when they have been quiet for the debounce."""
        try:
            self._loop.call_soon_threadsafe(self._debounce)
        except RuntimeError:
            # The loop has closed between the event and this call; there is nothing left to tell.
            return

    def _debounce(self) -> None:
        self._board.update(dirty=True)
        now = self._loop.time()
        first = self._first_event = now if self._first_event is None else self._first_event
        if self._timer is not None:
            self._timer.cancel()
        quiet = now + self._config.debounce_seconds
        latest = first + MOST_DEBOUNCES * self._config.debounce_seconds
        self._timer = self._loop.call_at(min(quiet, latest), self._events_settled)

    def _events_settled(self) -> None:
        self._timer = None
        self._first_event = None
        self._spawn(self._sync_after_active())

    async def _sync_after_active(self) -> None:
        """One pass for the events of one debounce, never inside the run that may have caused or missed them."""
        while self._coordinator.active is not None:
            await self._coordinator.active.finished.wait()
        if self._board.current.dirty:
            await self._sync(SyncTrigger.WATCH)

    async def _sync(self, trigger: SyncTrigger) -> None:
        if self._coordinator.active is None:
            try:
                run = self._coordinator.start(trigger)
            except MemorydError:
                return
            await run.finished.wait()

    async def _at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_seconds)
            await self._sync(SyncTrigger.INTERVAL)

    async def _reconcile(self) -> None:
        """Compares disk and index, so that a dead watcher cannot freeze the index."""
        while True:
            await asyncio.sleep(self._config.reconcile_seconds)
            await self._repair_watcher()
            if self._coordinator.active is None and await self._differs():
                self._board.update(dirty=True)
                await self._sync(SyncTrigger.RECONCILE)
            await self._tidy_up()

    async def _tidy_up(self) -> None:
        # What could not be tidied now is tried again at the next pass.
        if self._tidy is not None:
            with suppress(MemorydError):
                await self._tidy()

    async def _repair_watcher(self) -> None:
        # A watcher past repair says so in its status; the comparison that follows finds what it misses.
        if self._watcher is not None:
            with suppress(OSError):
                await self._loop.run_in_executor(self._threads, self._watcher.check)

    async def _differs(self) -> bool:
        try:
            disk = await self._loop.run_in_executor(self._threads, self._engine.compare)
        except (MemorydError, OSError):
            return True
        return disk.plan.worth_a_run

    def _spawn(self, coroutine: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
