"""A gate that many may pass at once, or one alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedGate:
    """Readers share it; who wants it alone waits for them, and newcomers wait for who wants it alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._taken = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Together with other readers."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else is inside."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken)
            self._taken = True
            self._changed.wait_for(lambda: self._readers == 0)
        try:
            yield
        finally:
            with self._changed:
                self._taken = False
                self._changed.notify_all()
