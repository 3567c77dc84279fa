"""The last part of a sync: a vector for each chunk that has none, from the cache or from the provider.

What the provider cannot do now stays pending: its chunks are found by keywords, and the next sync tries again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from memoryd_server.embedding.batch_jobs import BatchJobs, BatchJobsState
from memoryd_server.embedding.run import (
    CHUNKS_A_BATCH,
    BatchJobContext,
    EmbeddingObserver,
    EmbeddingOutcome,
    EmbeddingRun,
    refusal_reason,
)
from memoryd_server.embedding.text_embedder import DimensionsChanged, TextEmbedder
from memoryd_server.embedding.usage import UsageRecorder
from memoryd_server.errors import MemorydError, SyncCancelled
from memoryd_server.model import Chunk
from memoryd_server.providers import BatchPolicy, EmbeddingProvider, batches_of
from memoryd_server.store import PendingChunk, VectorCache, VectorIdentity, VectorView, Writer

# A rough measure that errs on the side of more: providers count about four bytes of prose a token.
BYTES_A_TOKEN = 4

_DIMENSIONS = "dimensions"


@dataclass(frozen=True, slots=True)
class EmbeddingCost:
    """Chunks to send to the provider, and about how many tokens they hold."""

    chunks: int = 0
    tokens: int = 0

    def __add__(self, other: "EmbeddingCost") -> "EmbeddingCost":
        return EmbeddingCost(self.chunks + other.chunks, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class CostLimit:
    """Above how many tokens a remote provider is not called without being asked to; 0 means never to ask."""

    confirm_above_tokens: int
    remote: bool

    def refuses(self, tokens: int) -> bool:
        """Whether so many tokens need a confirmation."""
        return self.remote and 0 < self.confirm_above_tokens < tokens


@dataclass(frozen=True, slots=True)
class VectorSetState:
    """What the index's vectors were built with, None when there never were any; how many are missing, and why.

    The provider refused the texts of `refused` of the `pending` chunks.
    """

    stored: VectorIdentity | None = None
    pending: int = 0
    reason: str = ""
    refused: int = 0


class Embedder:
    """Makes the vectors of one index with one provider, through one cache; `usage` counts what that takes.

    By `batches`, many at once go through the provider's batch jobs, where it has any.

    `run` belongs to the writer thread; `state` may be read from any thread and is never older than the last commit.
    """

    def __init__(
        self,
        provider: EmbeddingProvider,
        cache: Callable[[], VectorCache | None],
        guard: CostLimit,
        usage: UsageRecorder | None = None,
        *,
        batches: BatchPolicy | None = None,
    ) -> None:
        self.provider = provider
        api = batches_of(provider)
        self._jobs = None
        if batches is not None and batches.enabled and api is not None:
            self._jobs = BatchJobs(provider, api, batches, cache)
        self._usage = usage or UsageRecorder(cache)
        self._usage.watch(provider)
        self._maker = TextEmbedder(provider, cache)
        self._guard = guard
        self.state = VectorSetState()
        self._agreed = False
        self.fault = ""
        """Why the provider failed in the last run; empty when it did not."""

    def refresh(self) -> None:
        """Have the provider look again at what it needs on this machine. Blocks."""
        self.provider.refresh()

    def look(self, vectors: VectorView, reason: str = "") -> None:
        """Takes the state from the index, at start and after a swap; `reason` says why vectors are missing."""
        refusals = self._refusals(vectors)
        reason = reason or refusal_reason(len(refusals), refusals[-1] if refusals else "")
        self.state = VectorSetState(_stored(vectors), vectors.count_pending(), reason, len(refusals))

    def _refusals(self, vectors: VectorView) -> list[str]:
        """Return why the provider refused the text, for each chunk without a vector whose text it refused."""
        refused = self._maker.refusals()
        return [refused[text] for text in vectors.pending_hashes() if text in refused] if refused else []

    @property
    def identity(self) -> VectorIdentity:
        """What the vectors are made with, as far as it is known: a server's dimensions are those of its last vector."""
        return self._maker.identity

    def saw(self, dimensions: int) -> None:
        """A question's vector of this length has just been made."""
        self._maker.saw(dimensions)

    def run(
        self,
        writer: Writer,
        observer: EmbeddingObserver,
        *,
        confirmed: bool,
        beside: bool = False,
        should_stop: Callable[[], bool],
    ) -> EmbeddingOutcome:
        """Fills in what is missing, batch by batch, each in a transaction of its own.

        `beside` is a file that no search reads yet: the state stays that of the file which answers, until `look`.

        Raises:
            SyncCancelled: `should_stop` said so; what was made until then is kept, in the index and in the cache.
        """
        self.refresh()
        by_jobs = self._jobs is not None and not beside
        # What was agreed to holds until it is done, over passes that are broken off for files that have changed.
        confirmed = confirmed or (self._agreed and by_jobs)
        self._agreed = confirmed and by_jobs
        phase = _Phase(
            self,
            self._maker,
            writer,
            observer,
            confirmed=confirmed,
            beside=beside,
            should_stop=should_stop,
            jobs=self._jobs,
        )
        self.fault = ""
        try:
            done = phase.run()
        finally:
            self._usage.save()
        writer.measure_vector_centre()
        self._agreed = False
        self.fault = done.fault
        if not beside:
            refused = len(self._refusals(writer)) if done.pending else 0
            self.state = replace(self.state, pending=done.pending, reason=done.reason, refused=refused)
        return done

    @property
    def batches(self) -> BatchJobsState:
        """How the batch jobs fare."""
        return BatchJobsState() if self._jobs is None else self._jobs.state

    def needs_batch_jobs(self, vectors: VectorView) -> bool:
        """Whether so much of an index is without a vector that batch jobs are to make them."""
        jobs = self._jobs
        return jobs is not None and (bool(jobs.hashes()) or jobs.are_due(self.price_index(vectors).chunks))

    def job_hashes(self) -> set[bytes]:
        """The texts, by content hash, that batch jobs under way are to bring."""
        return set() if self._jobs is None else self._jobs.hashes()

    def ask(self, should_stop: Callable[[], bool]) -> None:
        """Has the provider make one vector, retries and all.

        Raises:
            EmbeddingUnavailable, EmbeddingQuotaExceeded: it makes none.
        """
        self._maker.look_again(should_stop)

    def hit(self, count: int) -> None:
        """So many vectors have come from the cache."""
        self._usage.hit(self.provider, count)

    def remembers(self, chunks: int) -> bool:
        """Whether the cache keeps the vectors of so many chunks."""
        return self._maker.remembers(chunks)

    def remark(self, why: str) -> None:
        """Adds to the reason why vectors are missing."""
        self.note(self.state.pending, "; ".join(filter(None, (self.state.reason, why))))

    def note(self, pending: int, reason: str = "") -> None:
        """So many chunks of the index that answers are without a vector now."""
        self.state = replace(self.state, pending=pending, reason=reason)

    def refusal(self, tokens: int) -> str:
        """Why so many tokens are not sent unless Sync(FULL) asks for it; empty when they may be."""
        if not self._guard.refuses(tokens):
            return ""
        return (
            f"about {tokens:,} tokens would be sent to {self.provider.spec.provider}, more than "
            f"memoryd.confirmAboveTokens; call Sync with mode FULL (memoryd index --force) to go ahead"
        )

    def price_index(self, vectors: VectorView) -> EmbeddingCost:
        """What the chunks of an index would cost that a sync would send: neither in it nor in the cache nor refused."""
        after, price = 0, EmbeddingCost()
        everything = not self.fits(vectors)
        # What is in a batch job has been paid for.
        known = self.job_hashes() | set(() if everything else self._maker.refusals())
        while batch := vectors.pending_chunks(after, CHUNKS_A_BATCH, everything=everything):
            after = batch[-1].chunk_id
            price += self.price([chunk for chunk in batch if chunk.content_hash not in known])
        return price

    def price(self, batch: Sequence[PendingChunk | Chunk]) -> EmbeddingCost:
        """What these chunks would cost that are not in the cache."""
        held = self._maker.cached([chunk.content_hash for chunk in batch], self.identity.dimensions)
        missing = {chunk.content_hash: chunk.text for chunk in batch if chunk.content_hash not in held}
        return EmbeddingCost(
            len(missing), sum(-(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN) for text in missing.values())
        )

    def fits(self, vectors: VectorView) -> bool:
        """Whether the vectors of an index are the provider's, as far as that is known."""
        stored = _stored(vectors)
        return stored is not None and not stored.differences(self.identity)


