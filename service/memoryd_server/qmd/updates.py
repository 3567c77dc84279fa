"""When qmd's index is brought up to date: at the start, after changes, at intervals, and when somebody asks.

Everything here belongs to the event loop's thread; the work itself runs on the host's threads.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from memoryd_server.background_tasks import ReportedErrors, repeat
from memoryd_server.errors import MemorydError
from memoryd_server.qmd.client import QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.index import QmdIndex, UpdateCounts
from memoryd_server.qmd.process import CommandResult, CommandRun

# Pauses after an update or an embedding that failed: doubled each time, up to the most.
_FIRST_PAUSE_SECONDS = 60.0
_MOST_PAUSE_SECONDS = 3_600.0
# A first update that met a busy index is tried so often, with these pauses.
_BOOT_PAUSES = (0.5, 1.0)
_FAULT_PAUSE_SECONDS = 5.0

_T = TypeVar("_T")


@dataclass(slots=True)
class RetrySchedule:
    """How one kind of work has gone, by the clock of its owner.

    `failure` is that of the last try, None where that went well, or where there was none.
    """

    done_at: float = -math.inf
    failed_at: float = -math.inf
    pause: float = 0.0
    failure: QmdFailure | None = None

    def succeeded(self, now: float) -> None:
        """Notes a success."""
        self.done_at, self.pause, self.failure = now, 0.0, None

    def failed(self, now: float, failure: QmdFailure) -> None:
        """Notes a failure, and doubles the pause."""
        self.failed_at, self.failure = now, failure
        self.pause = min(_MOST_PAUSE_SECONDS, self.pause * 2 or _FIRST_PAUSE_SECONDS)

    def wait(self, now: float) -> float:
        """Seconds until it may be tried again unasked."""
        return max(0.0, self.failed_at + self.pause - now)


class QmdUpdates:
    """The updates of one agent from `start` to `stop`.

    `look` is called on the update's thread before each one and tells what the files are like then: `covered` is what it
    said before the last update that succeeded, so that qmd holds at least that.
    """

    def __init__(
        self,
        config: QmdConfig,
        index: QmdIndex,
        host: QmdHost,
        look: Callable[[], Any],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config.update
        self._embeds = config.verb is not QmdSearchMode.SEARCH
        self._index = index
        self._host = host
        self._look = look
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = False
        self._updating = False
        self._running: set[CommandRun] = set()
        self.covered: Any = None
        self.last: UpdateCounts | None = None
        self.updating = RetrySchedule()
        self.embedding = RetrySchedule()
        self._faults = ReportedErrors("an update of qmd's index")

    @property
    def pending(self) -> bool:
        """Whether changes were told that no update has taken in yet."""
        return self._asked.is_set() or self._updating

    async def start(self, *, background: bool) -> None:
        """Prepares the home and, unless told otherwise, begins what runs by itself.

        A first update that fails does not keep the daemon from starting; `updating` tells of it.
        """
        changed = await self._prepared()
        if not background:
            return
        if self._config.on_boot or changed or not await self._host.update(lambda: self._index.ready):
            boot = self._spawn(self._boot())
            if self._config.wait_for_boot:
                await asyncio.wait([boot])
        asks = ReportedErrors("an update of qmd's index after changes")
        self._spawn(repeat(self._follow_ask, asks, fault_pause_seconds=_FAULT_PAUSE_SECONDS))
        if (seconds := self._config.interval_seconds) > 0:
            intervals = ReportedErrors("an update of qmd's index at an interval")
            self._spawn(repeat(self._at_interval, intervals, interval_seconds=seconds, delay_seconds=seconds))

    async def _prepared(self) -> bool:
        try:
            return await self._host.update(self._index.prepare)
        except QmdFailure as failure:
            self.updating.failed(self._monotonic(), failure)
            return True

    async def stop(self) -> None:
        """Begins no other update, ends the one that runs, and the waiting of whoever waits."""
        self.stopping = True
        for run in tuple(self._running):
            run.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask(self) -> None:
        """Tells that files have changed; an update follows, the least time after the last one."""
        self._asked.set()

    def resume(self) -> None:
        """Tells that what kept updates from succeeding is over: one follows, whatever pause there was."""
        self.updating.pause = self.embedding.pause = 0.0
        self._asked.set()
        self._hurry.set()

    async def now(self, *, embed: bool = True) -> UpdateCounts:
        """Brings the index up to date, and embeds where the search needs it; joined by nobody, after what runs.

        Raises:
            QmdFailure: it could not be done.
        """
        if self.stopping:
            raise QmdFailure(QmdFailureReason.CANCELLED, "the daemon is stopping")
        task = self._spawn(self._now(embed=embed))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.stopping:
                raise QmdFailure(QmdFailureReason.CANCELLED, "the daemon is stopping") from None
            raise

    async def _now(self, *, embed: bool) -> UpdateCounts:
        done = await self._update()
        if embed and self._embeds:
            await self._embed()
        return done

    async def _update(self) -> UpdateCounts:
        async with self._lock:
            self._asked.clear()
            self._updating = True
            try:
                seen, done = await self._noted(self.updating, self._look_and_update)
            finally:
                self._updating = False
            self.covered, self.last = seen, done
            return done

    async def _noted(self, attempts: RetrySchedule, work: Callable[[], _T]) -> _T:
        """Do `work` on an update's thread, and note how it went.

        Raises:
            QmdFailure: it failed, be it by an unexpected exception.
        """
        try:
            done = await self._host.update(work)
        except QmdFailure as failure:
            attempts.failed(self._monotonic(), failure)
            raise
        except Exception as error:
            self._faults.failed(error)
            fault = QmdFailure(
                QmdFailureReason.EXIT_CODE, f"memoryd met a fault of its own: {type(error).__name__}: {error}"
            )
            attempts.failed(self._monotonic(), fault)
            raise fault from error
        self._faults.worked()
        attempts.succeeded(self._monotonic())
        return done

    def _look_and_update(self) -> tuple[Any, UpdateCounts]:
        try:
            seen = self._look()
            return seen, self._index.update(self._run)
        except (MemorydError, OSError) as error:
            raise QmdFailure(QmdFailureReason.EXIT_CODE, f"what qmd is to index cannot be read: {error}") from error

    def _run(self, run: CommandRun) -> CommandResult:
        """Runs a command on an update's thread; `stop` ends it."""
        self._running.add(run)
        try:
            if self.stopping:
                run.cancel()
            return self._host.run(run)
        finally:
            self._running.discard(run)

    async def _embed(self) -> None:
        # One a host; within this daemon the others wait here, and take no thread meanwhile.
        async with self._host.embedding, self._lock:
            await self._noted(self.embedding, lambda: self._index.embed(self._run))

    async def _boot(self) -> None:
        for pause in (*_BOOT_PAUSES, None):
            try:
                await self._update()
                break
            except QmdFailure as failure:
                if pause is None or failure.reason not in (QmdFailureReason.BUSY, QmdFailureReason.TIMEOUT):
                    self._asked.set()
                    return
                await asyncio.sleep(pause)
        await self._embed_if_due()

    async def _follow_ask(self) -> None:
        await self._asked.wait()
        now = self._monotonic()
        self._hurry.clear()
        await self._pause(max(self.updating.wait(now), self.updating.done_at + self._config.debounce_seconds - now))
        # An update that began meanwhile has taken it in.
        if self._asked.is_set():
            await self._try()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._hurry.wait()

    async def _at_interval(self) -> None:
        now = self._monotonic()
        if now - self.updating.done_at >= self._config.debounce_seconds and not self.updating.wait(now):
            await self._try()

    async def _try(self) -> None:
        try:
            await self._update()
        except QmdFailure:
            # Told by `updating`; what was asked for is still wanted.
            self._asked.set()
            return
        await self._embed_if_due()

    async def _embed_if_due(self) -> None:
        now = self._monotonic()
        since = now - self.embedding.done_at
        interval = self._config.embed_interval_seconds
        due = since == math.inf or (interval > 0 and since >= interval)
        if self._embeds and due and not self.embedding.wait(now):
            try:
                await self._embed()
            except QmdFailure:
                return

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Read here, so that a task whose asker has gone leaves no complaint.
            task.exception()
