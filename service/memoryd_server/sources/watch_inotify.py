"""Native watching on Linux: one inotify descriptor an agent, and only the watches that are wanted.

watchdog's own recursive observer puts a watch on every folder below a root, node_modules included, and swallows the
error when they run out below it; folders would then go unwatched in silence. So the kernel is asked directly, for
writes only (reading a file must not look like a change), and each shortage is seen.
"""

import errno
import itertools
import os
import threading
from collections.abc import Callable

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, Mask, WatchDescriptor

from memoryd_server.sources.inotify_thread import InotifyThread
from memoryd_server.sources.watch_scope import Scope

Parts = tuple[str, ...]

_MASK = Mask(
    InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_ONLYDIR
    | InotifyConstants.IN_DONT_FOLLOW
)
_SHORTAGES = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class InotifyReader:
    """An inotify descriptor with the thread that reads it, shared by the roots of one watcher.

    Raises:
        OSError: no descriptor (EMFILE) or no thread (EAGAIN) is to be had.
    """

    def __init__(self) -> None:
        self._reader = InotifyThread()
        self._ids = itertools.count()
        try:
            self._reader.start()
        except RuntimeError as error:
            self._reader.release()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error

    def watch(self, scope: Scope, on_change: Callable[[], None]) -> "InotifyWatch":
        """Returns the watch of one scope, not started."""
        return InotifyWatch(self, scope, on_change)

    def add(self, path: str, callback: "InotifyWatch") -> tuple[WatchDescriptor, CallbackId]:
        """Watches the folder `path`; returns what `remove` takes."""
        if not self._reader.is_reading():
            raise OSError(errno.EBADF, "the thread that reads inotify events died")
        # watchdog passes over EACCES and returns a descriptor of -1.
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        # A folder seen under two names while it moves gets one descriptor; the ids keep the two apart.
        callback_id = CallbackId(next(self._ids))
        return self._reader.add_callback(os.fsencode(path), _MASK, callback, callback_id), callback_id

    def remove(self, keys: list[tuple[WatchDescriptor, CallbackId]]) -> None:
        """Takes watches away; those that the kernel has already dropped are passed over."""
        if self._reader.is_reading():
            self._reader.remove_callbacks(keys)

    def is_alive(self) -> bool:
        """Tells whether events are still being read."""
        return self._reader.is_reading()

    def stop(self) -> None:
        """Takes all watches away and waits for the thread."""
        self._reader.stop()
        if threading.current_thread() is not self._reader:
            self._reader.join()


class InotifyWatch:
    """The watches of one scope. `on_change` is called after new folders are watched, so a rescan misses nothing.

    The `on_*` methods are watchdog's `WatchCallback`, called from the reader's thread.
    """

    def __init__(self, reader: InotifyReader, scope: Scope, on_change: Callable[[], None]) -> None:
        self._reader = reader
        self._scope = scope
        self._on_change = on_change
        self._lock = threading.Lock()
        self._keys: dict[Parts, tuple[WatchDescriptor, CallbackId]] = {}
        self._folders: dict[WatchDescriptor, Parts] = {}
        self._trouble = ""
        self._stopped = False

    def start(self) -> None:
        """Watches the scope's folders as they stand.

        Raises:
            OSError: the top cannot be watched, or the watches ran out; none is left behind.
        """
        try:
            with self._lock:
                self._add(())
        except OSError:
            self.stop()
            raise

    def stop(self) -> None:
        """Takes the watches away."""
        with self._lock:
            self._stopped = True
            self._drop(())

    def trouble(self) -> str:
        """Returns why changes are no longer seen, "" while they are."""
        return self._trouble if self._reader.is_alive() else "the thread that reads inotify events died"

    def on_event(self, event: InotifyEvent) -> None:
        """Follows folders that come and go, and reports what counts."""
        with self._lock:
            folder = self._folders.get(event.wd)
            counts = folder is not None and bool(event.name) and self._take((*folder, os.fsdecode(event.name)), event)
        if counts:
            self._on_change()

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Forgets a folder that is gone; the loss of the top is trouble."""
        with self._lock:
            folder = self._folders.pop(wd, None)
            if folder is None or self._stopped:
                return
            self._keys.pop(folder, None)
            if not folder:
                self._trouble = "the folder was removed"
        self._on_change()

    def on_queue_overflow(self) -> None:
        """Starts over: among the lost events may be new folders."""
        with self._lock:
            self._drop(())
            self._follow(())
        self._on_change()

    def _take(self, parts: Parts, event: InotifyEvent) -> bool:
        if not event.is_directory:
            return self._scope.counts(parts)
        if not self._scope.enters(parts):
            return False
        if event.is_moved_from or event.is_moved_to:
            self._drop(parts)
        if event.is_create or event.is_moved_to:
            self._follow(parts)
        return True

    def _follow(self, parts: Parts) -> None:
        try:
            self._add(parts)
        except OSError as error:
            self._trouble = f"inotify: {error.strerror}"

    def _add(self, top: Parts) -> None:
        waiting = [] if self._stopped else [top]
        while waiting:
            folder = waiting.pop()
            if folder not in self._keys and self._watch(folder):
                # Listed only now that it is watched: what is made in between shows in both, never in neither.
                waiting.extend(self._subfolders(folder))

    def _watch(self, folder: Parts) -> bool:
        try:
            key = self._reader.add(os.path.join(self._scope.top, *folder), self)  # noqa: PTH118 -- once a folder
        except OSError as error:
            if not folder or error.errno in _SHORTAGES:
                raise
            return False
        self._keys[folder] = key
        self._folders[key[0]] = folder
        return True

    def _subfolders(self, folder: Parts) -> list[Parts]:
        try:
            with os.scandir(os.path.join(self._scope.top, *folder)) as entries:  # noqa: PTH118 -- once a folder
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return [(*folder, name) for name in names if self._scope.enters((*folder, name))]

    def _drop(self, top: Parts) -> None:
        if top not in self._keys:
            return
        below = [folder for folder in self._keys if folder[: len(top)] == top]
        keys = {folder: self._keys.pop(folder) for folder in below}
        for folder, (wd, _) in keys.items():
            if self._folders.get(wd) == folder:
                del self._folders[wd]
        self._reader.remove(list(keys.values()))
