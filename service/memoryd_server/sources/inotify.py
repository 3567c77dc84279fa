"""Native watching on Linux, by inotify.

watchdog's recursive observer watches every folder below a root, including node_modules, and ignores the error when the
watches run out, so that some folders are not watched. `InotifyReader` therefore uses watchdog's inotify wrapper
directly. It watches only the folders of a scope, only for writes (reading a file must not look like a change), and
reports each shortage.

`InotifyThread` ends when it cannot read events. watchdog's own thread loops forever without events when its descriptor
is closed by other code, and leaks its descriptors when it fails. A thread that has ended can be detected and replaced.

Importing this module fails on systems without inotify, such as macOS.
"""

import errno
import itertools
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, InotifyFD, Mask, WatchDescriptor

from memoryd_server.sources.watch_scope import WatchScope

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
    """An inotify descriptor and the thread that reads it, shared by the roots of one watcher.

    Raises:
        OSError: no descriptor (EMFILE) or no thread (EAGAIN) is available.
    """

    def __init__(self) -> None:
        self._reader = InotifyThread()
        self._ids = itertools.count()
        try:
            self._reader.start()
        except RuntimeError as error:
            self._reader.release()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error

    def watch(self, scope: WatchScope, on_change: Callable[[], None]) -> "InotifyWatch":
        """Return a watch of one scope, not started."""
        return InotifyWatch(self, scope, on_change)

    def add(self, path: str, callback: "InotifyWatch") -> tuple[WatchDescriptor, CallbackId]:
        """Watch the folder `path` and return the key for `remove`."""
        if not self._reader.is_reading():
            raise OSError(errno.EBADF, "the inotify thread ended")
        # watchdog ignores EACCES and returns the descriptor -1.
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        # A folder that is seen under two names during a move gets one descriptor; the ids distinguish the two.
        callback_id = CallbackId(next(self._ids))
        return self._reader.add_callback(os.fsencode(path), _MASK, callback, callback_id), callback_id

    def remove(self, keys: list[tuple[WatchDescriptor, CallbackId]]) -> None:
        """Remove watches. Watches that the kernel has already removed are ignored."""
        if self._reader.is_reading():
            self._reader.remove_callbacks(keys)

    def is_alive(self) -> bool:
        """Return whether events are still read."""
        return self._reader.is_reading()

    def stop(self) -> None:
        """Remove all watches and wait for the thread."""
        self._reader.stop()
        if threading.current_thread() is not self._reader:
            self._reader.join()


class InotifyWatch:
    """The watches of one scope. `on_change` is called after new folders are watched, so a rescan misses nothing.

    The `on_*` methods implement watchdog's `WatchCallback` and are called from the reader's thread.
    """

    def __init__(self, reader: InotifyReader, scope: WatchScope, on_change: Callable[[], None]) -> None:
        self._reader = reader
        self._scope = scope
        self._on_change = on_change
        self._lock = threading.Lock()
        self._keys: dict[Parts, tuple[WatchDescriptor, CallbackId]] = {}
        self._folders: dict[WatchDescriptor, Parts] = {}
        self._problem = ""
        self._stopped = False

    def start(self) -> None:
        """Watch the current folders of the scope.

        Raises:
            OSError: the top folder cannot be watched, or the watches ran out; no watch is left.
        """
        try:
            with self._lock:
                self._add_tree(())
        except OSError:
            self.stop()
            raise

    def stop(self) -> None:
        """Remove the watches."""
        with self._lock:
            self._stopped = True
            self._unwatch_tree(())

    def problem(self) -> str:
        """Return why changes are no longer seen, or "" while they are."""
        return self._problem if self._reader.is_alive() else "the inotify thread ended"

    def on_event(self, event: InotifyEvent) -> None:
        """Watch new folders, drop removed ones, and report a relevant change."""
        with self._lock:
            folder = self._folders.get(event.wd)
            counts = folder is not None and bool(event.name) and self._handle((*folder, os.fsdecode(event.name)), event)
        if counts:
            self._on_change()

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Forget a removed folder; the removal of the top folder is reported by `problem`."""
        with self._lock:
            folder = self._folders.pop(wd, None)
            if folder is None or self._stopped:
                return
            self._keys.pop(folder, None)
            if not folder:
                self._problem = "the folder was removed"
        self._on_change()

    def on_queue_overflow(self) -> None:
        """Rebuild the watches, because events of new folders may have been lost."""
        with self._lock:
            self._unwatch_tree(())
            self._watch_tree(())
        self._on_change()

    def _handle(self, parts: Parts, event: InotifyEvent) -> bool:
        if not event.is_directory:
            return self._scope.counts(parts)
        if not self._scope.enters(parts):
            return False
        if event.is_moved_from or event.is_moved_to:
            self._unwatch_tree(parts)
        if event.is_create or event.is_moved_to:
            self._watch_tree(parts)
        return True

    def _watch_tree(self, parts: Parts) -> None:
        try:
            self._add_tree(parts)
        except OSError as error:
            self._problem = f"inotify: {error.strerror}"

    def _add_tree(self, top: Parts) -> None:
        waiting = [] if self._stopped else [top]
        while waiting:
            folder = waiting.pop()
            if folder not in self._keys and self._watch(folder):
                # List the folder after it is watched: a folder created in between is then seen twice rather than never.
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

    def _unwatch_tree(self, top: Parts) -> None:
        if top not in self._keys:
            return
        below = [folder for folder in self._keys if folder[: len(top)] == top]
        keys = {folder: self._keys.pop(folder) for folder in below}
        for folder, (wd, _) in keys.items():
            if self._folders.get(wd) == folder:
                del self._folders[wd]
        self._reader.remove(list(keys.values()))


class InotifyThread(InotifyFD):
    """A thread that reads events until it is stopped, or until its descriptor no longer is an inotify instance.

    Raises:
        OSError: no inotify instance is available (EMFILE).
    """

    def __init__(self) -> None:
        super().__init__()
        self._inode = os.fstat(self._inotify_fd)
        self._release_lock = threading.Lock()
        self._released = False

    def is_reading(self) -> bool:
        """Return whether events still arrive."""
        return self.is_alive() and self._owns_descriptor()

    def run(self) -> None:
        """Read events. Release the descriptors when reading ends without `close`."""
        try:
            while self.should_keep_running() and self._owns_descriptor():
                for event in self.read_events():
                    self.handle_event(event)
        except OSError:
            # Callers detect the end with `is_reading`; this thread has no caller to raise to.
            return
        finally:
            with self._lock:
                self._closed = True
            self.release()

    def close(self) -> None:
        """Remove the watches and wake the thread. The watches of a lost descriptor no longer exist."""
        if self._owns_descriptor():
            super().close()
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                os.write(self._kill_w, b"!")

    def release(self) -> None:
        """Close the descriptors, once."""
        with self._release_lock:
            if self._released:
                return
            self._released = True
        if self._is_ours():
            os.close(self._inotify_fd)
        for descriptor in (self._kill_r, self._kill_w):
            with suppress(OSError):
                os.close(descriptor)

    def _close_resources(self) -> None:
        self.release()

    def _check_inotify_fd(self) -> bool:
        # The descriptor may have been closed and reused for another file while the thread waited.
        return super()._check_inotify_fd() and self._owns_descriptor()

    def _owns_descriptor(self) -> bool:
        return not self._released and self._is_ours()

    def _is_ours(self) -> bool:
        """Return whether the descriptor number is still our inotify instance and not another file of this process."""
        try:
            now = os.fstat(self._inotify_fd)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (self._inode.st_dev, self._inode.st_ino)
