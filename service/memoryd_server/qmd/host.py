"""What the agents of one daemon share to run qmd: the guard process, threads, and the locks between processes."""

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

# Each search is a process that loads a runtime: more of them would make all of them late.
CONCURRENT_SEARCHES = 4
CONCURRENT_UPDATES = 2
"""Updates of different agents."""

_T = TypeVar("_T")


class QmdHost:
    """The qmd processes of a daemon's agents. Use its coroutines only on the event loop's thread."""

    def __init__(self) -> None:
        self.guard = ProcessGuard()
        self.embedding = asyncio.Lock()
        self._searches = ThreadPoolExecutor(CONCURRENT_SEARCHES, thread_name_prefix="qmd-search")
        self._updates = ThreadPoolExecutor(CONCURRENT_UPDATES, thread_name_prefix="qmd-update")
        self._lock = threading.Lock()
        self._running: set[CommandRun] = set()
        self._closed = False

    async def search(self, run: CommandRun, seconds: float) -> CommandResult:
        """Run a search. Cancelling this coroutine ends the process.

        Raises:
            QmdFailure: BUSY, no thread became free within `seconds`; EXIT_CODE, the process cannot be started.
        """
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> CommandResult:
            loop.call_soon_threadsafe(began.set)
            return self.run(run)

        job = self._searches.submit(work)
        future = asyncio.wrap_future(job)
        # After a cancellation no caller retrieves the exception.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(seconds):
                await began.wait()
            return await asyncio.shield(future)
        except TimeoutError:
            raise QmdFailure(
                QmdFailureReason.BUSY, f"{CONCURRENT_SEARCHES} other searches of qmd are running; try again later"
            ) from None
        finally:
            if not job.done():
                run.cancel()
                if job.cancel():
                    run.discard()

    async def update(self, work: Callable[[], _T]) -> _T:
        """Run blocking work of an update on one of the threads for updates."""
        return await asyncio.get_running_loop().run_in_executor(self._updates, work)

    def run(self, run: CommandRun) -> CommandResult:
        """Run a command on the calling thread. `close` ends it.

        Raises:
            QmdFailure: EXIT_CODE, the process cannot be started; CANCELLED, the host is closed.
        """
        with self._lock:
            if self._closed:
                run.discard()
                raise QmdFailure(QmdFailureReason.CANCELLED, "the daemon is stopping")
            self._running.add(run)
        try:
            return run.run()
        except OSError as error:
            raise QmdFailure(QmdFailureReason.EXIT_CODE, f"the process cannot be started: {error}") from error
        finally:
            with self._lock:
                self._running.discard(run)

    def close(self) -> None:
        """End every command and the guard. Blocks until they have ended, at most two seconds."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for run in running:
            run.cancel()
        self._searches.shutdown(wait=True, cancel_futures=True)
        self._updates.shutdown(wait=True, cancel_futures=True)
        self.guard.close()


@contextmanager
def hold_lock(path: Path, what: str, seconds: float, is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock of a file until the block ends. Creates the file if it is missing. Blocks while it waits.

    The lock also excludes other processes, and ends with the process that holds it. `what` names it in messages.

    Raises:
        QmdFailure: BUSY, the lock was not free within `seconds`; CANCELLED, `is_unwanted` returned True.
        OSError: the file cannot be created or locked.
    """
    lock = FileLock(path)
    try:
        lock.wait(seconds, is_unwanted)
    except TimeoutError:
        if is_unwanted():
            raise QmdFailure(QmdFailureReason.CANCELLED, f"the wait for {what} was cancelled") from None
        raise QmdFailure(QmdFailureReason.BUSY, f"{what} is held by another process") from None
    try:
        yield
    finally:
        lock.release()
