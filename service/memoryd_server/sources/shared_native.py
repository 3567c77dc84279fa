"""One native reader for the watchers of all agents: the system gives a user 128 inotify instances, often."""

import threading
from collections.abc import Callable

from memoryd_server.sources.watch_scope import Scope
from memoryd_server.sources.watch_state import NativeReader, Watch


class SharedNative:
    """Opens a reader for the first watcher and ends it with the last. Thread-safe.

    Who comes after the reader has died gets a new one; those who had the old one find it dead and come again.
    """

    def __init__(self, open_native: Callable[[], NativeReader]) -> None:
        self._open_native = open_native
        self._lock = threading.Lock()
        self._reader: NativeReader | None = None
        self._users: dict[NativeReader, int] = {}

    def open(self) -> NativeReader:
        """A reader for one watcher, which stops it when it needs it no more.

        Raises:
            OSError: the system has none to give.
        """
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._reader = self._open_native()
            self._users[self._reader] = self._users.get(self._reader, 0) + 1
            return _Lease(self._reader, self._give_back)

    def _give_back(self, reader: NativeReader) -> None:
        with self._lock:
            self._users[reader] -= 1
            if self._users[reader]:
                return
            del self._users[reader]
            if self._reader is reader:
                self._reader = None
        # Outside the lock: it waits for the reader's thread, which may be telling somebody something.
        reader.stop()


class _Lease:
    """What one watcher has of the reader: the watches that it began, and no others'."""

    def __init__(self, reader: NativeReader, give_back: Callable[[NativeReader], None]) -> None:
        self._reader = reader
        self._give_back = give_back
        self._lock = threading.Lock()
        self._given_back = False

    def watch(self, scope: Scope, on_change: Callable[[], None]) -> Watch:
        """A watch of `scope`, not started. Whoever starts it stops it: giving the reader back does not."""
        return self._reader.watch(scope, lambda: self._tell(on_change))

    def _tell(self, on_change: Callable[[], None]) -> None:
        # The reader's thread goes on for others, so nothing but this keeps it from telling of a last event too late.
        with self._lock:
            if not self._given_back:
                on_change()

    def is_alive(self) -> bool:
        """Whether events still arrive."""
        return not self._given_back and self._reader.is_alive()

    def stop(self) -> None:
        """Gives the reader back, once; after this no change is told."""
        with self._lock:
            if self._given_back:
                return
            self._given_back = True
        self._give_back(self._reader)
