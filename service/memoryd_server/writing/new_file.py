"""A file that is new: it appears under its name with all of its contents, or not at all."""

import errno
import os
from contextlib import suppress

from memoryd_server.errors import FileNotFound, FileReplaced
from memoryd_server.sources.contained import open_directory
from memoryd_server.sources.roots import Location
from memoryd_server.writing.files import MOST_REPLACEMENTS, sync_folders, write_all

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What file systems answer that know no second name of a file.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def write_new(location: Location, data: bytes, draft: str) -> bool:
    """Writes a file that lasts, making the folders above it; false where something of that name is there.

    The path names the file when this returns True: where a folder above it was moved away meanwhile, the file is
    written again.

    `draft` is the name under which it is written before it is whole; what an earlier write left of it goes. Only one
    may write with it at a time. Blocks.

    Raises:
        PathNotAllowed: a component is a link or no folder.
        FileNotFound: the root itself is missing.
        FileReplaced: the folders above it are replaced again and again.
        OSError: what the file system says; nothing is left of the file then.
    """
    for _ in range(MOST_REPLACEMENTS):
        folder = open_directory(location.root, location.parts[:-1], make=True)
        try:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            done = _linked(folder, location.parts[-1], data, draft)
            if done is None:
                done = _written(folder, location.parts[-1], data)
            if not done:
                return False
            if _names(location, folder):
                return True
        finally:
            os.close(folder)
    raise FileReplaced(location.path)


def _names(location: Location, folder: int) -> bool:
    """Make the names of a new file durable, and return whether its path leads to `folder`."""
    try:
        sync_folders(location.root, location.parts[:-1])
        current = open_directory(location.root, location.parts[:-1])
    except (FileNotFound, FileNotFoundError):
        return False
    try:
        return os.path.samestat(os.fstat(current), os.fstat(folder))
    finally:
        os.close(current)


def _linked(folder: int, name: str, data: bytes, draft: str) -> bool | None:
    """Whether the name was free; None where a file can have but one name here."""
    try:
        _write(folder, draft, data)
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return None
    finally:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
    return True


def _written(folder: int, name: str, data: bytes) -> bool:
    try:
        _write(folder, name, data)
    except FileExistsError:
        return False
    return True


def _write(folder: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, _NEW, 0o666, dir_fd=folder)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
