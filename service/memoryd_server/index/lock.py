"""One process an index: an OS lock that dies with its holder."""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from memoryd_server.errors import IndexBusy, IndexReadOnly, IndexUnavailable
from memoryd_server.index.connection import is_full, translate

READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""How the system says that a folder cannot be written."""

_HELD = frozenset({errno.EWOULDBLOCK, errno.EACCES})


class IndexLock:
    """Holds an exclusive flock on a file beside the index from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock, unless it is held already, or fails at once.

        Raises:
            IndexBusy: another process holds it; the message names its process id.
            IndexReadOnly: the folder cannot be written.
            DiskFull, IndexUnavailable: the lock file cannot be made.
        """
        if self._descriptor is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unmade(error) from error
        self._take(descriptor)
        # For people; a full disk has no room for it.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def acquire_to_read(self) -> None:
        """Takes the lock where its file can only be read; without a file nobody can hold it. Gives up what it held.

        Raises:
            IndexBusy: another process holds it, and may be writing.
        """
        self.release()
        with suppress(FileNotFoundError, PermissionError):
            self._take(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))

    def _unmade(self, error: OSError) -> Exception:
        if error.errno in READ_ONLY:
            return IndexReadOnly(
                f"{self._path.parent} cannot be written ({error.strerror}); make it writable for the daemon's user, or "
                "choose another --state-dir"
            )
        if is_full(error):
            return translate(error)
        return IndexUnavailable(f"cannot make the lock file {self._path}: {error.strerror}")

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            if error.errno not in _HELD:
                raise IndexUnavailable(
                    f"the file system of {self._path} gives no locks ({error.strerror}); choose another --state-dir"
                ) from error
            raise IndexBusy(
                f"the index {self._path.name.removesuffix('.lock')} is held by another memoryd (process {holder}); "
                "use that daemon, stop it, or give this one another --state-dir",
                retry_after_seconds=1.0,
            ) from error
        self._descriptor = descriptor

    @property
    def is_lost(self) -> bool:
        """Whether the lock file was removed or replaced, so that another process could take the lock too."""
        if self._descriptor is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return True

    def release(self) -> None:
        """Gives the lock up. The lock file stays: removing it would let two processes lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
