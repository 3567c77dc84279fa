"""What a sync run reports during the run and at its end, and when its embedding ends early for changed files."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from memoryd_server.embedding import EmbeddingProgress
from memoryd_server.model import FileFailure


class SyncMode(StrEnum):
    """How much a run does: what has changed, or everything."""

    INCREMENTAL = "INCREMENTAL"
    FULL = "FULL"


class SyncPhase(StrEnum):
    """The phase that a run is in; WAITING until another run has ended and this one can start."""

    WAITING = "WAITING"
    PLANNING = "PLANNING"
    INDEXING = "INDEXING"
    EMBEDDING = "EMBEDDING"
    SWAPPING = "SWAPPING"


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The complete state of a run at one moment.

    `pending_files` is how many files differ from the index and are not processed yet; files that are read again to make
    sure that they have not changed do not count. Tokens are
    estimates of what is sent to a remote provider. `batch_jobs` is the number of jobs that the run waits for.
    """

    phase: SyncPhase = SyncPhase.PLANNING
    completed_files: int = 0
    total_files: int = 0
    pending_files: int = 0
    completed_chunks: int = 0
    total_chunks: int = 0
    cached_chunks: int = 0
    failed_files: int = 0
    current_path: str = ""
    completed_tokens: int = 0
    total_tokens: int = 0
    batch_jobs: int = 0

    @classmethod
    def swapping(cls, files: int, chunks: int) -> Self:
        """Return the progress of a complete rebuild of `files` files and `chunks` chunks, before it is swapped in."""
        return cls(SyncPhase.SWAPPING, files, files, completed_chunks=chunks, total_chunks=chunks)


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """What a run did. Outcomes of a run's passes add up; `files` and `indexed_chunks` are the totals of the index.

    `embedding_reason` says why `pending_embeddings` chunks have no vector; empty if all have one or none is wanted.
    `yielded` is set if embedding was postponed for files that changed during it.
    """

    revision: int
    files: int = 0
    indexed_chunks: int = 0
    indexed_files: int = 0
    unchanged_files: int = 0
    removed_files: int = 0
    failed_files: int = 0
    chunks: int = 0
    cached_chunks: int = 0
    pending_embeddings: int = 0
    embedding_reason: str = ""
    yielded: bool = False
    changed: bool = False

    def followed_by(self, later: "SyncOutcome") -> "SyncOutcome":
        """Return both passes as one; counts of all files are those of the later pass."""
        return SyncOutcome(
            revision=later.revision,
            files=later.files,
            indexed_chunks=later.indexed_chunks,
            indexed_files=self.indexed_files + later.indexed_files,
            unchanged_files=max(0, later.unchanged_files - self.indexed_files),
            removed_files=self.removed_files + later.removed_files,
            failed_files=later.failed_files,
            chunks=self.chunks + later.chunks,
            cached_chunks=self.cached_chunks + later.cached_chunks,
            pending_embeddings=later.pending_embeddings,
            embedding_reason=later.embedding_reason,
            yielded=later.yielded,
            changed=self.changed or later.changed,
        )


@dataclass(frozen=True, slots=True)
class SyncEstimate:
    """What a run would do. `refusal` says why it would send nothing to the provider unless the cost is approved."""

    files: int
    removed_files: int
    chunks: int
    cache_misses: int
    estimated_tokens: int
    refusal: str = ""


class SyncObserver(Protocol):
    """Follows a run. Called on the writer thread; must return immediately."""

    def progress(self, progress: SyncProgress) -> None:
        """Receive the run's progress; at most about ten times a second."""

    def file_failed(self, failure: FileFailure) -> None:
        """Receive a file that could not be indexed."""

    def committed(self, revision: int) -> None:
        """Receive the index's revision after a transaction was committed."""


class EmbeddingReporter:
    """Reports an embedding run to the observer of a sync run, which has indexed `files` files before."""

    def __init__(self, observer: SyncObserver, files: int) -> None:
        self._observer = observer
        self._files = files
        self.committed = observer.committed

    def progress(self, progress: EmbeddingProgress) -> None:
        """Report the embedding run's progress as that of the sync run."""
        self._observer.progress(
            SyncProgress(
                SyncPhase.EMBEDDING,
                self._files,
                self._files,
                completed_chunks=progress.completed_chunks,
                total_chunks=progress.total_chunks,
                cached_chunks=progress.cached_chunks,
                completed_tokens=progress.completed_tokens,
                total_tokens=progress.total_tokens,
                batch_jobs=progress.batch_jobs,
            )
        )


# A slow model may need minutes for a batch. After this time the run may yield during the first batch; the vectors made
# until then are kept.
MIN_EMBEDDING_SECONDS = 15.0


class YieldingObserver:
    """Forwards to an observer, and combines two reasons to stop an embedding run into one stop sign.

    The stop sign returns true if `should_stop` does, or if `should_yield` does and a batch has been committed or has
    taken `MIN_EMBEDDING_SECONDS`: so each attempt makes progress, however often it yields. `yielded` is set if
    `should_yield` stopped the run; `cached` is the number of vectors from the cache until then. `monotonic` is a clock
    in seconds.
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
        self._may_yield_at = monotonic() + MIN_EMBEDDING_SECONDS
        self.cached = 0
        self.yielded = False

    def should_stop(self) -> bool:
        """Return whether to stop, for either reason; stays true once the run yields."""
        self.yielded = self.yielded or (self._monotonic() >= self._may_yield_at and self._should_yield())
        return self.yielded or self._should_stop()

    def progress(self, progress: SyncProgress) -> None:
        """Forward the progress. A run that waits for batch jobs may yield immediately, since it would lose no work."""
        self.cached = progress.cached_chunks
        if progress.batch_jobs:
            self._may_yield_at = self._monotonic()
        self._observer.progress(progress)

    def file_failed(self, failure: FileFailure) -> None:
        """Forward a file that failed."""
        self._observer.file_failed(failure)

    def committed(self, revision: int) -> None:
        """Forward a commit; from then on the run may yield."""
        self._may_yield_at = self._monotonic()
        self._observer.committed(revision)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The observer and stop signs of a run. `confirmed` if it may cost more than the configured limit."""

    observer: SyncObserver
    should_stop: Callable[[], bool]
    should_yield: Callable[[], bool]
    confirmed: bool


class HiddenCommits:
    """Forwards what a rebuild reports, except its commits, which no search can see before the swap."""

    def __init__(self, observer: SyncObserver) -> None:
        self.progress = observer.progress
        self.file_failed = observer.file_failed

    def committed(self, revision: int) -> None:
        """Ignore the commit."""
