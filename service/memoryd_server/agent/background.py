"""BackgroundSync: the syncs that no call requests: after file events, at intervals, and when disk and index differ."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from memoryd_server.agent.config import SyncConfig
from memoryd_server.agent.coordinator import SyncCoordinator, SyncRunner
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import MemorydError
from memoryd_server.sources import Corpus, NativeReader, Watcher, change_signature
from memoryd_server.sync import SyncPhase

# Under a steady stream of events a sync starts after this many debounces nevertheless.
MOST_DEBOUNCES = 5

# How long events of transcripts are collected before the check whether any transcript is due.
TRANSCRIPT_WINDOW_SECONDS = 5.0

# How often the files of the gateway's database of sessions are compared with their last state.
DATABASE_POLL_SECONDS = 10.0

# A first sync that takes longer, because of a large workspace or its vectors, lets the next agent begin.
FIRST_TURN_SECONDS = 5.0

# How long after a failed sync, for example on a full disk, searches start no other one.
RETRY_SECONDS = 10.0

# How long a run makes vectors before it ends its pass again for another replica: requests to the provider that are
# under way then may be sent again.
REPLICA_TURN_SECONDS = 10.0

_T = TypeVar("_T")


class BackgroundSync:
    """Keeps one agent's index current until it is stopped.

    `note_change` and `note_transcripts` may be called from any thread; everything else belongs to the event loop's.
    `watcher` is None if the settings disable watching. `database` is the gateway's database of sessions, which is not
    opened to notice a change; empty if there is none. `trouble` is why the last reconcile pass failed, empty if it did
    not.
    """

    def __init__(
        self,
        config: SyncConfig,
        runner: SyncRunner,
        coordinator: SyncCoordinator,
        monitor: IndexMonitor,
        *,
        make_watcher: Callable[[Callable[[], None], Callable[[], None]], Watcher],
        threads: Executor,
        clean_up: Callable[[], Awaitable[None]] | None = None,
        first_turns: asyncio.Semaphore | None = None,
        idle_at_first: bool = False,
        first_delay_seconds: float = 0.0,
        transcript_window_seconds: float = TRANSCRIPT_WINDOW_SECONDS,
        first_turn_seconds: float = FIRST_TURN_SECONDS,
        tasks: BackgroundTasks | None = None,
        database: str = "",
        database_poll_seconds: float = DATABASE_POLL_SECONDS,
    ) -> None:
        self._database = database if config.watch else ""
        self._database_poll_seconds = database_poll_seconds
        # None if the next poll starts a check in any case.
        self._database_state: object = None
        self._transcript_window_seconds = transcript_window_seconds
        self._first_turn_seconds = first_turn_seconds
        self._config = config
        self._runner = runner
        self._coordinator = coordinator
        self._monitor = monitor
        self._threads = threads
        self._clean_up = clean_up
        self._first_turns = first_turns or asyncio.Semaphore()
        self._idle_at_first = idle_at_first
        self._first_delay_seconds = first_delay_seconds
        self.watcher = make_watcher(self.note_change, self.note_transcripts) if config.watch else None
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks or BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None
        self._first_event: float | None = None
        self._window: asyncio.TimerHandle | None = None
        self._clean_up_done: asyncio.Future[None] = self._loop.create_future()
        self._clean_up_done.set_result(None)
        self._faults = self._tasks.errors("reconcile pass")
        self._left_at = -math.inf
        self.trouble = ""

    async def start(self) -> None:
        """Start watching, and a first sync when its turn comes."""
        if self.watcher is not None:
            await self._on_thread(self.watcher.start)
        self._tasks.spawn("first sync", self._first_sync())
        self._repeat("reconcile loop", self._reconcile, self._config.reconcile_seconds)
        if self._database:
            self._repeat("session database poll", self._poll_database, self._database_poll_seconds)
        if self._config.interval_seconds > 0:
            sync = partial(self._sync, SyncTrigger.INTERVAL)
            self._repeat("sync at interval", sync, self._config.interval_seconds)

    async def stop(self) -> None:
        """Stop watching and every timer."""
        # First, and on a thread: its last events arrive here before this continues, and none comes after.
        if self.watcher is not None:
            await self._on_thread(self.watcher.stop)
        for timer in (self._timer, self._window):
            if timer is not None:
                timer.cancel()
        await self._tasks.stop()

    @property
    def awaits_events(self) -> bool:
        """Whether file events have arrived, after which a sync starts as soon as no more of them arrive."""
        return self._timer is not None

    def sync_soon(self, trigger: SyncTrigger) -> None:
        """Start a sync, unless one is under way or has just failed; do not wait for it."""
        if self._coordinator.active is None and self._coordinator.seconds_since_failure() > RETRY_SECONDS:
            self._tasks.spawn("background sync", self._sync(trigger))

    def note_change(self) -> None:
        """Record that files have changed; the sync starts once no file has changed for the debounce."""
        try:
            self._loop.call_soon_threadsafe(self._debounce)
        except RuntimeError:
            # The loop was closed between the event and this call.
            return

    def note_transcripts(self) -> None:
        """Record that transcripts have changed; `TRANSCRIPT_WINDOW_SECONDS` later a check finds any that is due."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._open_window)

    def _open_window(self) -> None:
        if self._window is None:
            self._window = self._loop.call_later(self._transcript_window_seconds, self._close_window)

    def _close_window(self) -> None:
        self._window = None
        self._tasks.spawn("transcript check", self.sync_differences())

    async def _poll_database(self) -> None:
        state = await self._on_thread(partial(change_signature, self._database))
        before, self._database_state = self._database_state, state
        # The first sync has read what was there at the start; a database that is missing has nothing to check.
        if state != before and (before is not None or any(map(any, state))):
            self._open_window()

    async def sync_differences(self) -> None:
        """Start a sync if any file, or any transcript that is due, differs from the index."""
        if not self._may_compare():
            # The run under way may have compared the files too early.
            self._open_window()
            return
        try:
            plan = (await self._on_thread(self._runner.compare)).plan
        except (MemorydError, OSError):
            # The reconcile pass handles the error.
            return
        if any(file.database for file in plan.waiting):
            # The last events become due without a further change of the database.
            self._database_state = None
        if plan.needs_run:
            self._sync_changes(SyncTrigger.WATCH)

    async def sync_reported(self, *, index_changed: bool) -> None:
        """Start a sync if files differ from the index, after a report of another replica that has not changed it.

        A run that makes vectors ends its pass after any report, because the other replica may wait to change the index.
        """
        run, now = self._coordinator.active, self._loop.time()
        makes_vectors = run is not None and run.progress.progress.phase is SyncPhase.EMBEDDING
        if makes_vectors and now - self._left_at >= REPLICA_TURN_SECONDS:
            self._left_at = now
            self._sync_changes(SyncTrigger.WATCH)
        elif not index_changed:
            await self.sync_differences()

    def _debounce(self) -> None:
        self._monitor.update(dirty=True)
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
        self._tasks.spawn("background sync", self._sync_after_active(SyncTrigger.WATCH))

    async def _sync_after_active(self, trigger: SyncTrigger) -> None:
        """Start a run for the recorded changes, unless the run under way indexes them before it ends."""
        while self._coordinator.active is not None:
            await self._coordinator.active.finished.wait()
        if self._monitor.current.dirty:
            await self._sync(trigger)

    async def _sync(self, trigger: SyncTrigger) -> None:
        if self._coordinator.active is None:
            try:
                run = self._coordinator.start(trigger)
            except MemorydError:
                return
            await run.finished.wait()

    def sync_in_turn(self, trigger: SyncTrigger) -> None:
        """Start a sync after the one under way, and not with those of all other agents; do not wait for it."""
        self._tasks.spawn("background sync", self._sync_in_turn_after_active(trigger))

    async def _sync_in_turn_after_active(self, trigger: SyncTrigger) -> None:
        while self._coordinator.active is not None:
            await self._coordinator.active.finished.wait()
        await self._sync_in_turn(trigger)

    async def _sync_in_turn(self, trigger: SyncTrigger) -> None:
        async with self._first_turns:
            sync = self._tasks.spawn("background sync", self._sync(trigger))
            await asyncio.wait({sync}, timeout=self._first_turn_seconds)
        await sync

    async def _first_sync(self) -> None:
        await asyncio.sleep(self._first_delay_seconds)
        await self._sync_in_turn(SyncTrigger.STARTUP)
        if self._idle_at_first:
            await self._clean_up_soon()

    async def _reconcile(self) -> None:
        """Compare disk and index, so that neither a dead watcher nor a failing step can keep the index outdated."""
        steps = (self._repair_watcher, self._sync_differences, self._clean_up_soon)
        self.trouble = "; ".join(filter(None, [await self._attempt(step) for step in steps]))
        if not self.trouble:
            self._faults.worked()

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> str:
        """Take a step. Return why it failed; empty if it did not."""
        try:
            await step()
        except Exception as error:  # noqa: BLE001 -- the next step and the next pass must follow; Status reports the error
            if not isinstance(error, MemorydError | OSError):
                self._faults.failed(error)
            return f"{type(error).__name__}: {error}"
        return ""

    async def _repair_watcher(self) -> None:
        if self.watcher is not None:
            await self._on_thread(self.watcher.check)

    async def _sync_differences(self) -> None:
        if not self._may_compare():
            return
        idle = self._coordinator.active is None
        try:
            plan = (await self._on_thread(self._runner.compare)).plan
        except (MemorydError, OSError):
            # The run reports the error, and may repair its cause.
            self._sync_changes()
            return
        if plan.needs_run:
            self._sync_changes()
        if self.watcher is not None and plan.changed and idle:
            await self._on_thread(partial(self.watcher.record_missed, plan.changed))

    async def _clean_up_soon(self) -> None:
        # Not waited for: a run may take the writer thread first, and keep it for a long time.
        if self._clean_up is None or not self._clean_up_done.done():
            return
        clean_up = self._tasks.spawn("index cleanup", self._clean_up_quietly(self._clean_up))
        before, self._clean_up_done = self._clean_up_done, clean_up
        before.result()

    async def _clean_up_quietly(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        # The next pass tries again.
        with suppress(MemorydError):
            await clean_up()

    def _sync_changes(self, trigger: SyncTrigger = SyncTrigger.RECONCILE) -> None:
        known = self._monitor.current.dirty
        # A run that makes vectors then indexes the files before it continues.
        self._monitor.update(dirty=True)
        if self._coordinator.active is None:
            # Not waited for: while the run makes vectors, passes must continue.
            self._tasks.spawn("background sync", self._sync(trigger))
        elif not known:
            self._tasks.spawn("background sync", self._sync_after_active(trigger))

    def _may_compare(self) -> bool:
        """Return whether a comparison is useful: a run that is indexing finds the same differences itself."""
        run = self._coordinator.active
        return run is None or run.progress.progress.phase is SyncPhase.EMBEDDING

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._threads, work)

    def _repeat(self, name: str, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._tasks.repeat(name, step, interval_seconds=seconds, delay_seconds=seconds)


def make_watcher(
    config: SyncConfig,
    corpus: Corpus,
    open_native: Callable[[], NativeReader],
    on_change: Callable[[], None],
    on_transcripts: Callable[[], None],
) -> Watcher:
    """Return a watcher of the corpus by these settings."""
    return Watcher(
        corpus.roots,
        on_change,
        sessions=corpus.sessions,
        on_transcripts=on_transcripts,
        polling=config.poll,
        poll_seconds=config.poll_seconds,
        open_native=open_native,
    )
