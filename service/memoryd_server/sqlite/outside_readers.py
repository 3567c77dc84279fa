"""OutsideReaders: the reader processes of an index, which have to close the file before it is replaced."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from memoryd_server.sqlite.connection import FileIds
from memoryd_server.sqlite.vector_rows import VectorObserver


class OutsideReaders(VectorObserver, Protocol):
    """The reader processes of one index. For the writer thread of the index.

    As a `VectorObserver`, it is told about each commit that changes vectors.
    """

    @property
    def is_idle(self) -> bool:
        """Whether no process has used the index since its memory was released or it was closed."""

    def opened(self, path: Path, ids: FileIds) -> None:
        """Let the processes open this index, as long as the files at its path have these ids."""

    def close(self) -> None:
        """Wait until every process has closed it; none opens it before `opened` is called again. Idempotent."""

    def release_memory(self) -> None:
        """Release the memory of the index in the processes."""


class NoOutsideReaders:
    """No other process reads the index."""

    is_idle = True

    def opened(self, path: Path, ids: FileIds) -> None:
        """Ignored."""

    def close(self) -> None:
        """Ignored."""

    def release_memory(self) -> None:
        """Ignored."""

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Ignored."""

    def reset(self) -> None:
        """Ignored."""


class VectorObservers:
    """Passes each change of vectors to several observers."""

    def __init__(self, observers: Sequence[VectorObserver]) -> None:
        self._observers = observers

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Implement `VectorObserver`."""
        for observer in self._observers:
            observer.apply(added, removed)

    def reset(self) -> None:
        """Implement `VectorObserver`."""
        for observer in self._observers:
            observer.reset()
