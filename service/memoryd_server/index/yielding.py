"""Breaks the making of vectors off for files that have changed meanwhile: they are not to wait for it to end."""

from collections.abc import Callable

from memoryd_server.index.progress import SyncObserver, SyncProgress
from memoryd_server.model import FileFailure

# A slow model may need minutes for a batch: after so long what is made of it is kept, and the rest put off.
PATIENCE_SECONDS = 15.0


class Yielding:
    """An observer that passes everything on, and the stop sign that goes with it.

    The sign shows `should_stop`, and `should_yield` once a first batch has been committed or has taken long: each
    attempt then brings the end nearer, however often it is broken off. `yielded` tells that it was `should_yield` that
    stopped; `cached` how many vectors had come from the cache by then. `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._observer = observer
        self._should_stop = should_stop
        self._should_yield = should_yield
        self._monotonic = monotonic
        self._worth_keeping_at = monotonic() + PATIENCE_SECONDS
        self.cached = 0
        self.yielded = False

    def should_stop(self) -> bool:
        """Whether to stop for either reason; once it was to yield, it stays so."""
        self.yielded = self.yielded or (self._monotonic() >= self._worth_keeping_at and self._should_yield())
        return self.yielded or self._should_stop()

    def progress(self, progress: SyncProgress) -> None:
        """Passes on how far it is. Whoever waits for a batch job has nothing at work that would be lost."""
        self.cached = progress.cached_chunks
        if progress.batch_jobs:
            self._worth_keeping_at = self._monotonic()
        self._observer.progress(progress)

    def file_failed(self, failure: FileFailure) -> None:
        """Passes on that a file failed."""
        self._observer.file_failed(failure)

    def committed(self, revision: int) -> None:
        """Passes on that a batch is in."""
        self._worth_keeping_at = self._monotonic()
        self._observer.committed(revision)
