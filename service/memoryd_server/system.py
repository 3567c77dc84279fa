"""Lock files, durable renames, and the release of free memory to the operating system.

The locks are `flock` locks between processes: they end with the process that holds them. No function here waits without
a limit, because any program can hold a lock on any file that it can open.

`sync_folder` makes changes of names in a folder survive a power failure. `limit_free_memory` and `release_free_memory`
keep the C library from holding memory that is free.
"""

import ctypes
import errno
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memoryd_server.errors import DiskFull, IndexBusy, IndexReadOnly, IndexUnavailable, MemorydError


def sync_folder(folder: Path) -> None:
    """Block until the names in `folder` are on the disk.

    Raises:
        OSError: the folder cannot be opened or written.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def release_free_memory() -> None:
    """Return free pages to the operating system, if the C library is glibc."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


MAPPED_BYTES = 2**20
"""A block of this size or more is mapped by itself, and returned to the operating system when it is freed."""

KEPT_BYTES = 4 * 2**20
"""Free memory above this size at the end of a heap is returned."""

MOST_HEAPS = 2
"""The heaps of the C library that the threads share."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def limit_free_memory() -> None:
    """Limit the free memory that the process keeps, if the C library is glibc. Call it before other threads start.

    By default glibc adapts the first two limits to the largest block that was freed: after one reply of 32 MiB it keeps
    up to 64 MiB at the end of each thread's heap, which `release_free_memory` does not return. It also makes up to
    eight heaps per core, and each keeps the gaps between its blocks: after thousands of calls most of the process was
    gaps.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        libc.mallopt(_M_ARENA_MAX, MOST_HEAPS)


READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Error numbers of a file or folder that cannot be written."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a file system, or of a quota, without space."""

_LOCKED = frozenset({errno.EWOULDBLOCK, errno.EACCES})
_PAUSE_SECONDS = 0.05


def index_disk_full() -> DiskFull:
    """Return the error for a full disk that holds an index."""
    return DiskFull("the disk that holds the index is full; free some space and sync again")


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file; return False while another open file holds a lock on it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            return False
        raise
    return True


def is_locked(descriptor: int) -> bool:
    """Return whether another open file holds the exclusive lock of an open file.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        # Two processes that ask concurrently do not take each other for the holder of the exclusive lock.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            return True
        raise
    return False


@contextmanager
def exclusive_lease(descriptor: int) -> Iterator[bool]:
    """Keep every program from opening an open file until the block ends; yield whether that is so.

    It is not if the file is open elsewhere, also in this process, or if the system, the file system or the owner of the
    file gives no lease. A program that opens the file during the block waits for its end, which must be short.
    """
    leased = False
    with suppress(OSError, AttributeError):
        # The default signal of a program that waits for the lease would end this process; this one is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        leased = True
    try:
        yield leased
    finally:
        if leased:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether `path` names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


class FileLock:
    """The exclusive lock of the lock file `path`, from `acquire`, `try_acquire` or `wait` to `release`.

    The lock file stays after `release`: removing it would let two processes lock two different files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock without waiting; return False while another process holds it.

        Create a missing lock file, and refuse a symbolic link.

        Raises:
            OSError: the file cannot be created or locked.
        """
        return self._descriptor is not None or self._take(self._open(os.O_NOFOLLOW))

    def wait(self, seconds: float, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Take the lock; block the calling thread for up to `seconds` while another process holds it.

        Create a missing lock file, and refuse a symbolic link. A lock file that was removed or replaced during the
        wait is opened again, because a lock on the old file keeps no other process out.

        Raises:
            TimeoutError: another process still holds the lock, or `should_stop` returned True.
            OSError: the file cannot be created or locked.
        """
        if self._descriptor is not None:
            return
        until = time.monotonic() + seconds
        while not self._take(self._open(os.O_NOFOLLOW)) or self.is_lost:
            self.release()
            if should_stop() or time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(self._path))
            time.sleep(_PAUSE_SECONDS)

    def acquire(self) -> None:
        """Take the lock of an index without waiting, unless it is held already, and write the process id into the file.

        Raises:
            IndexBusy: another process holds it; the message names its process id.
            IndexReadOnly: the folder cannot be written.
            DiskFull, IndexUnavailable: the lock file cannot be created or locked.
        """
        if self._descriptor is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = self._open()
        except OSError as error:
            raise self._creation_error(error) from error
        self._take_or_raise(descriptor)
        # The process id is informational. A full disk has no room for it.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def acquire_to_read(self) -> None:
        """Release the lock, then take it through a file that may be read-only. A missing file is held by no process.

        Raises:
            IndexBusy: another process holds it, and may be writing.
            IndexUnavailable: the file system has no locks.
        """
        self.release()
        with suppress(FileNotFoundError, PermissionError):
            self._take_or_raise(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def is_lost(self) -> bool:
        """Whether the lock file was removed or replaced, so that another process could take the lock too."""
        if self._descriptor is None:
            return False
        try:
            return not is_at(self._descriptor, self._path)
        except OSError:
            return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, flags: int = 0) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o600)

    def _take(self, descriptor: int) -> bool:
        """Keep `descriptor` if it gets the lock, else close it."""
        try:
            taken = try_lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if taken:
            self._descriptor = descriptor
        else:
            os.close(descriptor)
        return taken

    def _take_or_raise(self, descriptor: int) -> None:
        try:
            if try_lock(descriptor):
                self._descriptor = descriptor
                return
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        except OSError as error:
            os.close(descriptor)
            raise IndexUnavailable(
                f"the file system of {self._path} does not support locks ({error.strerror}); choose another --state-dir"
            ) from error
        os.close(descriptor)
        raise IndexBusy(
            f"the index {self._path.name.removesuffix('.lock')} is in use by another memoryd (process {holder}); "
            "use that daemon, stop it, or choose another --state-dir for this one",
            retry_after_seconds=1.0,
        )

    def _creation_error(self, error: OSError) -> MemorydError:
        if error.errno in READ_ONLY:
            return IndexReadOnly(
                f"{self._path.parent} cannot be written ({error.strerror}); make it writable for the daemon's user, or "
                "choose another --state-dir"
            )
        if error.errno in DISK_FULL:
            return index_disk_full()
        return IndexUnavailable(f"cannot create the lock file {self._path}: {error.strerror}")
