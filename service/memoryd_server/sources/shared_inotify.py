"""One inotify instance for the watchers of all agents, because many systems limit a user to 128 instances.

This module does not import inotify, so that the daemon starts on systems without it.
"""

import threading
from collections.abc import Callable

from memoryd_server.sources.watch_scope import NativeReader, ScopeWatch, WatchScope


class SharedInotify:
    """Open a reader for the first watcher and stop it with the last one. Thread-safe.

    If the reader has died, the next `open` starts a new one. Watchers of the old reader find it dead and call `open`
    again.
    """

    def __init__(self, open_native: Callable[[], NativeReader]) -> None:
        self._open_native = open_native
        self._lock = threading.Lock()
        self._reader: NativeReader | None = None
        self._users: dict[NativeReader, int] = {}

    def open(self) -> NativeReader:
        """Return a reader for one watcher, which stops the reader when it no longer needs it.

        Raises:
            OSError: no inotify instance is available.
        """
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._reader = self._open_native()
            self._users[self._reader] = self._users.get(self._reader, 0) + 1
            return _Lease(self._reader, self._release)

    def _release(self, reader: NativeReader) -> None:
        with self._lock:
            self._users[reader] -= 1
            if self._users[reader]:
                return
            del self._users[reader]
            if self._reader is reader:
                self._reader = None
        # Outside the lock, because it waits for the reader's thread, which may be calling a callback.
        reader.stop()


class _Lease:
    """The share of one watcher in the reader. Callbacks of other watchers are not affected by its `stop`."""

    def __init__(self, reader: NativeReader, release: Callable[[NativeReader], None]) -> None:
        self._reader = reader
        self._release_reader = release
        self._lock = threading.Lock()
        self._stopped = False

    def watch(self, scope: WatchScope, on_change: Callable[[], None]) -> ScopeWatch:
        """Return a watch of `scope`, not started. The caller also stops it: `stop` of the lease does not."""
        return self._reader.watch(scope, lambda: self._notify(on_change))

    def _notify(self, on_change: Callable[[], None]) -> None:
        # The reader's thread continues for other watchers, so only this check prevents a late call of `on_change`.
        with self._lock:
            if not self._stopped:
                on_change()

    def is_alive(self) -> bool:
        """Return whether events still arrive."""
        return not self._stopped and self._reader.is_alive()

    def stop(self) -> None:
        """Return the reader, once. `on_change` is not called afterwards."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._release_reader(self._reader)
