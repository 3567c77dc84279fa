"""What a sync run tells while it runs and at its end."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memoryd_server.index.filling import EmbeddingProgress
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
