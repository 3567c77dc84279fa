"""A memory file that is being edited: read, compared, and then replaced, deleted or moved as a whole.

Each operation is one rename, so a process that is killed leaves the old or the new content. After the rename, the file
that was displaced is compared with what was read. If another program saved in between, the rename is undone, and the
operation fails with `ContentChanged`. Nothing is overwritten: a file that cannot get its name back, because another
program has used the name again, gets a numbered name next to it.

One change is lost: a program that opened the file before the rename, keeps it open for longer than 50 ms, and writes to
it after the comparison writes to a file without a name.

Other hard links to a file keep its old content, because the new content is a new file.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memoryd_server.errors import (
    ContentChanged,
    FileNotFound,
    FileReplaced,
    PathNotAllowed,
    PathTaken,
    WorkspaceReadOnly,
)
from memoryd_server.renames import Renames
from memoryd_server.sources import Location, is_named_by, open_directory
from memoryd_server.system import exclusive_lease
from memoryd_server.writing.deletion import put_back
from memoryd_server.writing.files import MOST_REPLACEMENTS, leads_to, read_range, sync_folders, write_all
from memoryd_server.writing.regular_files import (
    content_of,
    copy_metadata,
    digest_now,
    is_listed,
    open_regular,
    require_lock,
)

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_LEASE_ATTEMPTS = 5
_LEASE_PAUSE_SECONDS = 0.01


def aside_name(draft: str) -> str:
    """Return the second temporary name of a write, for the old file where two files cannot be exchanged."""
    return f"{draft}-old"


class EditedFile:
    """An open and locked memory file, and its content when it was read."""

    def __init__(self, location: Location, folder: int, fd: int, data: bytes, renames: Renames) -> None:
        self.data = data
        self._location = location
        self._folder = folder
        self._fd = fd
        self._renames = renames

    @property
    def _name(self) -> str:
        return self._location.parts[-1]

    def replace(self, data: bytes, draft: str, *, mtime_ns: int | None = None) -> None:
        """Replace the content durably. `draft` is the name of a temporary file in the folder.

        The new file has the permissions, the owner, the group and the extended attributes of the old one. `mtime_ns` is
        its time, by default the current one.

        Raises:
            ContentChanged: another program changed, replaced, removed or moved the file; its content is kept.
            OSError: the file system refuses it.
        """
        new = os.open(draft, _NEW, 0o600, dir_fd=self._folder)
        try:
            try:
                self._fill(new, data, mtime_ns)
                # An append must not begin before the comparison: the new file may get another name again.
                require_lock(new, self._location)
                exchanged = self._renames.exchange(self._folder, draft, self._name)
            except BaseException as error:
                _unlink(self._folder, draft)
                if isinstance(error, FileNotFoundError):
                    raise self._changed() from error
                raise
            if exchanged:
                self._settle_exchange(draft, new, data)
            else:
                self._replace_by_rename(draft, new, data)
        finally:
            os.close(new)
        os.fsync(self._folder)

    def _fill(self, new: int, data: bytes, mtime_ns: int | None) -> None:
        """Write a durable content to a new file, with the owner, attributes and permissions of this one."""
        write_all(new, data)
        try:
            copy_metadata(new, self._fd)
        except PermissionError as error:
            words = (
                f"{self._location.path!r} cannot be written: memoryd cannot give the new file the owner, the group and "
                "the attributes of the old one; make the daemon's user the owner of the file"
            )
            raise WorkspaceReadOnly(words, metadata={"path": self._location.path}) from error
        if mtime_ns is not None:
            # Not every file system has every time.
            with suppress(OSError):
                os.utime(new, ns=(mtime_ns, mtime_ns))
        os.fsync(new)

    def _settle_exchange(self, draft: str, new: int, data: bytes) -> None:
        try:
            removed = leads_to(self._location, self._folder) and self._remove(draft)
        except BaseException:
            self._exchange_back(draft, new, data)
            raise
        if not removed:
            self._exchange_back(draft, new, data)
            raise self._changed()

    def _exchange_back(self, draft: str, new: int, data: bytes) -> None:
        try:
            self._renames.exchange(self._folder, draft, self._name)
        except FileNotFoundError:
            # Another program removed the new file.
            put_back(draft, self._name, self._folder)
        self._remove_new(draft, new, data)

    def _remove_new(self, draft: str, new: int, data: bytes) -> None:
        """Remove the new file under the name `draft`, unless another program has changed it."""
        with suppress(FileNotFoundError):
            if _is_named(self._folder, draft, new) and read_range(new, 0, len(data) + 1) == data:
                os.unlink(draft, dir_fd=self._folder)
            else:
                put_back(draft, self._name, self._folder)

    def _replace_by_rename(self, draft: str, new: int, data: bytes) -> None:
        """Replace the content where two files cannot be exchanged.

        A file that another program renames to the path between the two steps is lost. Without hard links, so is a
        change of the content between them.
        """
        aside = aside_name(draft)
        linked = False
        try:
            linked = self._renames.link(self._folder, self._name, self._folder, aside)
            self._require_unchanged(aside if linked else self._name)
            os.rename(draft, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException as error:
            _unlink(self._folder, draft)
            if linked:
                _unlink(self._folder, aside)
            if isinstance(error, FileNotFoundError):
                raise self._changed() from error
            raise
        if not linked:
            return
        try:
            removed = leads_to(self._location, self._folder) and self._remove(aside)
        except BaseException:
            self._rename_back(aside, draft, new, data)
            raise
        if not removed:
            self._rename_back(aside, draft, new, data)
            raise self._changed()

    def _rename_back(self, aside: str, draft: str, new: int, data: bytes) -> None:
        with suppress(FileNotFoundError):
            # Keeps the new file under the name `draft`, in case another program has changed it.
            self._renames.link(self._folder, self._name, self._folder, draft)
        os.rename(aside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._remove_new(draft, new, data)

    def delete(self, draft: str) -> None:
        """Delete the file durably. `draft` is a temporary name in the folder.

        Raises:
            ContentChanged: another program changed, replaced, removed or moved the file; its content is kept.
            OSError: the file system refuses it.
        """
        self._take_away(draft)
        os.fsync(self._folder)

    def _take_away(self, draft: str) -> None:
        try:
            os.rename(self._name, draft, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileNotFoundError as error:
            raise self._changed() from error
        try:
            removed = leads_to(self._location, self._folder) and self._remove(draft)
        except BaseException:
            put_back(draft, self._name, self._folder)
            raise
        if not removed:
            put_back(draft, self._name, self._folder)
            raise self._changed()

    def move(self, target: Location, draft: str) -> None:
        """Rename the file durably. Create the missing folders of `target`. `draft` is a temporary name in the folder.

        Raises:
            PathTaken: a file exists at `target`.
            ContentChanged: another program changed, replaced, removed or moved the file.
            PathNotAllowed: the target leads through a link, or is not a regular file.
            OSError: the file system refuses it.
        """
        folder = open_directory(target.root, target.parts[:-1], create=True)
        try:
            try:
                renamed = self._rename(target, folder)
            except FileNotFoundError as error:
                raise self._changed() from error
            if renamed:
                self._check_moved(target, folder)
            else:
                self._move_by_link(target, folder, draft)
            with suppress(FileNotFoundError):
                sync_folders(target.root, target.parts[:-1])
            os.fsync(self._folder)
        finally:
            os.close(folder)

    def _rename(self, target: Location, folder: int) -> bool:
        """Rename the file to `target`; return False if the system has no step for it that overwrites no file."""
        name = target.parts[-1]
        if self._is_own_name(target, folder):
            os.rename(self._name, name, src_dir_fd=self._folder, dst_dir_fd=folder)
            return True
        try:
            return self._renames.to_free_name(self._folder, self._name, folder, name)
        except FileExistsError as error:
            raise PathTaken(target.path, digest_now(target)) from error

    def _is_own_name(self, target: Location, folder: int) -> bool:
        """Return whether `target` is the file's own name in other letters, in a folder that ignores their case."""
        name = target.parts[-1]
        if name.casefold() != self._name.casefold() or not _is_same(folder, self._folder):
            return False
        with suppress(FileNotFoundError):
            return _is_named(folder, name, self._fd) and not is_listed(folder, name)
        return False

    def _check_moved(self, target: Location, folder: int) -> None:
        name = target.parts[-1]
        try:
            unchanged = self._is_unchanged(name, folder) and self._lead_to_folders(target, folder)
        except BaseException:
            self._move_back(name, folder)
            raise
        if not unchanged:
            self._move_back(name, folder)
            raise self._changed()

    def _move_back(self, name: str, folder: int) -> None:
        with suppress(FileExistsError, FileNotFoundError):
            if self._renames.to_free_name(folder, name, self._folder, self._name):
                return
        put_back(name, self._name, folder, self._folder)

    def _lead_to_folders(self, target: Location, folder: int) -> bool:
        return leads_to(target, folder) and leads_to(self._location, self._folder)

    def _move_by_link(self, target: Location, folder: int, draft: str) -> None:
        """Give the file its new name as a hard link, then remove the old name; or rename it over an empty file."""
        name = target.parts[-1]
        try:
            linked = self._renames.link(self._folder, self._name, folder, name)
            if not linked:
                os.close(os.open(name, _NEW, 0o600, dir_fd=folder))
        except FileExistsError as error:
            raise PathTaken(target.path, digest_now(target)) from error
        except FileNotFoundError as error:
            raise self._changed() from error
        try:
            if linked:
                self._require_folder(target, folder)
                self._take_away(draft)
                return
            os.rename(self._name, name, src_dir_fd=self._folder, dst_dir_fd=folder)
        except BaseException as error:
            self._remove_link(name, folder)
            if isinstance(error, FileNotFoundError):
                raise self._changed() from error
            raise
        self._check_moved(target, folder)

    def _remove_link(self, name: str, folder: int) -> None:
        """Remove the new name of a file that keeps its old one, or the empty file that reserved it."""
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not status.st_size or _is_named(folder, name, self._fd) or self._has_old_name(status):
                os.unlink(name, dir_fd=folder)

    def _has_old_name(self, status: os.stat_result) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False), status)
        return False

    def _remove(self, name: str) -> bool:
        """Delete the displaced file under a temporary name; return False if it is not the file that was read.

        Waits up to 50 ms for other programs to close it: they could still write to it.
        """
        for left in reversed(range(_LEASE_ATTEMPTS)):
            with exclusive_lease(self._fd) as leased:
                if not self._is_unchanged(name):
                    return False
                if leased or not left:
                    os.unlink(name, dir_fd=self._folder)
                    return True
            time.sleep(_LEASE_PAUSE_SECONDS)
        return False

    def _is_unchanged(self, name: str, folder: int | None = None) -> bool:
        """Return whether a file of the folder has the bytes that were read."""
        folder = self._folder if folder is None else folder
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if os.path.samestat(status, os.fstat(self._fd)):
            return read_range(self._fd, 0, len(self.data) + 1) == self.data
        return content_of(folder, name, len(self.data)) == self.data

    def _require_unchanged(self, name: str) -> None:
        if not self._is_unchanged(name):
            raise self._changed()
        self._require_folder(self._location, self._folder)

    def _require_folder(self, location: Location, folder: int) -> None:
        if not leads_to(location, folder):
            raise self._changed()

    def _changed(self) -> ContentChanged:
        return ContentChanged(self._location.path, digest_now(self._location))


