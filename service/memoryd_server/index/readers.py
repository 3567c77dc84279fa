"""A small pool of read-only connections, and the gate that a swap closes for a moment."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from memoryd_server.errors import DeadlineTooShort, IndexUnavailable
from memoryd_server.index.connection import open_reader


class ReaderPool:
    """Hands out at most `size` connections to `path`, opened on first use and kept.

    A reader costs about a millisecond to open and some megabytes of page cache to keep. `path` may be changed while the
    pool is closed.
    """

    def __init__(self, path: Path, size: int, open_connection: Callable[[Path], apsw.Connection] = open_reader) -> None:
        self.path = path
        self._size = size
        self._open = open_connection
        self._idle: list[apsw.Connection] = []
        self._changed = threading.Condition()
        self._at_work = 0
        self._closing = False
        self._ended = False
        self._gate = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """A connection for this thread alone until the block ends."""
        with self._permit():
            connection = self._take()
            healthy = False
            try:
                yield connection
                healthy = True
            except (apsw.InterruptError, DeadlineTooShort):
                healthy = True
                raise
            finally:
                self._give_back(connection, healthy=healthy)

    @contextmanager
    def _permit(self) -> Iterator[None]:
        # Not a semaphore: whoever closes the gate must come before the readers that arrive after, or never come at all.
        with self._changed:
            self._changed.wait_for(lambda: not self._closing and self._at_work < self._size)
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _take(self) -> apsw.Connection:
        if self._ended:
            raise IndexUnavailable("the index is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._open(self.path)

    def _give_back(self, connection: apsw.Connection, *, healthy: bool) -> None:
        if healthy:
            self._idle.append(connection)
        else:
            connection.close()

    @property
    def at_rest(self) -> bool:
        """Whether no connection is open."""
        return not self._at_work and not self._idle

    def release(self) -> None:
        """Closes the connections that nobody uses, with their pages; who reads next opens one."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Waits for the readers at work, closes every connection, and lets none open until the block ends."""
        with self._gate:
            try:
                with self._changed:
                    self._closing = True
                    self._changed.wait_for(lambda: self._at_work == 0)
                while self._idle:
                    self._idle.pop().close()
                yield
            finally:
                with self._changed:
                    self._closing = False
                    self._changed.notify_all()

    def close(self) -> None:
        """Waits for the readers at work and closes every connection for good; who comes later is refused."""
        with self.closed():
            self._ended = True
