"""Regular files in open folders: open, lock, read and hash them, and copy their metadata."""

import errno
import os
import stat
from hashlib import file_digest, sha256

from memoryd_server.errors import FileBusy, FileNotFound, PathNotAllowed
from memoryd_server.sources import Location, open_directory
from memoryd_server.system import try_lock
from memoryd_server.writing.files import read_range

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The errors of opening a link, a folder, a device or a socket for reading and writing.
_REFUSED = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.ENOTDIR})
# The kernel's signatures of a content, which another content must not have.
# Takes less than a second. A larger file is not hashed, so that it does not delay the writes of its agent.
_MOST_HASHED_BYTES = 1 << 28

_SIGNATURES = frozenset({"security.ima", "security.evm"})


def open_regular(location: Location, folder: int) -> int | None:
    """Return a descriptor that reads and writes the file of an open folder, or None if it is missing.

    Raises:
        PathNotAllowed: it is not a regular file.
        OSError: the file system or its permissions refuse it.
    """
    try:
        fd = os.open(location.parts[-1], _WRITE, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        # The name is longer than the file system allows.
        if error.errno == errno.ENAMETOOLONG:
            return None
        if error.errno in _REFUSED:
            raise _not_regular(location) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(location)
    return fd


def require_lock(fd: int, location: Location) -> None:
    """Take the exclusive lock of an open file.

    Raises:
        FileBusy: another program holds a lock on it.
    """
    if not try_lock(fd):
        raise FileBusy(location.path, "is locked by another program; try again when that program has finished")


def content_of(folder: int, name: str, most: int) -> bytes | None:
    """Return up to `most` + 1 bytes of a file of an open folder; None if it is missing or not a regular file."""
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENAMETOOLONG, *_REFUSED}:
            return None
        raise
    try:
        return read_range(fd, 0, most + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def digest_now(location: Location) -> str:
    """Return the SHA-256 of the file in hexadecimal; empty if it is missing.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one, or has more than 256 MiB.
    """
    try:
        folder = open_directory(location.root, location.parts[:-1])
    except FileNotFound:
        return ""
    try:
        fd = os.open(location.parts[-1], _READ, dir_fd=folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno in _REFUSED:
            raise _not_regular(location) from error
        raise
    finally:
        os.close(folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(location)
        if status.st_size > _MOST_HASHED_BYTES:
            raise PathNotAllowed(location.path, f"another file is there, and has {status.st_size} bytes")
        with os.fdopen(fd, "rb", closefd=False) as stream:
            return file_digest(stream, sha256).hexdigest()
    finally:
        os.close(fd)


def is_listed(folder: int, name: str) -> bool:
    """Return whether an open folder lists exactly this name. A folder that ignores case also finds others."""
    with os.scandir(folder) as entries:
        return any(entry.name == name for entry in entries)


def copy_metadata(new: int, old: int) -> None:
    """Give an open file the owner, the group, the extended attributes and the permissions of another one.

    Raises:
        OSError: the daemon's user may not set one of them.
    """
    status = os.fstat(old)
    own = os.fstat(new)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(new, status.st_uid, status.st_gid)
    _copy_attributes(new, old)
    os.fchmod(new, stat.S_IMODE(status.st_mode))


def _copy_attributes(new: int, old: int) -> None:
    wanted, present = _attributes(old), _attributes(new)
    # A folder can give new files an access control list.
    for name in present.keys() - wanted.keys():
        if not name.startswith("security."):
            os.removexattr(new, name)
    for name, value in wanted.items():
        if name not in _SIGNATURES and present.get(name) != value:
            os.setxattr(new, name, value)


def _attributes(fd: int) -> dict[str, bytes]:
    """Return the extended attributes of a file, with its access control list; empty if the file system has none."""
    # Only Linux has these calls.
    if not hasattr(os, "listxattr"):
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError as error:
        if error.errno in {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}:
            return {}
        raise


def _not_regular(location: Location) -> PathNotAllowed:
    return PathNotAllowed(location.path, "it is a link, a folder, a device or a pipe, not a regular file")
