"""SyncCoordinator: start, join and remember the sync runs of one agent; and the protocol of what does their work.

At most one run is under way at a time, on the agent's writer thread. At most one FULL run waits for it to end: all
callers that wait share it, because it starts after each of them.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from memoryd_server.agent.state import IndexMonitor
from memoryd_server.agent.sync_run import RunStarted, SyncEvent, SyncRun, SyncTrigger, VectorReport
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import (
    CursorExpired,
    IndexBusy,
    IndexUnavailable,
    MemorydError,
    ShuttingDown,
    SyncCancelled,
    SyncConflict,
)
from memoryd_server.model import Clock, FileFailure
from memoryd_server.sync import (
    DUE_SCOPE,
    FULL_SCOPE,
    DiskComparison,
    LastComparison,
    PendingScope,
    SyncEstimate,
    SyncMode,
    SyncObserver,
    SyncOutcome,
    SyncPhase,
    SyncProgress,
    SyncScope,
)


class SyncRunner(Protocol):
    """Does the work of one agent's sync runs: `SyncEngine`, or a search backend that keeps an index of its own.

    `run` belongs to the writer thread; the others may be called on any thread, also during a run.
    """

    last_comparison: LastComparison

    @property
    def rebuild_due(self) -> bool:
        """Whether the next run rebuilds the index."""

    @property
    def rebuild_waits(self) -> str:
        """Why a rebuild that is due waits for approval; empty if none does."""

    def run(
        self,
        mode: SyncMode,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool] = ...,
        /,
    ) -> SyncOutcome:
        """Do one pass and return what it did.

        Raises:
            SyncCancelled: `should_stop` returned True.
        """

    def compare(self) -> DiskComparison:
        """Return the differences between disk and index."""

    def estimate(self, mode: SyncMode, scope: SyncScope, /) -> SyncEstimate:
        """Return what a run over `scope` would do."""


# Ended runs whose cursors still work.
REMEMBERED_RUNS = 8

# A run of this many passes can no longer be joined, so that it ends; later callers wait for the next one.
MOST_PASSES = 20

# Called after a run and before its last event; returns what the run did in all.
AfterSync = Callable[[SyncRun, SyncOutcome], Awaitable[SyncOutcome]]


async def _nothing(_: SyncRun, outcome: SyncOutcome) -> SyncOutcome:
    return outcome


class SyncCoordinator:
    """The sync runs of one agent. Every method belongs to the event loop's thread.

    `vectors` describes the index's vectors now; each run that completes reports them.
    """

    def __init__(
        self,
        runner: SyncRunner,
        monitor: IndexMonitor,
        writer_thread: Executor,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        on_end: Callable[[SyncRun], None],
        scope: PendingScope | None = None,
        vectors: Callable[[], VectorReport] = VectorReport,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self._runner = runner
        self._monitor = monitor
        self._writer_thread = writer_thread
        self._clock = clock
        self._new_id = new_id
        self._on_end = on_end
        self._scope = PendingScope() if scope is None else scope
        self._vectors = vectors
        self._past: deque[SyncRun] = deque(maxlen=REMEMBERED_RUNS)
        self._tasks = tasks or BackgroundTasks()
        self._after_sync: AfterSync = _nothing
        self._stopping = False
        self._passes = 0
        self._pass_requested = False
        self.active: SyncRun | None = None
        self._queued: SyncRun | None = None
        self._failed_at: float | None = None
        self.last_error: MemorydError | None = None

    def attach(self, after_sync: AfterSync, runner: SyncRunner | None) -> None:
        """Call `after_sync` after each run that completes, and let `runner` do the runs' work; before the first run.

        During `after_sync` the run is no longer active: the next one can start, and only the run's followers wait.
        """
        self._after_sync = after_sync
        self._runner = runner or self._runner

    async def request(
        self,
        trigger: SyncTrigger,
        mode: SyncMode = SyncMode.INCREMENTAL,
        scope: SyncScope | None = None,
        *,
        wait_on_conflict: bool = False,
    ) -> SyncRun:
        """Return a run that indexes what is on disk at this call: a new one, or the active one, joined.

        `scope` narrows down what is indexed; the default depends on the trigger. With `wait_on_conflict`, a FULL run
        that is requested during a run is returned before it starts, which it does when that run has ended.

        Raises:
            SyncConflict: a FULL run that does not wait was requested during a run.
            ShuttingDown: no run is started any more.
        """
        while self.active is not None:
            if mode is SyncMode.FULL:
                if wait_on_conflict:
                    return self._queue(trigger)
                raise SyncConflict(
                    f"a sync run ({self.active.sync_id}) is under way; set `on_conflict` to ON_CONFLICT_WAIT to run "
                    "after it, follow it with an INCREMENTAL Sync, or call Sync with FULL after it has ended",
                    retry_after_seconds=1.0,
                )
            if self._passes < MOST_PASSES and not self.active.stop_requested:
                self._scope.add(scope or _scope_of(trigger))
                self._pass_requested = True
                return self.active
            await self.active.finished.wait()
        return self.start(trigger, mode, scope)

    def start(
        self, trigger: SyncTrigger, mode: SyncMode = SyncMode.INCREMENTAL, scope: SyncScope | None = None
    ) -> SyncRun:
        """Start a run; none may be under way."""
        if self._stopping:
            raise _shutting_down()
        run = self.new_run(trigger, mode)
        self._begin(run, scope or _scope_of(trigger))
        return run

    def _queue(self, trigger: SyncTrigger) -> SyncRun:
        """Return the FULL run that starts when the active one has ended."""
        if self._stopping:
            raise _shutting_down()
        if self._queued is None:
            self._queued = self.new_run(trigger, SyncMode.FULL)
            self._queued.waiting()
        return self._queued

    def _begin(self, run: SyncRun, scope: SyncScope) -> None:
        building = run.mode is SyncMode.FULL or self._runner.rebuild_due or self._monitor.current.files == 0
        self.active = run
        self._passes, self._pass_requested = 1, False
        self._scope.add(scope)
        run.started(self._monitor.current.revision)
        self._monitor.update(syncing=True, building=building)
        self._tasks.spawn("sync run", self._carry_out(run))

    def leave(self, run: SyncRun, *, cancel: bool) -> None:
        """Remove a follower of a run. Without any, a waiting run is not started, and another one ends if `cancel`."""
        run.followers -= 1
        if run.followers or run.finished.is_set():
            return
        if run is self._queued:
            self._queued = None
        elif cancel:
            run.stop_requested = True

    async def index_files(self, trigger: SyncTrigger, deadline: float, *paths: str) -> int | None:
        """Index memory files that were just written, moved or deleted, and return the revision with these changes.

        Return None if the deadline came first or the run failed: the files are written, and Status reports why the
        index lags behind.
        """
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                run = await self.request(trigger, scope=SyncScope.of_files(*paths))
                # Counted as a follower, so that another one that leaves does not end the run.
                run.followers += 1
                try:
                    await run.finished.wait()
                finally:
                    run.followers -= 1
        except (TimeoutError, MemorydError):
            return None
        return None if run.outcome is None else run.outcome.revision

    def new_run(self, trigger: SyncTrigger, mode: SyncMode) -> SyncRun:
        """Return a run that has not been started."""
        return SyncRun(self._new_id(), mode, trigger, now_ns=self._clock.now_ns, monotonic=self._clock.monotonic)

    async def estimate(self, mode: SyncMode, scope: SyncScope, threads: Executor) -> SyncRun:
        """Return a dry run: an ended run whose last event holds what a real one would do."""
        run = self.new_run(SyncTrigger.MANUAL, mode)
        run.started(self._monitor.current.revision, dry_run=True)
        estimate = await asyncio.get_running_loop().run_in_executor(threads, self._runner.estimate, mode, scope)
        run.vectors = self._vectors().with_refusal(estimate.refusal)
        run.completed(SyncOutcome(self._monitor.current.revision), estimate)
        return run

    def seconds_since_failure(self) -> float:
        """Return the seconds since the last run failed; infinite if a run has completed since."""
        return math.inf if self._failed_at is None else self._clock.monotonic() - self._failed_at

    def find(self, sync_id: str) -> SyncRun | None:
        """Return the run of this id, which may wait; None if it is forgotten."""
        waiting = [] if self._queued is None else [self._queued]
        return next((run for run in (*waiting, *self.runs()) if run.sync_id == sync_id), None)

    def require(self, sync_id: str) -> SyncRun:
        """Return the run of this id.

        Raises:
            CursorExpired: it is forgotten.
        """
        run = self.find(sync_id)
        if run is None:
            raise CursorExpired(
                "the run of this cursor is forgotten; start a new Sync, which finds most files unchanged"
            )
        return run

    async def follow(
        self, run: SyncRun, after: int, heartbeat_seconds: float, *, attached: bool, cancel: bool
    ) -> AsyncGenerator[SyncEvent, None]:
        """Yield the events of a run after the sequence `after`, and leave the run as `leave` does.

        `attached` is whether the run was under way before the caller requested it.
        """
        run.followers += 1
        try:
            async with aclosing(run.follow(after, heartbeat_seconds)) as events:
                async for event in events:
                    if attached and isinstance(event.body, RunStarted):
                        yield replace(event, body=replace(event.body, attached=True))
                    else:
                        yield event
        finally:
            self.leave(run, cancel=cancel)

    def runs(self) -> list[SyncRun]:
        """Return the run under way, if any, and the ended ones that are remembered, newest first."""
        return [*([] if self.active is None else [self.active]), *self._past]

    async def stop(self) -> None:
        """Stop the run under way at the next file boundary, and start no other. A run that waits fails immediately."""
        self._stopping = True
        if self._queued is not None:
            self._queued.failed(_shutting_down())
            self._queued = None
        if self.active is not None:
            self.active.stop_requested = True
        await self._tasks.wait()
        self._monitor.update(closing=True)

    async def _carry_out(self, run: SyncRun) -> None:
        try:
            outcome = await self._passes_of(run)
            self.last_error = None
            self._failed_at = None
            self._monitor.update(pending_files=0)
            self._monitor.record_counts(
                outcome.revision, files=outcome.files, chunks=outcome.indexed_chunks, whole=True
            )
            run.vectors = self._vectors()
        except MemorydError as error:
            # A run that was stopped while it waited for another process says that the index is busy.
            was_stopped = isinstance(error, SyncCancelled) or (isinstance(error, IndexBusy) and run.stop_requested)
            if not was_stopped:
                self.last_error = error
            self._failed(run, _interrupted() if was_stopped and self._stopping else error)
        except Exception as error:  # noqa: BLE001 -- a bug must end the run for its followers; on_end logs it
            self.last_error = IndexUnavailable(f"the sync run failed: {type(error).__name__}: {error}")
            self.last_error.__cause__ = error
            self._failed(run, self.last_error)
        else:
            self._ended(run)
            await self._conclude(run, outcome)
        self._on_end(run)

    async def _conclude(self, run: SyncRun, outcome: SyncOutcome) -> None:
        try:
            run.completed(await self._after_sync(run, outcome))
        except MemorydError as error:
            run.failed(error)
        except Exception as error:  # noqa: BLE001 -- as above
            failure = IndexUnavailable(f"the work after the sync run failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            run.failed(failure)

    def _failed(self, run: SyncRun, error: MemorydError) -> None:
        self._failed_at = self._clock.monotonic()
        self._monitor.update(dirty=True)
        self._ended(run)
        run.failed(error)

    def _ended(self, run: SyncRun) -> None:
        """Make room for the next run, or start the one that waits, before the followers of this one see its end."""
        self.active = None
        self._past.appendleft(run)
        self._monitor.update(syncing=False, building=False)
        if self._queued is not None:
            queued, self._queued = self._queued, None
            # The callers that wait may have named different sources.
            self._begin(queued, FULL_SCOPE)

    async def _passes_of(self, run: SyncRun) -> SyncOutcome:
        """Repeat passes until no caller has joined since the last one began, so that each joiner's files are indexed.

        A pass that stopped making vectors because files have changed is followed by one that indexes these and
        continues. The number of such passes is not limited, because each makes progress.
        """
        outcome = await self._pass(run, run.mode)
        while self._pass_requested or outcome.yielded:
            if run.stop_requested:
                raise SyncCancelled(
                    "the sync run was cancelled before its next pass; what it had indexed stays, and a new Sync "
                    "continues from there"
                )
            self._passes += self._pass_requested
            outcome = outcome.followed_by(await self._pass(run, SyncMode.INCREMENTAL))
        return outcome

    async def _pass(self, run: SyncRun, mode: SyncMode) -> SyncOutcome:
        self._pass_requested = False
        if self._scope.covers_every_source:
            self._monitor.update(dirty=False)
        observer = _LoopObserver(run, self._monitor, asyncio.get_running_loop())
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._writer_thread,
            lambda: self._runner.run(mode, observer, lambda: run.stop_requested, self._files_have_changed),
        )

    def _files_have_changed(self) -> bool:
        """Return whether files are known to have changed since the pass began. Called on the writer thread."""
        return self._pass_requested or self._monitor.current.dirty


def _scope_of(trigger: SyncTrigger) -> SyncScope:
    """Return the scope of a trigger: all transcripts for a caller and the daemon's start, else those that are due."""
    return FULL_SCOPE if trigger in {SyncTrigger.MANUAL, SyncTrigger.STARTUP} else DUE_SCOPE


