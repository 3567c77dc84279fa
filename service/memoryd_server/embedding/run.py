"""One pass over the chunks of an index that have no vector, batch by batch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from memoryd_server.embedding.text_embedder import EmbedResult, TextEmbedder, usual
from memoryd_server.errors import MemorydError, SyncCancelled
from memoryd_server.store import PendingChunk, Writer

CHUNKS_A_BATCH = 128
"""Chunks that are embedded before the next transaction: files that have changed wait until then."""


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """How far an embedding run is. `batch_jobs` is the number of the provider's batch jobs that it waits for."""

    completed_chunks: int = 0
    total_chunks: int = 0
    cached_chunks: int = 0
    batch_jobs: int = 0


class EmbeddingObserver(Protocol):
    """Follows an embedding run. Called on the writer thread; must return immediately."""

    def progress(self, progress: EmbeddingProgress) -> None:
        """Receive how far the run is, after each batch."""

    def committed(self, revision: int) -> None:
        """Receive the index's revision after a transaction was committed."""


@dataclass(frozen=True, slots=True)
class EmbeddingOutcome:
    """What the phase did. `reason` says why chunks are left without a vector; empty when none are.

    `fault` is why the provider made no more in the end, where it is the provider that is at fault.
    """

    embedded: int = 0
    cached: int = 0
    pending: int = 0
    reason: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class BatchJobContext:
    """What batch jobs have to do with a filling: it goes on after `earlier` ones of the same run.

    The texts in `waiting` are in jobs, as `reason` says; with `all_wait`, those of the cache alone get vectors. Those
    of `brought` are in the cache because a job has just made them.
    """

    earlier: EmbeddingOutcome = field(default_factory=EmbeddingOutcome)
    waiting: Collection[bytes] = frozenset()
    brought: Collection[bytes] = frozenset()
    all_wait: bool = False
    reason: str = ""


class EmbeddingRun:
    """Gives the chunks of one index file their vectors.

    `dimensions` is what its vectors have, 0 while there are none; `on_dimensions` hears what they are. `note` hears
    of each state in between, and `hit` of vectors that came from the cache.
    """

    def __init__(
        self,
        maker: TextEmbedder,
        writer: Writer,
        observer: EmbeddingObserver,
        *,
        pending: int,
        dimensions: int,
        on_dimensions: Callable[[int], None],
        note: Callable[[EmbeddingOutcome], None],
        hit: Callable[[int], None],
        should_stop: Callable[[], bool],
        jobs: BatchJobContext | None = None,
    ) -> None:
        self._jobs = jobs or BatchJobContext()
        self._maker = maker
        self._writer = writer
        self._observer = observer
        self._dimensions = dimensions
        self._know_dimensions = on_dimensions
        self._note = note
        self._hit = hit
        self._should_stop = should_stop
        earlier = self._jobs.earlier
        self._outcome = replace(earlier, pending=pending, reason="", fault="")
        self._refused = maker.refusals()
        self._refused_chunks = 0
        self._failure = self._refusal = self._fault = ""
        self._told = False
        self._progress = EmbeddingProgress(total_chunks=pending + earlier.embedded + earlier.cached)

    def fill(self) -> EmbeddingOutcome:
        """Fills in what is missing, each batch in a transaction of its own, until the provider fails.

        Raises:
            SyncCancelled: `should_stop` said so; what was made until then is kept.
            DimensionsChanged: the provider makes vectors of another length now.
        """
        self._tell()
        after, goes_on = 0, True
        while goes_on and (batch := self._next(after)):
            after = batch[-1].chunk_id
            if self._should_stop():
                raise SyncCancelled("the sync run was cancelled; the vectors made until then are kept")
            goes_on = self._embed(batch)
        return self._outcome

    def _next(self, after: int) -> list[PendingChunk]:
        return self._writer.pending_chunks(after, CHUNKS_A_BATCH, everything=False)

    def _embed(self, batch: Sequence[PendingChunk]) -> bool:
        """Whether to go on."""
        held = self._maker.cached([chunk.content_hash for chunk in batch], self._dimensions)
        texts = {
            chunk.content_hash: chunk.text
            for chunk in batch
            if chunk.content_hash not in held
            and chunk.content_hash not in self._refused
            and chunk.content_hash not in self._jobs.waiting
            and not self._jobs.all_wait
        }
        goes_on = True
        try:
            made = self._maker.make(texts, self._dimensions or usual(held.values()), self._should_stop)
        except MemorydError as error:
            made, goes_on = EmbedResult(failure=error.message), False
        self._failure = made.failure or self._failure
        self._fault = "" if self._should_stop() else made.failure
        self._refused.update(made.refused)
        self._store(batch, {**held, **made.vectors}, held)
        return goes_on

    def _store(
        self, batch: Sequence[PendingChunk], vectors: Mapping[bytes, bytes], held: Mapping[bytes, bytes]
    ) -> None:
        rows = {chunk.chunk_id: vectors[chunk.content_hash] for chunk in batch if chunk.content_hash in vectors}
        if rows:
            self._tell_dimensions(usual(rows.values()))
            self._observer.committed(self._writer.put_vectors(rows))
        self._count_refused([chunk for chunk in batch if chunk.chunk_id not in rows])
        cached = sum(chunk.content_hash in held and chunk.content_hash not in self._jobs.brought for chunk in batch)
        self._hit(cached)
        self._outcome = EmbeddingOutcome(
            embedded=self._outcome.embedded + len(rows) - cached,
            cached=self._outcome.cached + cached,
            pending=self._outcome.pending - len(rows),
            reason="; ".join(filter(None, (self._failure, self._jobs.reason, self._refusals()))),
            fault=self._fault,
        )
        self._note(self._outcome)
        self._tell()

    def _tell_dimensions(self, dimensions: int) -> None:
        if not self._told:
            self._told = True
            self._dimensions = dimensions
            self._know_dimensions(dimensions)

    def _count_refused(self, left: Sequence[PendingChunk]) -> None:
        reasons = [self._refused[chunk.content_hash] for chunk in left if chunk.content_hash in self._refused]
        self._refused_chunks += len(reasons)
        self._refusal = reasons[-1] if reasons else self._refusal

    def _refusals(self) -> str:
        return refusal_reason(self._refused_chunks, self._refusal)

    def wait_for(self, jobs: int) -> None:
        """Tells that so many batch jobs are waited for."""
        self._observer.progress(replace(self._progress, batch_jobs=jobs))

    def _tell(self) -> None:
        done = self._outcome.embedded + self._outcome.cached
        self._progress = replace(self._progress, completed_chunks=done, cached_chunks=self._outcome.cached)
        self._observer.progress(self._progress)


def refusal_reason(chunks: int, reason: str) -> str:
    """What is said of chunks whose texts the provider refused, `reason` being that of one of them."""
    if not chunks:
        return ""
    told = "1 chunk was" if chunks == 1 else f"{chunks} chunks were"
    return (
        f"{told} refused by the provider: {reason} (asked for again after a day, or at once by Sync with mode FULL, "
        "memoryd index --force)"
    )
