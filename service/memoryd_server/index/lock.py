"""One process an index: an OS lock that dies with its holder."""

import fcntl
import os
from pathlib import Path

from memoryd_server.errors import IndexBusy, IndexUnavailable


class IndexLock:
    """Holds an exclusive flock on a file beside the index from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock or fails at once.

        Raises:
            IndexBusy: another process holds it; the message names its process id.
            IndexUnavailable: the lock file cannot be made.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise IndexUnavailable(f"cannot make the lock file {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise IndexBusy(
                f"the index {self._path.name.removesuffix('.lock')} is held by another memoryd (process {holder}); "
                "use that daemon, stop it, or give this one another --state-dir",
                retry_after_seconds=1.0,
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock up. The lock file stays: removing it would let two processes lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
