"""Deletion of a file that the caller has seen, and of no other.

No system call deletes a file only if it is a certain one. Therefore a file is first renamed to a name that no other
program uses, then compared, then deleted; or it gets its name back. What a crash leaves under such a name gets its name
back with `restore_files`.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count

from memoryd_server.errors import FileNotFound, FileReplaced, PathNotAllowed
from memoryd_server.model import FileStat
from memoryd_server.renames import Renames
from memoryd_server.sources import Location, file_stat, open_directory, stat_file
from memoryd_server.writing.files import MOST_REPLACEMENTS, file_errors, read_range

_PREFIX, _SUFFIX = ".", ".memoryd-deleting"
_MOST_NAME_BYTES = 255
_KEPT = (
    "was changed or replaced by another program during the call, and is kept; call again to remove what it holds now"
)


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as the caller has seen it: its stat, and the SHA-256 of its bytes, None if they were not read.

    If `may_grow`, it is the same file with what was written to its end since.
    """

    stat: FileStat
    content_hash: bytes | None = None
    may_grow: bool = False

    def is_named(self, name: str, folder: int) -> bool:
        """Return whether the file `name` in the open folder is this one, or a copy with the same bytes."""
        now = file_stat(os.stat(name, dir_fd=folder, follow_symlinks=False))
        if (now.device, now.inode) == (self.stat.device, self.stat.inode) and (
            (now.size_bytes, now.mtime_ns) == (self.stat.size_bytes, self.stat.mtime_ns)
            or (self.may_grow and now.size_bytes >= self.stat.size_bytes)
        ):
            return True
        if self.content_hash is None or now.size_bytes != self.stat.size_bytes:
            return False
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            return sha256(read_range(descriptor, 0, now.size_bytes + 1)).digest() == self.content_hash
        finally:
            os.close(descriptor)


def delete_file(location: Location, seen: SeenFile) -> bool:
    """Delete a file durably; return False if it does not exist. Blocks.

    A copy with the same bytes that another program puts in its place during the call is deleted too.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
        WorkspaceReadOnly: the file system or its permissions refuse it.
        FileReplaced: the file is not the one that was seen, and is kept; or it is replaced repeatedly by copies.
    """
    deleted = False
    for _ in range(MOST_REPLACEMENTS):
        try:
            if not _delete_once(location, seen):
                return deleted
        except FileReplaced:
            if deleted:
                return True
            raise
        deleted = True
        if stat_file(location) is None:
            return True
    raise FileReplaced(location.path)


def _delete_once(location: Location, seen: SeenFile) -> bool:
    try:
        folder = open_directory(location.root, location.parts[:-1])
    except FileNotFound:
        return False
    name = location.parts[-1]
    try:
        with file_errors(location.path):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise PathNotAllowed(location.path, "it is a link, a folder, a device or a pipe, not a regular file")
            if not seen.is_named(name, folder):
                raise FileReplaced(location.path, _KEPT)
            _unlink(location, seen, folder)
            os.fsync(folder)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def _unlink(location: Location, seen: SeenFile, folder: int) -> None:
    name = location.parts[-1]
    aside = f"{_PREFIX}{name}{_SUFFIX}"
    if len(os.fsencode(aside)) > _MOST_NAME_BYTES:
        os.unlink(name, dir_fd=folder)
        return
    _put_back(aside, folder)
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    try:
        is_seen = seen.is_named(aside, folder)
    except BaseException:
        _put_back(aside, folder)
        raise
    if not is_seen:
        _put_back(aside, folder)
        raise FileReplaced(location.path, _KEPT)
    os.unlink(aside, dir_fd=folder)


def restore_files(root: str, folders: Sequence[str]) -> None:
    """Give the files in a folder their names back that a crash during `delete_file` has left under other names.

    Raises:
        OSError: the folder cannot be read or written.
    """
    try:
        folder = open_directory(root, folders)
    except (FileNotFound, PathNotAllowed):
        return
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(_SUFFIX)]
        for name in names:
            _put_back(name, folder)
    finally:
        os.close(folder)


def _put_back(aside: str, folder: int) -> None:
    put_back(aside, aside.removeprefix(_PREFIX).removesuffix(_SUFFIX), folder)


def put_back(aside: str, name: str, folder: int, target: int | None = None) -> None:
    """Rename a file to `name`, or to a numbered name if another program has since created a file of this name.

    Does nothing if the file does not exist. `target` is the folder of the new name, if it is another one.
    """
    target = folder if target is None else target
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 -- a name, not a path
    for number in count(1):
        free = name if number == 1 else _numbered(stem, f"-{number}{suffix}")
        with suppress(FileExistsError):
            try:
                _rename_to_free_name(aside, free, folder, target)
            except FileNotFoundError:
                return
            return


def _numbered(stem: str, ending: str) -> str:
    """Return a name with this ending; the stem is cut if the name would be too long."""
    most = _MOST_NAME_BYTES - len(os.fsencode(ending))
    return os.fsencode(stem)[:most].decode(errors="ignore") + ending


def _rename_to_free_name(aside: str, name: str, folder: int, target: int) -> None:
    if Renames().link(folder, aside, target, name):
        os.unlink(aside, dir_fd=folder)
        return
    # Without hard links no call creates a name only if it is free.
    try:
        os.stat(name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=target)
    else:
        raise FileExistsError(name)