class _Phase:
    """One run over one index file."""

    def __init__(
        self,
        embedder: Embedder,
        maker: TextEmbedder,
        writer: Writer,
        observer: EmbeddingObserver,
        *,
        confirmed: bool,
        beside: bool,
        should_stop: Callable[[], bool],
        jobs: BatchJobs | None,
    ) -> None:
        self._jobs = jobs
        self._embedder = embedder
        self._maker = maker
        self._writer = writer
        self._observer = observer
        self._confirmed = confirmed
        self._beside = beside
        self._should_stop = should_stop

    def run(self) -> EmbeddingOutcome:
        self._settle_old_dimensions()
        try:
            doubt = self._doubt()
            return self._failed(doubt) if doubt else self._bring_up()
        except DimensionsChanged:
            pass
        try:
            # The provider's new dimensions are known now, and the index has the old ones.
            return self._bring_up()
        except DimensionsChanged:
            return self._failed("the provider's vectors have other dimensions with each call")

    def _failed(self, fault: str) -> EmbeddingOutcome:
        return EmbeddingOutcome(pending=self._pending, reason=fault, fault=fault)

    def _settle_old_dimensions(self) -> None:
        """Notes the dimensions where they were not known when the identity was written."""
        stored = _stored(self._writer)
        if stored is not None and stored.dimensions:
            self._know(stored)

    def _doubt(self) -> str:
        """Why it is not known whether the vectors are outdated; empty when it is.

        Other dimensions of one question's vector could be a fault: before all vectors go, the provider is asked again.
        """
        stored, dimensions = _stored(self._writer), self._embedder.provider.spec.dimensions
        differing = (
            {field for field, *_ in stored.differences(self._embedder.identity)} if stored is not None else set()
        )
        if dimensions is not None or differing != {_DIMENSIONS}:
            return ""
        try:
            self._maker.look_again(self._should_stop)
        except MemorydError as error:
            if self._should_stop():
                raise SyncCancelled("the sync run was cancelled; the vectors are as they were") from error
            return error.message
        return ""

    @property
    def _pending(self) -> int:
        fits = self._embedder.fits(self._writer)
        return self._writer.count_pending() if fits else self._writer.count_chunks()

    def _bring_up(self) -> EmbeddingOutcome:
        pending = self._pending
        if not pending:
            return EmbeddingOutcome()
        tokens = 0 if self._confirmed else self._embedder.price_index(self._writer).tokens
        reason = self._embedder.refusal(tokens)
        if reason:
            return EmbeddingOutcome(pending=pending, reason=reason)
        if not self._embedder.fits(self._writer):
            self._begin(pending)
        if self._jobs is None:
            return self._filling(pending).fill()
        if self._beside:
            # Every other sync waits for it, which is not to last for hours: it makes no job.
            held = BatchJobContext(waiting=self._jobs.hashes(), reason=self._jobs.reason)
            return self._filling(pending, held).fill()
        return self._by_jobs(self._jobs)

    def _by_jobs(self, jobs: BatchJobs) -> EmbeddingOutcome:
        """Fills in what batch jobs bring, and directly what is too little for one."""
        jobs.begin()
        done = EmbeddingOutcome()
        while True:
            more = jobs.make(self._texts(jobs), self._should_stop)
            held = BatchJobContext(done, jobs.hashes(), jobs.brought, more, jobs.reason)
            filling = self._filling(self._writer.count_pending(), held)
            done = filling.fill()
            if not jobs.wait(filling.wait_for, self._should_stop):
                return replace(done, reason=done.reason or jobs.reason) if done.pending else done

    def _texts(self, jobs: BatchJobs) -> Iterator[tuple[bytes, str]]:
        """What neither the cache nor a job has, and the provider has not refused; each text once."""
        known = jobs.hashes() | set(self._maker.refusals())
        after = 0
        while batch := self._writer.pending_chunks(after, CHUNKS_A_BATCH, everything=False):
            after = batch[-1].chunk_id
            left = {chunk.content_hash: chunk.text for chunk in batch if chunk.content_hash not in known}
            held = self._maker.cached(list(left), 0)
            known.update(left)
            yield from ((each, text) for each, text in left.items() if each not in held)

    def _begin(self, pending: int) -> None:
        identity = self._embedder.identity
        self._maker.clear_refusals()
        self._writer.begin_vectors(identity)
        if not self._beside:
            self._embedder.state = VectorSetState(identity, pending)

    def _filling(self, pending: int, jobs: BatchJobContext | None = None) -> EmbeddingRun:
        stored = _stored(self._writer) or self._embedder.identity
        return EmbeddingRun(
            self._maker,
            self._writer,
            self._observer,
            pending=pending,
            dimensions=stored.dimensions or self._embedder.identity.dimensions,
            on_dimensions=lambda dimensions: self._know(replace(stored, dimensions=dimensions)),
            note=self._note,
            hit=self._embedder.hit,
            should_stop=self._should_stop,
            jobs=jobs,
        )

    def _know(self, identity: VectorIdentity) -> None:
        if self._writer.vector_identity() != identity:
            self._writer.set_dimensions(identity)
        if not self._beside:
            self._embedder.state = replace(self._embedder.state, stored=identity)

    def _note(self, outcome: EmbeddingOutcome) -> None:
        if not self._beside:
            self._embedder.note(outcome.pending, outcome.reason)


def _stored(vectors: VectorView) -> VectorIdentity | None:
    """What an index's vectors were built with; its older kind tells the dimensions by the vectors alone."""
    identity = vectors.vector_identity()
    if identity is None or identity.dimensions:
        return identity
    return replace(identity, dimensions=vectors.vector_dimensions())