class _LoopObserver:
    """Passes the events of a pass from the writer thread to the event loop."""

    def __init__(self, run: SyncRun, monitor: IndexMonitor, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._monitor = monitor
        self._loop = loop

    def progress(self, progress: SyncProgress) -> None:
        self._loop.call_soon_threadsafe(self._progress, progress)

    def file_failed(self, failure: FileFailure) -> None:
        self._loop.call_soon_threadsafe(self._run.file_failed, failure)

    def committed(self, revision: int) -> None:
        self._loop.call_soon_threadsafe(self._committed, revision)

    def _progress(self, progress: SyncProgress) -> None:
        self._run.progressed(progress)
        if progress.phase is SyncPhase.INDEXING:
            self._monitor.update(pending_files=progress.pending_files)

    def _committed(self, revision: int) -> None:
        self._monitor.update(revision=revision, files=max(1, self._monitor.current.files))


def _shutting_down() -> ShuttingDown:
    return ShuttingDown(
        "the daemon is stopping, or reopens this agent with other settings, and starts no sync; try again",
        retry_after_seconds=1.0,
    )


def _interrupted() -> SyncCancelled:
    return SyncCancelled(
        "the run was cut short: the daemon is stopping, or reopens this agent with other settings; what it had "
        "indexed stays, and a new Sync continues after the last committed batch",
        retry_after_seconds=1.0,
    )
