"""QmdUpdates: updates qmd's index at the start, after changes, at intervals, and on request.

Everything here is for the event loop's thread; the updates themselves run on the host's threads.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import MemorydError
from memoryd_server.qmd.client import QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.index import QmdIndex, UpdateCounts
from memoryd_server.qmd.process import CommandResult, CommandRun

# The pause after a failed update or embedding doubles with each failure, from the first to the longest.
_FIRST_PAUSE_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 3_600.0
# The pauses before the retries of a first update that failed because the index was busy.
_BOOT_PAUSES = (0.5, 1.0)
_FAULT_PAUSE_SECONDS = 5.0

_T = TypeVar("_T")


@dataclass(slots=True)
class RetrySchedule:
    """When one kind of work last succeeded and failed, and when it may be retried.

    Times are of the owner's clock, in seconds. `failure` is that of the last attempt; None if it succeeded or if there
    was none.
    """

    done_at: float = -math.inf
    failed_at: float = -math.inf
    pause: float = 0.0
    failure: QmdFailure | None = None

    def succeeded(self, now: float) -> None:
        """Record a success."""
        self.done_at, self.pause, self.failure = now, 0.0, None

    def failed(self, now: float, failure: QmdFailure) -> None:
        """Record a failure, and double the pause."""
        self.failed_at, self.failure = now, failure
        self.pause = min(_MAX_PAUSE_SECONDS, self.pause * 2 or _FIRST_PAUSE_SECONDS)

    def remaining_pause(self, now: float) -> float:
        """Return the seconds until the next automatic attempt."""
        return max(0.0, self.failed_at + self.pause - now)


class QmdUpdates:
    """The updates of one agent's index from `start` to `stop`.

    `snapshot` is called on the update's thread before each update, and returns the state of the files. `covered` is its
    result before the last successful update, so qmd's index includes at least that state.
    """

    def __init__(
        self,
        config: QmdConfig,
        index: QmdIndex,
        host: QmdHost,
        snapshot: Callable[[], Any],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self._config = config.update
        self._embeds = config.search_mode is not QmdSearchMode.SEARCH
        self._index = index
        self._host = host
        self._snapshot = snapshot
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._requested = asyncio.Event()
        self._skip_pause = asyncio.Event()
        self._tasks = tasks or BackgroundTasks()
        self.stopping = False
        self._updating = False
        self._running: set[CommandRun] = set()
        self.covered: Any = None
        self.last: UpdateCounts | None = None
        self.updating = RetrySchedule()
        self.embedding = RetrySchedule()
        self._faults = self._tasks.errors("qmd update")

    @property
    def pending(self) -> bool:
        """Whether an update was requested and has not completed."""
        return self._requested.is_set() or self._updating

    async def start(self, *, background: bool) -> None:
        """Prepare qmd's home and, if `background`, start the automatic updates.

        Does not raise if the first update fails; `updating` has the failure.
        """
        changed = await self._prepare()
        if not background:
            return
        if self._config.on_boot or changed or not await self._host.update(lambda: self._index.ready):
            boot = self._spawn("first qmd update", self._boot())
            if self._config.wait_for_boot_sync:
                await asyncio.wait([boot])
        self._tasks.repeat(
            "qmd update after changes", self._update_on_request, fault_pause_seconds=_FAULT_PAUSE_SECONDS
        )
        if (seconds := self._config.interval_seconds) > 0:
            update = self._update_at_interval
            self._tasks.repeat("qmd update at interval", update, interval_seconds=seconds, delay_seconds=seconds)

    async def _prepare(self) -> bool:
        try:
            return await self._host.update(self._index.prepare)
        except QmdFailure as failure:
            self.updating.failed(self._monotonic(), failure)
            return True

    async def stop(self) -> None:
        """Cancel the running update and all that wait for one, and start no other."""
        self.stopping = True
        for run in tuple(self._running):
            run.cancel()
        await self._tasks.stop()

    def request(self) -> None:
        """Request an update because files have changed. It starts after the debounce time and any pause."""
        self._requested.set()

    def resume(self) -> None:
        """Request an update without the pause after failures, because their cause has ended."""
        self.updating.pause = self.embedding.pause = 0.0
        self._requested.set()
        self._skip_pause.set()

    async def update_now(self, *, embed: bool = True) -> UpdateCounts:
        """Update the index and, if `embed` and the search mode needs vectors, embed; after the update that is running.

        Raises:
            QmdFailure: the update or the embedding failed.
        """
        if self.stopping:
            raise QmdFailure(QmdFailureReason.CANCELLED, "the daemon is stopping")
        task = self._spawn("requested qmd update", self._update_and_embed(embed=embed))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.stopping:
                raise QmdFailure(QmdFailureReason.CANCELLED, "the daemon is stopping") from None
            raise

    async def _update_and_embed(self, *, embed: bool) -> UpdateCounts:
        counts = await self._update()
        if embed and self._embeds:
            await self._embed()
        return counts

    async def _update(self) -> UpdateCounts:
        async with self._lock:
            self._requested.clear()
            self._updating = True
            try:
                covered, counts = await self._attempt(self.updating, self._snapshot_and_update)
            finally:
                self._updating = False
            self.covered, self.last = covered, counts
            return counts

    async def _attempt(self, schedule: RetrySchedule, work: Callable[[], _T]) -> _T:
        """Call `work` on an update's thread, and record its success or failure.

        Raises:
            QmdFailure: `work` raised, even if with an unexpected exception.
        """
        try:
            result = await self._host.update(work)
        except QmdFailure as failure:
            schedule.failed(self._monotonic(), failure)
            raise
        except Exception as error:
            self._faults.failed(error)
            fault = QmdFailure(
                QmdFailureReason.EXIT_CODE, f"unexpected error in memoryd: {type(error).__name__}: {error}"
            )
            schedule.failed(self._monotonic(), fault)
            raise fault from error
        self._faults.worked()
        schedule.succeeded(self._monotonic())
        return result

    def _snapshot_and_update(self) -> tuple[Any, UpdateCounts]:
        try:
            covered = self._snapshot()
            return covered, self._index.update(self._run)
        except (MemorydError, OSError) as error:
            raise QmdFailure(QmdFailureReason.EXIT_CODE, f"the files to index cannot be read: {error}") from error

    def _run(self, run: CommandRun) -> CommandResult:
        """Run a command on an update's thread; `stop` ends it."""
        self._running.add(run)
        try:
            if self.stopping:
                run.cancel()
            return self._host.run(run)
        finally:
            self._running.discard(run)

    async def _embed(self) -> None:
        # One embedding runs on a host at a time. The other agents of this daemon wait here without using a thread.
        async with self._host.embedding, self._lock:
            await self._attempt(self.embedding, lambda: self._index.embed(self._run))

    async def _boot(self) -> None:
        for pause in (*_BOOT_PAUSES, None):
            try:
                await self._update()
                break
            except QmdFailure as failure:
                if pause is None or failure.reason not in (QmdFailureReason.BUSY, QmdFailureReason.TIMEOUT):
                    self._requested.set()
                    return
                await asyncio.sleep(pause)
        await self._embed_if_due()

    async def _update_on_request(self) -> None:
        await self._requested.wait()
        now = self._monotonic()
        self._skip_pause.clear()
        debounce = self.updating.done_at + self._config.debounce_seconds - now
        await self._pause(max(self.updating.remaining_pause(now), debounce))
        # An update that started during the pause has cleared the request.
        if self._requested.is_set():
            await self._try_update()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._skip_pause.wait()

    async def _update_at_interval(self) -> None:
        now = self._monotonic()
        is_due = now - self.updating.done_at >= self._config.debounce_seconds
        if is_due and not self.updating.remaining_pause(now):
            await self._try_update()

    async def _try_update(self) -> None:
        try:
            await self._update()
        except QmdFailure:
            # `updating` has the failure. The request remains.
            self._requested.set()
            return
        await self._embed_if_due()

    async def _embed_if_due(self) -> None:
        now = self._monotonic()
        since = now - self.embedding.done_at
        interval = self._config.embed_interval_seconds
        due = since == math.inf or (interval > 0 and since >= interval)
        if self._embeds and due and not self.embedding.remaining_pause(now):
            try:
                await self._embed()
            except QmdFailure:
                return

    def _spawn(self, name: str, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        return self._tasks.spawn(name, work, expected=(QmdFailure,))
