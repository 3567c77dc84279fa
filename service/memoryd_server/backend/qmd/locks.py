"""Locks that hold between processes as well, and end with the process that holds them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryd_server.backend.qmd.failure import QmdFailure, Reason
from memoryd_server.system import FileLock


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
            raise QmdFailure(Reason.CANCELLED, f"{what} is not waited for any more") from None
        raise QmdFailure(Reason.BUSY, f"{what} is held by another process") from None
    try:
        yield
    finally:
        lock.release()
