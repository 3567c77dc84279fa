"""What a run reports; when it yields.

What a sync run tells while it runs and at its end.

Breaks the making of vectors off for files that have changed meanwhile: they are not to wait for it to end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memoryd_server.embedding import EmbeddingProgress
from memoryd_server.model import FileFailure


class SyncMode(StrEnum):
    """How much a run does."""

    INCREMENTAL = "INCREMENTAL"
    FULL = "FULL"


class SyncPhase(StrEnum):
    """The stage a run is in."""

    PLANNING = "PLANNING"
    INDEXING = "INDEXING"
    EMBEDDING = "EMBEDDING"
    SWAPPING = "SWAPPING"


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The whole state of a run at one moment. `batch_jobs` are those of the provider's that it waits for."""

    phase: SyncPhase = SyncPhase.PLANNING
    completed_files: int = 0
    total_files: int = 0
    completed_chunks: int = 0
    total_chunks: int = 0
    cached_chunks: int = 0
    failed_files: int = 0
    current_path: str = ""
    batch_jobs: int = 0


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """What a run did. Outcomes of passes of one run add up; `files` and `indexed_chunks` are what the index holds now.

    `embedding_reason` says why `pending_embeddings` chunks have no vector; empty when they all have, or want none.
    `yielded` is set when the making of vectors was put off for files that have changed meanwhile.
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
        """Both passes as one; what is counted from the whole tree comes from the later."""
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
    """What a run would do. `refusal` is why it would send nothing to the provider without approval of the cost."""

    files: int
    removed_files: int
    chunks: int
    cache_misses: int
    estimated_tokens: int
    refusal: str = ""


class SyncObserver(Protocol):
    """Follows a run. Called on the writer thread; must return at once."""

    def progress(self, progress: SyncProgress) -> None:
        """The run has come this far. At most some ten a second."""

    def file_failed(self, failure: FileFailure) -> None:
        """A file could not be indexed."""

    def committed(self, revision: int) -> None:
        """A transaction was committed."""


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
                batch_jobs=progress.batch_jobs,
            )
        )


# A slow model may need minutes for a batch: after so long what is made of it is kept, and the rest put off.
PATIENCE_SECONDS = 15.0


class YieldingObserver:
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


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run was asked to do. `confirmed` when it may cost whatever it costs."""

    observer: SyncObserver
    should_stop: Callable[[], bool]
    should_yield: Callable[[], bool]
    confirmed: bool


class HiddenCommits:
    """Passes on what a rebuild tells, but for its commits, which nobody can see before the swap."""

    def __init__(self, observer: SyncObserver) -> None:
        self.progress = observer.progress
        self.file_failed = observer.file_failed

    def committed(self, revision: int) -> None:
        """Keeps silent."""
