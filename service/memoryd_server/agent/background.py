"""BackgroundSync: debounce, interval, reconcile.

The syncs that nobody asked for: after file events, at intervals, and whenever disk and index are found to differ.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from memoryd_server.agent.config import SyncConfig
from memoryd_server.agent.coordinator import SyncCoordinator, SyncRunner
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.background_tasks import ReportedErrors, repeat
from memoryd_server.errors import MemorydError
from memoryd_server.sources import Corpus, NativeReader, Watcher
from memoryd_server.sync import SyncPhase

# Under a steady stream of events a sync starts after this many debounces all the same.
MOST_DEBOUNCES = 5

# Events of transcripts are collected for so long before one looks whether any is due.
TRANSCRIPT_WINDOW_SECONDS = 5.0

# A first sync that takes longer, of a large workspace or for its vectors, leaves its turn to the next agent.
FIRST_TURN_SECONDS = 5.0

# Searches start no other sync for so long after one has failed, on a full disk for example.
RETRY_SECONDS = 10.0

_T = TypeVar("_T")


class BackgroundSync:
    """Keeps one agent's index fresh until it is stopped.

    `note_change` and `note_transcripts` may be called from any thread; everything else belongs to the event loop's.
    `watcher` is None if the settings disable watching. `trouble` is why the last reconcile pass failed, empty if it did
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
        transcript_window_seconds: float = TRANSCRIPT_WINDOW_SECONDS,
        first_turn_seconds: float = FIRST_TURN_SECONDS,
    ) -> None:
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
        self.watcher = make_watcher(self.note_change, self.note_transcripts) if config.watch else None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._first_event: float | None = None
        self._window: asyncio.TimerHandle | None = None
        self._clean_up_done: asyncio.Future[None] = self._loop.create_future()
        self._clean_up_done.set_result(None)
        self._faults = ReportedErrors("a reconcile pass")
        self.trouble = ""

    async def start(self) -> None:
        """Starts watching, and a first sync when its turn comes."""
        if self.watcher is not None:
            await self._on_thread(self.watcher.start)
        self._spawn(self._first_sync())
        self._spawn_repeated(self._reconcile, "the reconcile loop", self._config.reconcile_seconds)
        if self._config.interval_seconds > 0:
            sync = partial(self._sync, SyncTrigger.INTERVAL)
            self._spawn_repeated(sync, "a sync at an interval", self._config.interval_seconds)

    async def stop(self) -> None:
        """Stops watching and every timer."""
        # First, and on a thread: what it has still told arrives here before this goes on, and no event comes after.
        if self.watcher is not None:
            await self._on_thread(self.watcher.stop)
        for timer in (self._timer, self._window):
            if timer is not None:
                timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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

    def note_transcripts(self) -> None:
        """Tells that transcripts have changed; whether one is due is looked at once in `TRANSCRIPT_WINDOW_SECONDS`."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._open_window)

    def _open_window(self) -> None:
        if self._window is None:
            self._window = self._loop.call_later(self._transcript_window_seconds, self._close_window)

    def _close_window(self) -> None:
        self._window = None
        self._spawn(self._sync_due_transcripts())

    async def _sync_due_transcripts(self) -> None:
        if not self._may_look():
            # The run under way may have looked too early.
            self._open_window()
            return
        try:
            plan = (await self._on_thread(self._runner.compare)).plan
        except (MemorydError, OSError):
            # The reconcile pass sees to what is wrong.
            return
        if plan.needs_run:
            self._sync_what_differs(SyncTrigger.WATCH)

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
        self._spawn(self._sync_after_active(SyncTrigger.WATCH))

    async def _sync_after_active(self, trigger: SyncTrigger) -> None:
        """One run for what was noticed, unless the run that is under way takes it in before it ends."""
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

    async def _first_sync(self) -> None:
        async with self._first_turns:
            sync = self._spawn(self._sync(SyncTrigger.STARTUP))
            await asyncio.wait({sync}, timeout=self._first_turn_seconds)
        await sync
        if self._idle_at_first:
            await self._clean_up_soon()

    async def _reconcile(self) -> None:
        """Compare disk and index, so that neither a dead watcher nor a step that fails can freeze the index."""
        steps = (self._repair_watcher, self._sync_differences, self._clean_up_soon)
        self.trouble = "; ".join(filter(None, [await self._attempt(step) for step in steps]))
        if not self.trouble:
            self._faults.worked()

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> str:
        """Take a step. Return why it failed; empty if it did not."""
        try:
            await step()
        except Exception as error:  # noqa: BLE001 -- the next step and the next pass must come; the status tells of this
            if not isinstance(error, MemorydError | OSError):
                self._faults.failed(error)
            return f"{type(error).__name__}: {error}"
        return ""

    async def _repair_watcher(self) -> None:
        if self.watcher is not None:
            await self._on_thread(self.watcher.check)

    async def _sync_differences(self) -> None:
        if not self._may_look():
            return
        idle = self._coordinator.active is None
        try:
            plan = (await self._on_thread(self._runner.compare)).plan
        except (MemorydError, OSError):
            # The run tells better what is wrong, and may mend it.
            self._sync_what_differs()
            return
        if plan.needs_run:
            self._sync_what_differs()
        if self.watcher is not None and plan.changed and idle:
            await self._on_thread(partial(self.watcher.record_missed, plan.changed))

    async def _clean_up_soon(self) -> None:
        # Not waited for: a run may take the writer thread first, and keep it for long.
        if self._clean_up is None or not self._clean_up_done.done():
            return
        before, self._clean_up_done = self._clean_up_done, self._spawn(self._clean_up_quietly(self._clean_up))
        before.result()

    async def _clean_up_quietly(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        # What could not be tidied now is tried again at the next pass.
        with suppress(MemorydError):
            await clean_up()

    def _sync_what_differs(self, trigger: SyncTrigger = SyncTrigger.RECONCILE) -> None:
        known = self._monitor.current.dirty
        # A run that makes vectors hears by this that it is to take files in before it goes on.
        self._monitor.update(dirty=True)
        if self._coordinator.active is None:
            # Not waited for: while the run makes vectors, passes must go on.
            self._spawn(self._sync(trigger))
        elif not known:
            self._spawn(self._sync_after_active(trigger))

    def _may_look(self) -> bool:
        """Whether a look is worth while: not during a run's own, which finds the same."""
        run = self._coordinator.active
        return run is None or run.progress.progress.phase is SyncPhase.EMBEDDING

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._threads, work)

    def _spawn_repeated(self, step: Callable[[], Awaitable[None]], name: str, seconds: float) -> None:
        self._spawn(repeat(step, ReportedErrors(name), interval_seconds=seconds, delay_seconds=seconds))

    def _spawn(self, coroutine: "asyncio._CoroutineLike[None]") -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


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
