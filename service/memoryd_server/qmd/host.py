"""QmdHost: the guard, the threads and the embedding lock that all agents of a daemon share; and file locks."""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason
from memoryd_server.qmd.process import CommandResult, CommandRun, ProcessGuard
from memoryd_server.system import FileLock

# Each search is a process that loads a runtime: more concurrent ones than this delay all of them.
CONCURRENT_SEARCHES = 4
# Concurrent updates, of different agents.
CONCURRENT_UPDATES = 2

_T = TypeVar("_T")


class QmdHost:
    """Runs the commands of a daemon's agents until `close`. Its coroutines are for the event loop's thread."""

    def __init__(self) -> None:
        self.guard = ProcessGuard()
        self.embedding = asyncio.Lock()
        self._searches = ThreadPoolExecutor(CONCURRENT_SEARCHES, thread_name_prefix="qmd-search")
        self._updates = ThreadPoolExecutor(CONCURRENT_UPDATES, thread_name_prefix="qmd-update")
        self._lock = threading.Lock()
        self._running: set[CommandRun] = set()
        self._closed = False

    async def search(self, run: CommandRun, seconds: float) -> CommandResult:
        """Run a search. If the caller is cancelled, or no thread is free within `seconds`, the run is cancelled.

        Raises:
            QmdFailure: BUSY, no thread was free within `seconds`; EXIT_CODE, no process can be started.
        """
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> CommandResult:
            loop.call_soon_threadsafe(began.set)
            return self.run(run)

        job = self._searches.submit(work)
        future = asyncio.wrap_future(job)
        # Retrieves the exception of a search whose caller was cancelled.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(seconds):
                await began.wait()
            return await asyncio.shield(future)
        except TimeoutError:
            raise QmdFailure(
                QmdFailureReason.BUSY, f"{CONCURRENT_SEARCHES} other qmd searches were running for {seconds:.1f} s"
            ) from None
        finally:
            if not job.done():
                run.cancel()
                if job.cancel():
                    run.discard()

    async def update(self, work: Callable[[], _T]) -> _T:
        """Call the blocking `work` of an update on one of the update threads."""
        return await asyncio.get_running_loop().run_in_executor(self._updates, work)

    def run(self, run: CommandRun) -> CommandResult:
        """Run a command on the calling thread; `close` ends it.

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
            raise QmdFailure(QmdFailureReason.EXIT_CODE, f"the process cannot be started: {error}") from error
        finally:
            with self._lock:
                self._running.discard(run)

    def close(self) -> None:
        """End every command and the guard. Blocks until they have ended, two seconds at most."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for run in running:
            run.cancel()
        self._searches.shutdown(wait=True, cancel_futures=True)
        self._updates.shutdown(wait=True, cancel_futures=True)
        self.guard.close()


def make_private_folder(folder: Path) -> None:
    """Create a folder that only this user can write to, or check that an existing folder is one.

    In a shared temporary folder, another user may have created the folder, or a link with its name.

    Raises:
        OSError: the folder cannot be created, is a symbolic link or no folder, or others can write to it.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"the folder belongs to user {status.st_uid}", str(folder))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "other users can write to the folder", str(folder))


@contextmanager
def file_lock(path: Path, name: str, seconds: float, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock on a file, which is created if it is missing. Waits for the lock on the calling thread.

    Other processes respect the lock; it ends with this process. `name` describes it in messages.

    Raises:
        QmdFailure: BUSY after `seconds`; CANCELLED if `should_stop` returns true.
        OSError: the file cannot be created, is a symbolic link, or has another owner.
    """
    lock = FileLock(path)
    try:
        lock.wait(seconds, should_stop)
    except TimeoutError:
        if should_stop():
            raise QmdFailure(QmdFailureReason.CANCELLED, f"waiting for {name} was cancelled") from None
        raise QmdFailure(QmdFailureReason.BUSY, f"{name} is held by another process") from None
    try:
        yield
    finally:
        lock.release()
