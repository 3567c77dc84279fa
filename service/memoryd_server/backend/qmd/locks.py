"""Locks that hold between processes as well, and end with the process that holds them."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryd_server.backend.qmd.failure import QmdFailure, Reason

_TICK_SECONDS = 0.1


@contextmanager
def held(path: Path, what: str, seconds: float, is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """Holds the lock of a file, which is made where it is missing; waits for it on the calling thread.

    Raises:
        QmdFailure: BUSY after `seconds`, CANCELLED once `is_unwanted`.
        OSError: the file cannot be made, or is not ours.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, what, time.monotonic() + seconds, is_unwanted)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, what: str, until: float, is_unwanted: Callable[[], bool]) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_unwanted():
                raise QmdFailure(Reason.CANCELLED, f"{what} is not waited for any more") from None
            if time.monotonic() > until:
                raise QmdFailure(Reason.BUSY, f"{what} is held by another process") from None
        time.sleep(_TICK_SECONDS)