@contextmanager
def open_for_edit(location: Location, max_bytes: int, renames: Renames) -> Iterator[EditedFile | None]:
    """Open, lock and read a memory file; yield None if it is missing. The lock is held until the block ends.

    Raises:
        FileNotFound: the workspace does not exist.
        PathNotAllowed: a component is a link, or the file is not a regular one, or has more than `max_bytes` bytes.
        FileBusy: another program holds its lock.
        FileReplaced: another program replaces it repeatedly.
        OSError: the file system or its permissions refuse to open it for writing.
    """
    for _ in range(MOST_REPLACEMENTS):
        folder = _open_folder(location)
        if folder is None:
            yield None
            return
        try:
            fd = open_regular(location, folder)
            if fd is None:
                yield None
                return
            try:
                require_lock(fd, location)
                if is_named_by(location, fd) and leads_to(location, folder):
                    yield EditedFile(location, folder, fd, _read(location, fd, max_bytes), renames)
                    return
            finally:
                os.close(fd)
        finally:
            os.close(folder)
    raise FileReplaced(location.path)


def _open_folder(location: Location) -> int | None:
    try:
        return open_directory(location.root, location.parts[:-1])
    except FileNotFound:
        # Raises the error of a missing workspace.
        os.close(open_directory(location.root, (), create=True))
        return None


def _read(location: Location, fd: int, max_bytes: int) -> bytes:
    data = read_range(fd, 0, max_bytes + 1)
    if len(data) > max_bytes:
        words = f"the file has more than {max_bytes} bytes (memoryd.limits.maxFileBytes)"
        raise PathNotAllowed(location.path, words)
    return data


def _is_same(one: int, other: int) -> bool:
    return os.path.samestat(os.fstat(one), os.fstat(other))


def _is_named(folder: int, name: str, fd: int) -> bool:
    return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(fd))


def _unlink(folder: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)
