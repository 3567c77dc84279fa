"""One agent's appends and edits. A write that waits for another program's lock holds no thread."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from typing import TypeVar

from memoryd_server.errors import DeadlineTooShort, FileBusy, ShuttingDown

_T = TypeVar("_T")

FIRST_PAUSE_SECONDS = 0.002
MOST_PAUSE_SECONDS = 0.1

MOST_WAITING = 64
"""Most writes of one agent that wait for locks. Each of them counts towards `memoryd.limits.maxConcurrentCalls`."""

ATTEMPT_SECONDS = 0.05
"""No attempt begins later than this before the deadline: it could be cut off between its write and its answer."""


class _FileQueue:
    """The writes that wait for one locked file: the first one tries again, the others wait for it."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0


class WriteQueue:
    """Tries each write on `thread`, the agent's own, and tries again while another program locks the file.

    `monotonic` is the clock of deadlines. Every method belongs to the event loop's thread.
    """

    def __init__(self, thread: Executor, monotonic: Callable[[], float]) -> None:
        self._thread = thread
        self._monotonic = monotonic
        self._stopped = asyncio.Event()
        self._queues: dict[str, _FileQueue] = {}

    @property
    def waiting(self) -> int:
        """The number of writes that wait for locks."""
        return sum(queue.waiting for queue in self._queues.values())

    async def write(self, path: str, work: Callable[[], _T], *, lock_deadline: float, deadline: float) -> _T:
        """Return the result of `work`, which writes the file `path`.

        Wait for locks until `lock_deadline`, and for the disk until `deadline`. After `FileBusy`, `work` is called
        again.

        Raises:
            FileBusy: another program still held a lock, or `MOST_WAITING` writes wait already; nothing was written.
            DeadlineTooShort: the disk did not take the write in time.
            ShuttingDown: the memory is being closed; nothing was written.
            MemorydError: as `work`.
        """
        try:
            return await self._attempt(path, work, deadline)
        except FileBusy as error:
            busy = error
        if self.waiting >= MOST_WAITING:
            raise busy
        with self._queue(path) as queue:
            try:
                async with asyncio.timeout(max(0.0, lock_deadline - self._monotonic())):
                    await queue.turn.acquire()
            except TimeoutError:
                raise busy from None
            try:
                return await self._attempt_until(lock_deadline, busy, lambda: self._attempt(path, work, deadline))
            finally:
                queue.turn.release()

    async def _attempt_until(
        self, lock_deadline: float, busy: FileBusy, attempt: Callable[[], Coroutine[None, None, _T]]
    ) -> _T:
        """Try again, with growing pauses, until the lock is free; raise the last `FileBusy` at `lock_deadline`."""
        pause = 0.0
        while lock_deadline - self._monotonic() > pause + ATTEMPT_SECONDS:
            await self._pause(pause)
            try:
                return await attempt()
            except FileBusy as error:
                busy = error
            pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), MOST_PAUSE_SECONDS)
        raise busy

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _attempt(self, path: str, work: Callable[[], _T], deadline: float) -> _T:
        if self._stopped.is_set():
            raise ShuttingDown(
                "the daemon is stopping, or reopens this agent with other settings; nothing was written, try again",
                retry_after_seconds=1.0,
            )
        attempt = self._thread.submit(work)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._monotonic())):
                return await asyncio.wrap_future(attempt)
        except TimeoutError as error:
            words = (
                "other writes left no time before the deadline; nothing was written, try again"
                if attempt.cancelled()
                else "the text is not stored yet and may still be; call again with the same idempotency key, or "
                "with the same expected_records, to make sure"
            )
            raise DeadlineTooShort(f"{path!r}: {words}", retry_after_seconds=1.0) from error

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
        """Start no further attempt; writes that wait for a lock fail with `ShuttingDown`."""
        self._stopped.set()
        self._thread.shutdown(wait=False)
