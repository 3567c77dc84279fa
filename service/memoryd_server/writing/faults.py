"""Gives the operating system's refusals the names that callers know."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from memoryd_server.errors import DiskFull, FileBusy, IndexUnavailable, PathNotAllowed, WorkspaceReadOnly
from memoryd_server.system import DISK_FULL, READ_ONLY

_FULL = DISK_FULL | {errno.EFBIG}
_REPLACED = frozenset({errno.ELOOP, errno.ENOTDIR})


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Names what a memory file's file system refuses.

    Raises:
        WorkspaceReadOnly: by permissions or mount.
        DiskFull: for want of space or quota, or because the file would be larger than a limit allows.
        PathNotAllowed: a folder above it became something else meanwhile.
        FileBusy: another program holds a lease on it.
    """
    try:
        yield
    except BlockingIOError as error:
        raise FileBusy(path, "is leased by another program; try again when that program has released it") from error
    except OSError as error:
        if error.errno in _REPLACED:
            raise PathNotAllowed(path, "a folder above it was replaced while it was written") from error
        if error.errno in READ_ONLY:
            words = f"{path!r} cannot be written: {error.strerror}; make the workspace writable for the daemon's user"
            raise WorkspaceReadOnly(words, metadata={"path": path}) from error
        if error.errno in _FULL:
            raise _full(path, error) from error
        raise


@contextmanager
def ledger_errors(path: str) -> Iterator[None]:
    """Names what the state directory's file system refuses; nothing has been written to the memory file then.

    Raises:
        DiskFull: for want of space or quota, or because the file would be larger than a limit allows.
        IndexUnavailable: for any other reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(path, error) from error
        words = f"the append ledger {path!r} cannot be used: {error.strerror}; make the state directory writable"
        raise IndexUnavailable(words, metadata={"path": path}) from error


def _full(path: str, error: OSError) -> DiskFull:
    if error.errno == errno.EFBIG:
        words = f"{error.strerror}; raise the daemon's limit on the size of a file (RLIMIT_FSIZE), or shorten the file"
    else:
        words = f"{error.strerror}; free some space"
    return DiskFull(f"{path!r} cannot be written: {words}", metadata={"path": path})
