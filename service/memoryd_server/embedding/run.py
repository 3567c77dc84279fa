"""EmbeddingRun: embeds the chunks of an index that have no vector, batch by batch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from memoryd_server.embedding.cost import estimate_tokens
from memoryd_server.embedding.text_embedder import EmbedResult, TextEmbedder, most_common_dimensions
from memoryd_server.errors import MemorydError, SyncCancelled
from memoryd_server.store import PendingChunk, VectorWriter

CHUNKS_A_BATCH = 128
"""Chunks embedded per transaction. Files that have changed wait until the next one."""


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """How far an embedding run is.

    `total_tokens` is an estimate of what it sends to the provider, and `completed_tokens` of what got vectors; both 0
    for a local model. `batch_jobs` is the number of the provider's batch jobs that it waits for.
    """

    completed_chunks: int = 0
    total_chunks: int = 0
    cached_chunks: int = 0
    completed_tokens: int = 0
    total_tokens: int = 0
    batch_jobs: int = 0


class EmbeddingObserver(Protocol):
    """Follows an embedding run. Called on the writer thread; must return immediately."""

    def progress(self, progress: EmbeddingProgress) -> None:
        """Receive how far the run is, after each batch."""

    def committed(self, revision: int) -> None:
        """Receive the index's revision after a transaction was committed."""


@dataclass(frozen=True, slots=True)
class EmbeddingOutcome:
    """What an embedding run did. `reason` says why chunks are left without a vector; empty if none are.

    `tokens` is an estimate of the tokens of the `embedded` chunks.
    `fault` is the provider's error at the end of the run; empty if the provider has not failed.
    """

    embedded: int = 0
    cached: int = 0
    pending: int = 0
    reason: str = ""
    fault: str = ""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class BatchJobContext:
    """The state of the batch jobs for an embedding run, which continues `earlier` ones of the same sync run.

    The texts in `waiting` are in jobs, for the given `reason`; if `all_wait`, only texts in the cache get vectors.
    `brought` are texts whose vectors are in the cache because a job has just delivered them.
    """

    earlier: EmbeddingOutcome = field(default_factory=EmbeddingOutcome)
    waiting: Collection[bytes] = frozenset()
    brought: Collection[bytes] = frozenset()
    all_wait: bool = False
    reason: str = ""


