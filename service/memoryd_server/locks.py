"""Exclusive locks on files (flock). They hold between processes and end with the process that holds them.

No function here waits without a limit: any program can hold a lock on any file that it can open.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_HELD = frozenset({errno.EWOULDBLOCK, errno.EACCES})
_PAUSE_SECONDS = 0.05


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file; return False while another open file holds a lock on it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True


def open_locked(path: Path, seconds: float, should_stop: Callable[[], bool] = lambda: False) -> int:
    """Return a descriptor of the lock file `path`, locked; the caller closes it. Create the file if it is missing.

    Block the calling thread for up to `seconds`. A lock file that was removed or replaced during the wait is opened
    again, because a lock on the old file keeps no other process out.

    Raises:
        TimeoutError: another process still holds the lock, or `should_stop` returned True.
        OSError: the file cannot be created or locked.
    """
    until = time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(descriptor) and is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if should_stop() or time.monotonic() > until:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(path))
        time.sleep(_PAUSE_SECONDS)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether `path` names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
