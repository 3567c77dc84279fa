"""Access to files below a root, component by component, without following a symbolic link.

All files of the sources are opened here. Each folder is opened relative to the descriptor of its parent with
O_NOFOLLOW, so a folder that is replaced by a link between two steps is refused. Only the path of the root itself, which
the owner configures, may contain links.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from memoryd_server.errors import FileNotFound, IndexUnavailable, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.model import FileStat, SourceFile, as_signed
from memoryd_server.sources.roots import Location

RE_READS = 3

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO without a writer would otherwise block forever.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _FILE
_REFUSED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENODEV})
_ABSENT = frozenset({errno.ENOENT, errno.ENAMETOOLONG})


class FileTooLarge(OSError):
    """The file has more bytes than the caller allows."""

    def __init__(self, path: str, size_bytes: int, max_bytes: int) -> None:
        super().__init__(f"{path} has {size_bytes} bytes, more than the {max_bytes} allowed")


def open_directory(root: str, parts: Sequence[str], *, create: bool = False) -> int:
    """Return a descriptor of the folder `parts` below `root`. The caller closes it. Create missing folders if `create`.

    Raises:
        PathNotAllowed: a component is a link, or is not a folder.
        FileNotFound: a component is missing.
    """
    with _translate_errors("/".join(parts), workspace=root if create else None):
        return _descend(root, parts, create=create)


def open_file(root: str, parts: Sequence[str]) -> int:
    """Return a descriptor for reading the regular file `parts` below `root`. The caller closes it.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
        FileNotFound: a component is missing.
    """
    return _open("/".join(parts), root, parts)


def read_file(file: Location | SourceFile, max_bytes: int) -> tuple[bytes, FileStat]:
    """Return the bytes of `file` and its stat from before they were read.

    A file that changes during the read is read again, up to three times. Because the stat is the older one, a file that
    keeps changing still differs from it at the next comparison.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
        FileNotFound: the file does not exist.
        FileTooLarge: it has more than `max_bytes` bytes.
    """
    for _ in range(RE_READS):
        data, before, after = _read_once(file, max_bytes)
        if before == after and len(data) == before.size_bytes:
            return data, before
    data, before, _ = _read_once(file, max_bytes)
    return data, before


def stat_file(file: Location | SourceFile) -> FileStat | None:
    """Return the stat of `file`, or None if it is missing. Opens the folders above the file, but not the file.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
    """
    with suppress(FileNotFound), _translate_errors(file.path), _parent(file.root, file.parts) as parent:
        status = os.stat(file.parts[-1], dir_fd=parent, follow_symlinks=False)
        _require_regular(file.path, status)
        return file_stat(status)
    return None


def is_deleted(file: Location, device: int) -> bool:
    """Return whether the folder of `file` is on this device, as the index stores it, and does not contain the file.

    False if the folder is missing or on another device: its drive may not be mounted.

    Raises:
        PathNotAllowed: a component is a link.
    """
    with suppress(FileNotFound), _translate_errors(file.path), _parent(file.root, file.parts) as parent:
        if as_signed(os.fstat(parent).st_dev) != device:
            return False
        try:
            os.stat(file.parts[-1], dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return True
    return False


def is_named_by(file: Location, descriptor: int) -> bool:
    """Return whether the path of `file`, resolved from the root again, names the open file.

    False if the file, or a folder above it, was removed, renamed or replaced since it was opened.

    Raises:
        PathNotAllowed: a component is now a link, or the file is not a regular one.
    """
    found, status = stat_file(file), os.fstat(descriptor)
    return found is not None and (found.device, found.inode) == (status.st_dev, status.st_ino)


def stat_files(files: Sequence[Location]) -> list[FileStat | None]:
    """Return the stat of each file, or None for a file that is missing or cannot be read.

    A folder is opened once for all its files, because a thread waits for the interpreter lock after every system call.
    Only the folders above one file are open at a time.

    Raises:
        IndexUnavailable: the system has no descriptor or no memory for a folder.
    """
    places: dict[tuple[str, ...], list[int]] = {}
    for place, file in enumerate(files):
        places.setdefault((file.root, *file.parts[:-1]), []).append(place)
    stats: list[FileStat | None] = [None] * len(files)
    folders = _OpenFolders()
    try:
        for names in sorted(places):
            parent = folders.enter(names)
            if parent is not None:
                for place in places[names]:
                    stats[place] = _regular_stat(parent, files[place].parts[-1])
    finally:
        folders.close(0)
    return stats


class _OpenFolders:
    """The open folders above one file, from its root; None for one that cannot be opened, below which none is open."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._descriptors: list[int | None] = []

    def enter(self, names: Sequence[str]) -> int | None:
        """Return the descriptor of the last folder of `names`, a root and names below it, or None."""
        shared = 0
        for name, opened in zip(names, self._names, strict=False):
            if name != opened:
                break
            shared += 1
        self.close(shared)
        for name in names[shared:]:
            above = self._descriptors[-1] if self._descriptors else None
            if self._descriptors and above is None:
                return None
            self._names.append(name)
            self._descriptors.append(_folder_or_none(name, above))
        return self._descriptors[-1]

    def close(self, kept: int) -> None:
        """Close all folders but the first `kept`."""
        del self._names[kept:]
        while len(self._descriptors) > kept:
            descriptor = self._descriptors.pop()
            if descriptor is not None:
                os.close(descriptor)