class EmbeddingRun:
    """Embeds the chunks of one index file.

    `total_tokens` is an estimate of what the run sends to the provider, 0 for a local model. `dimensions` is the length
    of the index's vectors, 0 if it has none; `on_dimensions` is called with the length of the first vectors,
    `on_outcome` with the outcome after each batch, `on_cache_hits` with the number of vectors from the cache.
    """

    def __init__(
        self,
        texts: TextEmbedder,
        writer: VectorWriter,
        observer: EmbeddingObserver,
        *,
        pending: int,
        total_tokens: int = 0,
        dimensions: int,
        on_dimensions: Callable[[int], None],
        on_outcome: Callable[[EmbeddingOutcome], None],
        on_cache_hits: Callable[[int], None],
        should_stop: Callable[[], bool],
        jobs: BatchJobContext | None = None,
    ) -> None:
        self._jobs = jobs or BatchJobContext()
        self._texts = texts
        self._writer = writer
        self._observer = observer
        self._dimensions = dimensions
        self._on_dimensions = on_dimensions
        self._on_outcome = on_outcome
        self._on_cache_hits = on_cache_hits
        self._should_stop = should_stop
        earlier = self._jobs.earlier
        self._outcome = replace(earlier, pending=pending, reason="", fault="")
        self._refused = texts.refusals()
        self._refused_chunks = 0
        self._failure = self._refusal = self._fault = ""
        self._has_dimensions = False
        self._progress = EmbeddingProgress(
            total_chunks=pending + earlier.embedded + earlier.cached, total_tokens=total_tokens
        )

    def run(self) -> EmbeddingOutcome:
        """Embed all pending chunks, one transaction per batch, until the provider fails.

        Raises:
            SyncCancelled: `should_stop` returned true; vectors made until then are kept.
            DimensionsChanged: the provider returns vectors of another length now.
        """
        # The reason of an earlier run may no longer apply.
        self._on_outcome(self._outcome)
        self._report_progress()
        after, healthy = 0, True
        while healthy and (batch := self._writer.pending_chunks(after, CHUNKS_A_BATCH, everything=False)):
            after = batch[-1].chunk_id
            if self._should_stop():
                raise SyncCancelled("the sync run was cancelled; the vectors made until then are kept")
            healthy = self._embed(batch)
        return self._outcome

    def _embed(self, batch: Sequence[PendingChunk]) -> bool:
        """Embed a batch; return False if the provider failed."""
        cached = self._texts.cached([chunk.content_hash for chunk in batch], self._dimensions)
        missing = {
            chunk.content_hash: chunk.text
            for chunk in batch
            if chunk.content_hash not in cached
            and chunk.content_hash not in self._refused
            and chunk.content_hash not in self._jobs.waiting
            and not self._jobs.all_wait
        }
        healthy = True
        dimensions = self._dimensions or most_common_dimensions(cached.values())
        try:
            result = self._texts.embed(missing, dimensions, self._should_stop)
        except MemorydError as error:
            result, healthy = EmbedResult(failure=error.message), False
        self._failure = result.failure or self._failure
        self._fault = "" if self._should_stop() else result.failure
        self._refused.update(result.refused)
        self._store(batch, {**cached, **result.vectors}, cached)
        return healthy

    def _store(
        self, batch: Sequence[PendingChunk], vectors: Mapping[bytes, bytes], from_cache: Mapping[bytes, bytes]
    ) -> None:
        rows = {chunk.chunk_id: vectors[chunk.content_hash] for chunk in batch if chunk.content_hash in vectors}
        if rows:
            self._set_dimensions(most_common_dimensions(rows.values()))
            self._observer.committed(self._writer.put_vectors(rows))
        self._count_refused([chunk for chunk in batch if chunk.chunk_id not in rows])
        cached = sum(
            chunk.content_hash in from_cache and chunk.content_hash not in self._jobs.brought for chunk in batch
        )
        sent = {
            chunk.content_hash: chunk.text
            for chunk in batch
            if chunk.chunk_id in rows
            and (chunk.content_hash not in from_cache or chunk.content_hash in self._jobs.brought)
        }
        self._on_cache_hits(cached)
        self._outcome = EmbeddingOutcome(
            embedded=self._outcome.embedded + len(rows) - cached,
            cached=self._outcome.cached + cached,
            pending=self._outcome.pending - len(rows),
            reason="; ".join(
                filter(None, (self._failure, self._jobs.reason, refusal_reason(self._refused_chunks, self._refusal)))
            ),
            fault=self._fault,
            tokens=self._outcome.tokens + sum(map(estimate_tokens, sent.values())),
        )
        self._on_outcome(self._outcome)
        self._report_progress()

    def _set_dimensions(self, dimensions: int) -> None:
        if not self._has_dimensions:
            self._has_dimensions = True
            self._dimensions = dimensions
            self._on_dimensions(dimensions)

    def _count_refused(self, left: Sequence[PendingChunk]) -> None:
        reasons = [self._refused[chunk.content_hash] for chunk in left if chunk.content_hash in self._refused]
        self._refused_chunks += len(reasons)
        self._refusal = reasons[-1] if reasons else self._refusal

    def report_batch_jobs(self, jobs: int) -> None:
        """Report that the run waits for this number of batch jobs."""
        self._observer.progress(replace(self._progress, batch_jobs=jobs))

    def _report_progress(self) -> None:
        done = self._outcome.embedded + self._outcome.cached
        self._progress = replace(
            self._progress,
            completed_chunks=done,
            cached_chunks=self._outcome.cached,
            completed_tokens=min(self._outcome.tokens, self._progress.total_tokens),
        )
        self._observer.progress(self._progress)


def refusal_reason(chunks: int, reason: str) -> str:
    """Return the message for chunks whose texts the provider refused, with the `reason` for one of them."""
    if not chunks:
        return ""
    subject = "1 chunk was" if chunks == 1 else f"{chunks} chunks were"
    return (
        f"{subject} refused by the provider: {reason} (sent again after a day, or immediately by Sync with mode FULL, "
        "memoryd index --force)"
    )
