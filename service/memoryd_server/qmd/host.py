"""Threads shared by agents; locks between processes.

What all agents of one daemon share: the guard, the threads on which commands run, and the turn to embed.

Locks that hold between processes as well, and end with the process that holds them.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason
from memoryd_server.qmd.process import CommandResult, CommandRun, ProcessGuard
from memoryd_server.system import FileLock

# Each search is a process that loads a runtime: more at once than this make all of them late.
SEARCHES_AT_ONCE = 4
# Updates of different agents.
UPDATES_AT_ONCE = 2

_T = TypeVar("_T")


class QmdHost:
    """The processes of a daemon's agents. Its coroutines belong to the event loop's thread; `close` ends them all."""

    def __init__(self) -> None:
        self.guard = ProcessGuard()
        self.embedding = asyncio.Lock()
        self._searches = ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="qmd-search")
        self._updates = ThreadPoolExecutor(UPDATES_AT_ONCE, thread_name_prefix="qmd-update")
        self._lock = threading.Lock()
        self._running: set[CommandRun] = set()
        self._closed = False

    async def search(self, run: CommandRun, seconds: float) -> CommandResult:
        """Runs a search; when it is cancelled, or has no thread within `seconds`, so is the process.

        Raises:
            QmdFailure: BUSY, all threads were taken all the time; EXIT_CODE, no process can be started.
        """
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> CommandResult:
            loop.call_soon_threadsafe(began.set)
            return self.run(run)

        job = self._searches.submit(work)
        future = asyncio.wrap_future(job)
        # Where nobody waits any more, nobody reads what came of it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(seconds):
                await began.wait()
            return await asyncio.shield(future)
        except TimeoutError:
            raise QmdFailure(
                QmdFailureReason.BUSY, f"{SEARCHES_AT_ONCE} searches of qmd were under way all the time"
            ) from None
        finally:
            if not job.done():
                run.cancel()
                if job.cancel():
                    run.discard()

    async def update(self, work: Callable[[], _T]) -> _T:
        """Does blocking work of an update on one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._updates, work)

    def run(self, run: CommandRun) -> CommandResult:
        """Runs a command on the calling thread; `close` ends it.

        Raises:
            QmdFailure: EXIT_CODE, no process can be started; CANCELLED, the host is closed.
        """
        with self._lock:
            if self._closed:
                run.discard()
                raise QmdFailure(QmdFailureReason.CANCELLED, "the daemon is stopping")
            self._running.add(run)
        try:
            return run.run()
        except OSError as error:
            raise QmdFailure(QmdFailureReason.EXIT_CODE, f"no process can be started: {error}") from error
        finally:
            with self._lock:
                self._running.discard(run)

    def close(self) -> None:
        """Ends every command and the guard. Blocks until they have ended, a second or two at most."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for run in running:
            run.cancel()
        self._searches.shutdown(wait=True, cancel_futures=True)
        self._updates.shutdown(wait=True, cancel_futures=True)
        self.guard.close()


@contextmanager
def held(path: Path, what: str, seconds: float, is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """Holds the lock of a file, which is made where it is missing; waits for it on the calling thread.

    Raises:
        QmdFailure: BUSY after `seconds`, CANCELLED once `is_unwanted`.
        OSError: the file cannot be made, or is not ours.
    """
    lock = FileLock(path)
    try:
        lock.wait(seconds, is_unwanted)
    except TimeoutError:
        if is_unwanted():
            raise QmdFailure(QmdFailureReason.CANCELLED, f"{what} is not waited for any more") from None
        raise QmdFailure(QmdFailureReason.BUSY, f"{what} is held by another process") from None
    try:
        yield
    finally:
        lock.release()
