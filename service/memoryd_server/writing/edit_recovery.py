"""The writes that a crash interrupted between their record and its end.

Each step of a write leaves one state of the file and of its temporary files, and the state says whether the write is in
effect. A write in effect is marked as done; one that is not is deleted from the history. A change that another program
made during the write gets its place back.

If no temporary file is left and the file has neither the content before nor the one after the write, another program
has changed it since, and the state does not say which. The content before the write is then kept in the history, under
a new record without the key of the request: a repeated request must not be answered with a write that perhaps never
was in effect.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256

from memoryd_server.errors import FileNotFound, HistoryUnavailable, MemorydError
from memoryd_server.renames import Renames
from memoryd_server.sources import Location, Roots, open_directory, resolve_for_append
from memoryd_server.store import WriteHistory, WriteKind, WriteRecord
from memoryd_server.writing.deletion import put_back
from memoryd_server.writing.edited_file import aside_name
from memoryd_server.writing.files import file_errors
from memoryd_server.writing.regular_files import content_of, is_listed, require_lock

_EMPTY = sha256(b"").digest()


class _Place:
    """The folder of a file, with the file and the temporary files of one write.

    `folder` is -1 if it does not exist; then no file does.
    """

    def __init__(self, location: Location, record: WriteRecord, folder: int) -> None:
        self.folder = folder
        self.name = location.parts[-1]
        self.draft = record.draft
        self.aside = aside_name(record.draft)
        self._most = max(record.before_bytes, record.after_bytes)

    def names(self) -> Iterator[str]:
        """Yield the names of the regular files that exist."""
        yield from (name for name in (self.name, self.draft, self.aside) if self.stat(name) is not None)

    def data(self, name: str) -> bytes | None:
        """Return the content of a file, cut if it is larger than those of the write; None if it does not exist."""
        return None if self.folder < 0 else content_of(self.folder, name, self._most)

    def digest(self, name: str) -> bytes | None:
        """Return the SHA-256 of a file, None if it does not exist."""
        data = self.data(name)
        return None if data is None else sha256(data).digest()

    def is_same_file(self, one: str, other: str) -> bool:
        """Return whether two names are hard links to one file."""
        first, second = self.stat(one), self.stat(other)
        return first is not None and second is not None and os.path.samestat(first, second)

    def is_file_of(self, other: "_Place") -> bool:
        """Return whether the file and that of another place are one file."""
        own, theirs = self.stat(self.name), other.stat(other.name)
        return own is not None and theirs is not None and os.path.samestat(own, theirs)

    def is_spelled_as(self, other: "_Place") -> bool:
        """Return whether the files are in one folder, and their names differ only in the case of letters."""
        return self.name.casefold() == other.name.casefold() and os.path.samestat(
            os.fstat(self.folder), os.fstat(other.folder)
        )

    def is_listed(self) -> bool:
        """Return whether the folder lists the file with exactly this name."""
        return is_listed(self.folder, self.name)

    def remove(self, *names: str) -> None:
        """Delete files durably."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.folder)
        os.fsync(self.folder)

    def rename(self, temporary: str) -> None:
        """Rename a temporary file over the file, durably."""
        os.rename(temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)

    def put_back(self, temporary: str) -> None:
        """Give a temporary file the name of the file, or a numbered one if the name is taken. Durable."""
        put_back(temporary, self.name, self.folder)
        os.fsync(self.folder)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the stat of a regular file, None if it does not exist."""
        if self.folder < 0:
            return None
        try:
            status = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        except OSError as error:
            # A name that is too long is that of a write that the file system refused.
            if error.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
                return None
            raise
        return status if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _open_place(location: Location, record: WriteRecord, locked: list[os.stat_result]) -> Iterator[_Place]:
    """Open the folder of a file, and hold the locks of its files until the block ends.

    `locked` are the files that are locked already; the files of this place are added. Two names can be hard links to
    one file, which has one lock.

    Raises:
        FileBusy: another program holds one of the locks.
        FileNotFound: the workspace does not exist; its disk may not be mounted.
    """
    try:
        folder = open_directory(location.root, location.parts[:-1])
    except FileNotFound:
        os.close(open_directory(location.root, (), create=True))
        yield _Place(location, record, -1)
        return
    with ExitStack() as stack:
        stack.callback(os.close, folder)
        place = _Place(location, record, folder)
        for name in place.names():
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            stack.callback(os.close, fd)
            if not any(os.path.samestat(os.fstat(fd), other) for other in locked):
                require_lock(fd, location)
            locked.append(os.fstat(fd))
        yield place


class EditRecovery:
    """The unfinished writes of one history. For one thread at a time."""

    def __init__(self, roots: Roots, history: WriteHistory, renames: Renames, new_id: Callable[[], str]) -> None:
        """Settle the writes below `roots`. `new_id` returns the ids of records that are kept for their content."""
        self._new_id = new_id
        self._roots = roots
        self._history = history
        self._renames = renames
        self._unsettled: dict[str, tuple[WriteRecord, MemorydError | OSError]] = {}

    def issues(self) -> tuple[str, ...]:
        """Return a message for each write that could not be settled yet."""
        return tuple(
            f"{record.path}: a crash interrupted a write, and the next edit settles it: {error}"
            for record, error in self._unsettled.values()
        )

    def settle_all(self) -> None:
        """Settle every unfinished write that can be settled.

        Raises:
            DiskFull, HistoryUnavailable: the history cannot be read.
        """
        self._unsettled.clear()
        for record in self._history.unfinished():
            self.settle(record)

    def settle(self, record: WriteRecord) -> None:
        """Settle one write, or keep it for the next call; then `require` raises why it could not be settled."""
        try:
            with file_errors(record.path):
                applied = self._is_applied(record)
            if applied:
                self._history.finish(record.version_id)
                return
            if applied is None:
                self._keep_content(record)
            self._history.cancel(record.version_id)
        except (MemorydError, OSError) as error:
            self._unsettled[record.version_id] = record, error

    def require(self, path: str) -> None:
        """Raise the error of an unfinished write to a file that could not be settled, if there is one.

        Raises:
            HistoryUnavailable: the file system refuses to settle it.
            MemorydError: as `settle` met it.
        """
        for record, error in self._unsettled.values():
            if path in {record.path, record.moved_from}:
                if isinstance(error, MemorydError):
                    raise error
                words = f"an interrupted write to {path!r} cannot be settled: {error}; check the disk and call again"
                raise HistoryUnavailable(words, metadata={"path": path}) from error

    def _keep_content(self, record: WriteRecord) -> None:
        before = self._history.content(record.before) if record.before is not None else None
        after = self._history.content(record.after) if record.after is not None else None
        if before is not None:
            kept = replace(record, version_id=self._new_id(), key="", request_sha256="", draft="")
            self._history.begin(kept, before, after)
            self._history.finish(kept.version_id)

    def _is_applied(self, record: WriteRecord) -> bool | None:
        """Remove what the write left, and return whether it is in effect; None if that is unknown."""
        location = resolve_for_append(self._roots, record.path)
        locked: list[os.stat_result] = []
        if record.kind is WriteKind.MOVE:
            moved_from = resolve_for_append(self._roots, record.moved_from)
            with _open_place(moved_from, record, locked) as old, _open_place(location, record, locked) as new:
                return _is_moved(record, old, new)
        with _open_place(location, record, locked) as place:
            if place.data(place.aside) is not None:
                return self._without_exchange(record, place)
            if place.data(place.draft) is None:
                now = place.digest(place.name)
                return True if now == record.after else False if now == record.before else None
            if record.before is None:
                return _is_created(record, place)
            if record.after is None:
                return _is_deleted(record, place)
            return self._is_replaced(record, place)

    def _without_exchange(self, record: WriteRecord, place: _Place) -> bool:
        if place.data(place.draft) is not None:
            place.remove(place.draft, place.aside)
            return False
        if place.digest(place.aside) == record.before:
            place.remove(place.aside)
            return True
        if place.digest(place.name) == record.after:
            place.rename(place.aside)
            return False
        place.put_back(place.aside)
        return True

    def _is_replaced(self, record: WriteRecord, place: _Place) -> bool:
        now, draft = place.digest(place.name), place.data(place.draft)
        if now == record.before or draft is None:
            place.remove(place.draft)
            return now == record.after
        if sha256(draft).digest() == record.before:
            place.remove(place.draft)
            return True
        if now == record.after:
            # Another program saved before the exchange.
            if self._renames.exchange(place.folder, place.draft, place.name):
                place.remove(place.draft)
            else:
                place.rename(place.draft)
            return False
        after = self._history.content(record.after) if record.after is not None else None
        if after is not None and after.startswith(draft):
            place.remove(place.draft)
            return False
        place.put_back(place.draft)
        return True


def _is_created(record: WriteRecord, place: _Place) -> bool:
    now = place.digest(place.name)
    if now == _EMPTY != record.after and place.digest(place.draft) == record.after:
        # The empty file reserved the name.
        place.rename(place.draft)
        return True
    created = now == record.after or place.is_same_file(place.name, place.draft)
    place.remove(place.draft)
    return created


def _is_deleted(record: WriteRecord, place: _Place) -> bool:
    if place.digest(place.draft) == record.before:
        place.remove(place.draft)
        return True
    place.put_back(place.draft)
    return False


def _is_moved(record: WriteRecord, old: _Place, new: _Place) -> bool | None:
    if old.data(old.draft) is not None:
        return _is_taken_away(record, old, new)
    moved, left = new.digest(new.name), old.digest(old.name)
    if moved is None or left is None:
        return None if moved == left else left is None
    if new.is_file_of(old):
        if old.is_spelled_as(new):
            return new.is_listed()
        old.remove(old.name)
        return True
    if moved == _EMPTY and left == record.before:
        # The empty file reserved the name.
        new.remove(new.name)
        return False
    return moved == record.before


def _is_taken_away(record: WriteRecord, old: _Place, new: _Place) -> bool:
    """Settle a move in which the file has its new name, and the temporary name in place of the old one."""
    if old.digest(old.draft) == record.before:
        old.remove(old.draft)
        return True
    # Another program saved the file under its old name.
    old.put_back(old.draft)
    if new.digest(new.name) == record.before or new.is_file_of(old):
        new.remove(new.name)
    return False
