"""File operations of this package: whole reads and writes, durable names, new files and error translation."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memoryd_server.errors import (
    DiskFull,
    FileBusy,
    FileNotFound,
    FileReplaced,
    IndexUnavailable,
    PathNotAllowed,
    WorkspaceReadOnly,
)
from memoryd_server.renames import Renames
from memoryd_server.sources import Location, open_directory
from memoryd_server.system import DISK_FULL, READ_ONLY

_STEP_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

MOST_REPLACEMENTS = 8
"""How often a file that another program replaces during one operation is opened again."""


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, with as many system calls as that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the contents of a file that only its owner can read; durable on return if `durable`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_range(fd: int, start: int, end: int) -> bytes:
    """Return the bytes from `start` up to `end`, fewer if the file is shorter."""
    parts = []
    while start < end and (part := os.pread(fd, min(end - start, _STEP_BYTES), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def sync_folders(root: str, folders: tuple[str, ...] = ()) -> None:
    """Make the names in `root`, and in each folder below it, survive a power failure. Follows no link below `root`."""
    fd = os.open(root, _DIRECTORY)
    try:
        os.fsync(fd)
        for folder in folders:
            inner = os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
            os.fsync(fd)
    finally:
        os.close(fd)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_new(
    location: Location,
    data: bytes,
    draft: str,
    renames: Renames | None = None,
    *,
    mtime_ns: int | None = None,
    mode: int | None = None,
    durable_name: bool = True,
) -> bool:
    """Write a durable new file, creating the folders above it. Return False if the name is taken. Blocks.

    When this returns True, the path names the file: if a folder above it is moved away during the write, the file is
    written again. The file appears with all of its contents or not at all; it is empty for a moment where the file
    system has neither hard links nor renames to free names.

    `draft` is the temporary name during the write; an older file of this name is removed. Only one thread may write
    with it at a time. `mtime_ns` is the time of the file, by default the current one, and `mode` its permissions, by
    default those that the umask leaves. Without `durable_name`, a power failure can remove the file as a whole until
    `sync_folders` is called.

    Raises:
        PathNotAllowed: a component is a link or not a folder.
        FileNotFound: the root itself does not exist.
        FileReplaced: the folders above it are replaced repeatedly.
        OSError: any other error of the file system; nothing is left of the file.
    """
    renames = renames or Renames()
    for _ in range(MOST_REPLACEMENTS):
        folder = open_directory(location.root, location.parts[:-1], create=True)
        try:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            _write(folder, draft, data, mtime_ns, mode)
            if not _give_name(folder, location.parts[-1], draft, renames):
                return False
            if _sync_names(location, folder) if durable_name else leads_to(location, folder):
                return True
        finally:
            os.close(folder)
    raise FileReplaced(location.path)


def _sync_names(location: Location, folder: int) -> bool:
    """Make the names of a new file durable, and return whether its path leads to `folder`."""
    try:
        sync_folders(location.root, location.parts[:-1])
    except FileNotFoundError:
        return False
    return leads_to(location, folder)


def leads_to(location: Location, folder: int) -> bool:
    """Return whether `folder` is the folder of the location, resolved from the root again.

    Raises:
        PathNotAllowed: a component is now a link, or is not a folder.
    """
    try:
        current = open_directory(location.root, location.parts[:-1])
    except FileNotFound:
        return False
    try:
        return os.path.samestat(os.fstat(current), os.fstat(folder))
    finally:
        os.close(current)


def _give_name(folder: int, name: str, draft: str, renames: Renames) -> bool:
    """Give a file with the name `draft` another one instead; return whether that name was free."""
    try:
        if not _rename_in_one_step(folder, draft, name, renames):
            _rename_over_empty_file(folder, draft, name)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
    return True


def _rename_in_one_step(folder: int, draft: str, name: str, renames: Renames) -> bool:
    return renames.link(folder, draft, folder, name) or renames.to_free_name(folder, draft, folder, name)


def _rename_over_empty_file(folder: int, draft: str, name: str) -> None:
    """Reserve the name by an empty file, which fails if it is taken, and replace that file."""
    _write(folder, name, b"")
    try:
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            if not os.stat(name, dir_fd=folder, follow_symlinks=False).st_size:
                os.unlink(name, dir_fd=folder)
        raise


def _write(folder: int, name: str, data: bytes, mtime_ns: int | None = None, mode: int | None = None) -> None:
    descriptor = os.open(name, _NEW, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        write_all(descriptor, data)
        if mtime_ns is not None:
            # Not every file system has every time.
            with suppress(OSError):
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        os.fsync(descriptor)
    except BaseException:
        # Another program may have put a file of its own in its place.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(descriptor)):
                os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


_FULL = DISK_FULL | {errno.EFBIG}
_REPLACED = frozenset({errno.ELOOP, errno.ENOTDIR})


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Translate the operating system's errors for a memory file.

    Raises:
        WorkspaceReadOnly: permissions or the mount refuse the write.
        DiskFull: no space or quota is left, or the file would exceed a size limit.
        PathNotAllowed: a folder above it was replaced by something else.
        FileBusy: another program holds a lease on it.
    """
    try:
        yield
    except BlockingIOError as error:
        raise FileBusy(path, "is leased by another program; try again when that program has released it") from error
    except OSError as error:
        if error.errno in _REPLACED:
            raise PathNotAllowed(path, "a folder above it was replaced during the write") from error
        if error.errno in READ_ONLY:
            words = f"{path!r} cannot be written: {error.strerror}; make the workspace writable for the daemon's user"
            raise WorkspaceReadOnly(words, metadata={"path": path}) from error
        if error.errno in _FULL:
            raise _full(path, error) from error
        raise


@contextmanager
def ledger_errors(path: str) -> Iterator[None]:
    """Translate the operating system's errors for the state directory.

    The memory file has not been written then.

    Raises:
        DiskFull: no space or quota is left, or the file would exceed a size limit.
        IndexUnavailable: any other error.
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
