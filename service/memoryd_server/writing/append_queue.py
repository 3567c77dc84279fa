"""One agent's appends. An append that waits for another program's lock waits on the event loop and holds no thread."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress

from memoryd_server.errors import DeadlineTooShort, FileBusy, ShuttingDown
from memoryd_server.writing.append import Appender, AppendJob, AppendReceipt

FIRST_PAUSE_SECONDS = 0.002
MOST_PAUSE_SECONDS = 0.1

MOST_WAITING = 64
"""Most appends of one agent that wait for locks. Each of them counts towards `memoryd.limits.maxConcurrentCalls`."""

ATTEMPT_SECONDS = 0.05
"""No attempt begins later than this before the deadline: it could be cut off between its write and its answer."""


class _FileQueue:
    """The appends that wait for one locked file: the first one tries again, the others wait for it."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0


class AppendQueue:
    """Tries each append on `thread`, the agent's own, and tries again while another program locks the file.

    `monotonic` is the clock of deadlines. Every method belongs to the event loop's thread.
    """

    def __init__(self, appender: Appender, thread: Executor, monotonic: Callable[[], float]) -> None:
        self._appender = appender
        self._thread = thread
        self._monotonic = monotonic
        self._stopped = asyncio.Event()
        self._queues: dict[str, _FileQueue] = {}

    async def append(self, job: AppendJob, *, lock_deadline: float, deadline: float) -> AppendReceipt:
        """Append the text of `job`; wait for locks until `lock_deadline` and for the disk until `deadline`.

        Raises:
            FileBusy: another program still held a lock, or `MOST_WAITING` appends wait already; the file does not hold
                the text.
            FileReplaced: another program replaces the file again and again. More attempts would rarely help.
            DeadlineTooShort: the disk did not take the text in time.
            ShuttingDown: the memory is being closed; nothing was written.
            MemorydError: as `Appender.append`.
        """
        try:
            return await self._attempt(job, deadline)
        except FileBusy as error:
            busy = error
        if sum(queue.waiting for queue in self._queues.values()) >= MOST_WAITING:
            raise busy
        with self._queue(job.path) as queue:
            try:
                async with asyncio.timeout(max(0.0, lock_deadline - self._monotonic())):
                    await queue.turn.acquire()
            except TimeoutError:
                raise busy from None
            try:
                return await self._attempt_until(lock_deadline, job, busy, deadline)
            finally:
                queue.turn.release()

    async def _attempt_until(
        self, lock_deadline: float, job: AppendJob, busy: FileBusy, deadline: float
    ) -> AppendReceipt:
        """Try again, with growing pauses, until the lock is free; raise the last `FileBusy` at `lock_deadline`."""
        pause = 0.0
        while lock_deadline - self._monotonic() > pause + ATTEMPT_SECONDS:
            await self._pause(pause)
            try:
                return await self._attempt(job, deadline)
            except FileBusy as error:
                busy = error
            pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), MOST_PAUSE_SECONDS)
        raise busy

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _attempt(self, job: AppendJob, deadline: float) -> AppendReceipt:
        if self._stopped.is_set():
            raise ShuttingDown(
                "the daemon is stopping, or reopens this agent with other settings; nothing was appended, try again",
                retry_after_seconds=1.0,
            )
        attempt = self._thread.submit(self._appender.append, job)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._monotonic())):
                return await asyncio.wrap_future(attempt)
        except TimeoutError as error:
            words = (
                "other appends left no time before the deadline; nothing was appended, try again"
                if attempt.cancelled()
                else "the disk has not taken the text yet and may still take it; call again with the same idempotency "
                "key to make sure"
            )
            raise DeadlineTooShort(f"{job.path!r}: {words}", retry_after_seconds=1.0) from error

    @contextmanager
    def _queue(self, path: str) -> Iterator[_FileQueue]:
        queue = self._queues.setdefault(path, _FileQueue())
        queue.waiting += 1
        try:
            yield queue
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[path]

    def stop(self) -> None:
        """Start no further attempt; appends that wait for a lock fail with `ShuttingDown`."""
        self._stopped.set()
        self._thread.shutdown(wait=False)