def _folder_or_none(name: str, above: int | None) -> int | None:
    try:
        return os.open(name, _FOLDER) if above is None else _enter(above, name, create=False)
    except OSError as error:
        if error.errno in _SHORTAGES:
            # The files may exist. A search that took them for missing would have no hits, and would not say why.
            raise IndexUnavailable(f"the indexed files cannot be checked: {error.strerror}") from error
        return None


def _regular_stat(parent: int, name: str) -> FileStat | None:
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    return file_stat(status) if stat.S_ISREG(status.st_mode) else None


def open_for_append(location: Location) -> int:
    """Return a descriptor that writes at the end of the file. Create the file and the folders above it if missing.

    The caller closes the descriptor. A read-only disk or folder raises its `OSError`.

    Raises:
        PathNotAllowed: a component is a link, or the file is not a regular one.
        FileNotFound: the workspace is missing.
    """
    with _translate_errors(location.path, workspace=location.root):
        parent = _descend(location.root, location.parts[:-1], create=True)
        try:
            descriptor = os.open(location.parts[-1], _APPEND, 0o666, dir_fd=parent)
        finally:
            os.close(parent)
    return _regular(location.path, descriptor)


def file_stat(status: os.stat_result) -> FileStat:
    """Return the fields of `status` that distinguish two states of a file."""
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)


def _read_once(file: Location | SourceFile, max_bytes: int) -> tuple[bytes, FileStat, FileStat]:
    with open(_open(file.path, file.root, file.parts), "rb") as stream:
        before = file_stat(os.fstat(stream.fileno()))
        if before.size_bytes > max_bytes:
            raise FileTooLarge(file.path, before.size_bytes, max_bytes)
        # One byte more than the size shows that the file grew, without reading an endless file.
        data = stream.read(before.size_bytes + 1)[:max_bytes]
        return data, before, file_stat(os.fstat(stream.fileno()))


def _open(shown: str, root: str, parts: Sequence[str]) -> int:
    with _translate_errors(shown), _parent(root, parts) as parent:
        descriptor = os.open(parts[-1], os.O_RDONLY | _FILE, dir_fd=parent)
    return _regular(shown, descriptor)


def _regular(shown: str, descriptor: int) -> int:
    try:
        _require_regular(shown, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(shown: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PathNotAllowed(shown, "it is a link, a folder, a device or a pipe, not a regular file")


@contextmanager
def _parent(root: str, parts: Sequence[str]) -> Iterator[int]:
    descriptor = _descend(root, parts[:-1])
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _descend(root: str, parts: Sequence[str], *, create: bool = False) -> int:
    descriptor = os.open(root, _FOLDER)
    for part in parts:
        above = descriptor
        try:
            descriptor = _enter(above, part, create=create)
        finally:
            os.close(above)
    return descriptor


def _enter(above: int, part: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(part, 0o777, dir_fd=above)
    return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=above)


@contextmanager
def _translate_errors(shown: str, *, workspace: str | None = None) -> Iterator[None]:
    """Translate `OSError` for links, special files and missing files into the errors of memoryd.

    A missing `workspace` gets a separate message, because it is never created.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            raise PathNotAllowed(shown, "it leads through a link, or is not a regular file") from error
        if error.errno not in _ABSENT:
            raise
        message = f"no file at {shown!r}"
        if workspace is not None and error.filename == workspace:
            message = f"the workspace {shown_path(workspace)} does not exist; create it, or configure another workspace"
        raise FileNotFound(message, metadata={"path": shown}) from error
