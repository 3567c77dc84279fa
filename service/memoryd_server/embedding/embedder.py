"""Embedder: the vectors of one index, made with one provider, and their state.

Chunks that the provider cannot embed now stay pending: keyword search finds them, and the next sync tries again. If the
index has vectors of another model, the provider's are made in a staged set, which replaces them when it is complete
(decision 24).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from memoryd_server.embedding.batch_jobs import BatchJobs, BatchJobsState
from memoryd_server.embedding.cost import CostLimit, EmbeddingCost, UsageRecorder, estimate_tokens
from memoryd_server.embedding.run import (
    CHUNKS_A_BATCH,
    BatchJobContext,
    EmbeddingObserver,
    EmbeddingOutcome,
    EmbeddingRun,
    refusal_reason,
)
from memoryd_server.embedding.text_embedder import DimensionsChanged, TextEmbedder
from memoryd_server.model import Chunk
from memoryd_server.providers import BatchPolicy, EmbeddingProvider, EmbeddingSpec, batches_of
from memoryd_server.store import PendingChunk, VectorCache, VectorIdentity, VectorView, VectorWriter, Writer


@dataclass(frozen=True, slots=True)
class VectorSetState:
    """The identity of the index's vectors (None if there never were any), and how many are missing, with the reason.

    `refused` is the number of `pending` chunks whose texts the provider refused. `staged` is the identity of vectors
    that are to replace those of `stored`, while they are being made; then `pending` is how many of these are missing.
    """

    stored: VectorIdentity | None = None
    pending: int = 0
    reason: str = ""
    refused: int = 0
    staged: VectorIdentity | None = None


class Embedder:
    """Embeds the chunks of one index with one provider and one cache; `usage` counts calls and cache hits.

    `batches` says when many chunks are embedded by the provider's batch jobs, if it has them. A model that embeds texts
    in pieces uses none, because a job returns one vector per text. `piece_chars` replaces the model's own.

    `run` belongs to the writer thread; `state` may be read from any thread and is never older than the last commit.
    """

    def __init__(
        self,
        provider: EmbeddingProvider,
        cache: Callable[[], VectorCache | None],
        limit: CostLimit,
        usage: UsageRecorder | None = None,
        *,
        batches: BatchPolicy | None = None,
        piece_chars: int | None = None,
    ) -> None:
        self.provider = provider
        self._cache = cache
        self._usage = usage or UsageRecorder(cache)
        self._usage.watch(provider)
        self.texts = TextEmbedder(provider, cache, piece_chars=piece_chars)
        """Makes the vectors. A query's vector shows the length of the provider's vectors too: `texts.dimensions`."""
        api = batches_of(provider)
        self._jobs = None
        if batches is not None and batches.enabled and api is not None and not self.spec.piece_chars:
            self._jobs = BatchJobs(provider, api, batches, cache)
        self._limit = limit
        self.state = VectorSetState()
        self._confirmed = False
        self.fault = ""
        """Why the provider failed in the last run; empty if it did not."""

    def refresh(self) -> None:
        """Make the provider check again what it needs on this machine. Blocks."""
        self.provider.refresh()

    def load_state(self, vectors: VectorView, reason: str = "") -> None:
        """Read the state from the index, at start and after a swap; `reason` says why vectors are missing."""
        own = self._own_set(vectors)
        refusals = self._refusals(vectors if own is None else own)
        reason = reason or refusal_reason(len(refusals), refusals[-1] if refusals else "")
        pending = vectors.count_chunks() if own is None else own.count_pending()
        staged = None if own is None or own is vectors else _stored_identity(own)
        state = VectorSetState(_stored_identity(vectors), pending, reason, len(refusals), staged)
        if state != replace(self.state, reason=""):
            # Otherwise, the known reason still holds.
            self.state = state

    def _own_set(self, vectors: VectorView) -> VectorView | None:
        """Return the set of an index's vectors that this provider makes, stored or staged; None if there is none."""
        if self.matches(vectors):
            return vectors
        staged = vectors.staged()
        return staged if staged is not None and self.matches(staged) else None

    def _refusals(self, vectors: VectorView) -> list[str]:
        """Return why the provider refused the text, for each chunk without a vector whose text it refused."""
        refused = self.texts.refusals()
        return [refused[text] for text in vectors.pending_hashes() if text in refused] if refused else []

    @property
    def spec(self) -> EmbeddingSpec:
        """The spec of the provider's model, with the length of pieces that is used."""
        return self.texts.spec

    @property
    def identity(self) -> VectorIdentity:
        """The identity of the vectors. If the settings name no dimensions, those of the last vector."""
        return self.texts.identity

    def run(
        self,
        writer: Writer,
        observer: EmbeddingObserver,
        *,
        confirmed: bool,
        rebuilding: bool = False,
        should_stop: Callable[[], bool],
    ) -> EmbeddingOutcome:
        """Embed the pending chunks, one transaction per batch.

        If the index has vectors of another model, they stay in use until this provider's are complete. With
        `rebuilding`, the writer's index has no readers yet: `state` describes the old index until `load_state`.

        Raises:
            SyncCancelled: `should_stop` returned true; vectors made until then stay in the index and in the cache.
        """
        self.refresh()
        replaces = not rebuilding and self.replaces(writer)
        lasting = replaces or (self._jobs is not None and not rebuilding)
        # A confirmation stays valid until the run is complete, also if it yields to changed files.
        confirmed = confirmed or (self._confirmed and lasting)
        self._confirmed = confirmed and lasting
        phase = partial(_Phase, self, observer=observer, confirmed=confirmed, should_stop=should_stop, jobs=self._jobs)
        self.fault = ""
        try:
            if replaces:
                outcome = self._replace_vectors(writer, phase, confirmed=confirmed, should_stop=should_stop)
            else:
                outcome = self._update_vectors(writer, phase, rebuilding=rebuilding)
        finally:
            self._usage.save()
        writer.measure_vector_centre()
        self._confirmed = False
        self.fault = outcome.fault
        return outcome

    def _update_vectors(self, writer: Writer, phase: "_NewPhase", *, rebuilding: bool) -> EmbeddingOutcome:
        if not rebuilding and writer.staged() is not None:
            # The settings have changed back to the model of the stored vectors.
            writer.discard_staged()
            self.state = replace(self.state, staged=None)
        outcome = phase(writer, _Target.REBUILT if rebuilding else _Target.STORED).run()
        if not rebuilding:
            self._record_outcome(writer, outcome)
        return outcome

    def _replace_vectors(
        self, writer: Writer, phase: "_NewPhase", *, confirmed: bool, should_stop: Callable[[], bool]
    ) -> EmbeddingOutcome:
        """Make this provider's vectors in a staged set; replace those of another model when all are made."""
        staged = writer.staged()
        if staged is not None and self.matches(staged):
            if confirmed:
                self.texts.clear_refusals()
        else:
            chunks = writer.count_chunks()
            reason = "" if confirmed else self.refusal(self.tokens_to_send(writer))
            fault = "" if reason else self.texts.probe_fault(should_stop)
            if reason or fault:
                self.state = VectorSetState(_stored_identity(writer), chunks, reason or fault)
                return EmbeddingOutcome(pending=chunks, reason=reason or fault, fault=fault)
            self.texts.clear_refusals()
            staged = writer.stage_vectors(self.identity)
        self.state = replace(self.state, staged=_stored_identity(staged), pending=staged.count_pending(), reason="")
        outcome = phase(staged, _Target.STAGED).run()
        refusals = self.texts.refusals()
        is_complete = not outcome.fault and all(text in refusals for text in staged.pending_hashes())
        if is_complete and staged.vector_dimensions():
            identity = _stored_identity(staged)
            revision = writer.promote_staged()
            self.state = VectorSetState(identity, outcome.pending, outcome.reason)
            phase.keywords["observer"].committed(revision)
            staged = writer
        self._record_outcome(staged, outcome)
        return outcome

    def _record_outcome(self, vectors: VectorView, outcome: EmbeddingOutcome) -> None:
        refused = len(self._refusals(vectors)) if outcome.pending else 0
        self.state = replace(self.state, pending=outcome.pending, reason=outcome.reason, refused=refused)

    def replaces(self, vectors: VectorView) -> bool:
        """Return whether an index has vectors of another model, so that this provider's are made in a staged set."""
        stored = _stored_identity(vectors)
        return stored is not None and self.replaces_identity(stored) and vectors.vector_dimensions() > 0

    def replaces_identity(self, stored: VectorIdentity) -> bool:
        """Return whether vectors of this identity are those of another model or of other settings.

        Not if only the server behind the same model's name returns others: then no query fits the old vectors.
        """
        fields = {field for field, *_ in stored.differences(self.identity)}
        return bool(fields) and (fields != {"dimensions"} or self.provider.spec.dimensions is not None)

    def embedder_of(self, stored: VectorIdentity) -> "Embedder | None":
        """Return an embedder of this provider whose query vectors fit vectors of this identity; None if none do.

        It is this one, or one that splits texts as the version of memoryd did that made the vectors.
        """
        if self.identity.matches(stored):
            return self
        if stored.piece_chars == self.spec.piece_chars:
            return None
        other = Embedder(self.provider, self._cache, self._limit, self._usage, piece_chars=stored.piece_chars)
        return other if other.identity.matches(stored) else None

    @property
    def batch_jobs(self) -> BatchJobsState:
        """The state of the batch jobs."""
        return BatchJobsState() if self._jobs is None else self._jobs.state

    def needs_batch_jobs(self, vectors: VectorView) -> bool:
        """Return whether enough chunks of an index are without a vector for batch jobs, or jobs are running."""
        jobs = self._jobs
        return jobs is not None and (bool(jobs.hashes()) or jobs.are_due(self.price_index(vectors).chunks))

    def job_hashes(self) -> set[bytes]:
        """Return the content hashes of the texts in running batch jobs."""
        return set() if self._jobs is None else self._jobs.hashes()

    def probe(self, should_stop: Callable[[], bool]) -> None:
        """Request one vector from the provider, with retries.

        Raises:
            EmbeddingUnavailable, EmbeddingQuotaExceeded: the provider returns none.
        """
        self.texts.probe(should_stop)

    def count_cache_hits(self, count: int) -> None:
        """Count vectors that came from the cache."""
        self._usage.count_cache_hits(self.provider, count)

    def fits_cache(self, chunks: int) -> bool:
        """Return whether the cache has room for the vectors of this number of chunks."""
        return self.texts.fits_cache(chunks)

    def add_reason(self, reason: str) -> None:
        """Add to the reason why vectors are missing."""
        self.record_pending(self.state.pending, "; ".join(filter(None, (self.state.reason, reason))))

    def record_pending(self, pending: int, reason: str = "") -> None:
        """Record how many chunks of the searched index are without a vector, and why."""
        self.state = replace(self.state, pending=pending, reason=reason)

    def tokens_to_send(self, vectors: VectorView) -> int:
        """Return about how many tokens of an index's chunks a sync would send to another machine.

        If the provider is on this machine, none, and nothing is read.
        """
        return self.price_index(vectors).tokens if self._limit.remote else 0

    def refusal(self, tokens: int) -> str:
        """Return why this number of tokens is sent only by a run with mode FULL; empty if every run may send them."""
        if not self._limit.refuses(tokens):
            return ""
        return (
            f"about {tokens:,} tokens would be sent to {self.provider.spec.provider}, more than "
            f"memoryd.confirmAboveTokens; call Sync with mode FULL (memoryd index --force) to go ahead"
        )

    def price_index(self, vectors: VectorView) -> EmbeddingCost:
        """Return the cost of an index's chunks that a sync would send: not embedded, cached, refused or in a job."""
        after, price = 0, EmbeddingCost()
        own = self._own_set(vectors)
        everything, vectors = own is None, own or vectors
        # Texts in a batch job have been paid for.
        known = self.job_hashes() | set(() if everything else self.texts.refusals())
        while batch := vectors.pending_chunks(after, CHUNKS_A_BATCH, everything=everything):
            after = batch[-1].chunk_id
            price += self.price([chunk for chunk in batch if chunk.content_hash not in known])
        return price

    def price(self, batch: Sequence[PendingChunk | Chunk]) -> EmbeddingCost:
        """Return the cost of those of these chunks that are not in the cache."""
        cached = self.texts.cached([chunk.content_hash for chunk in batch], self.identity.dimensions)
        missing = {chunk.content_hash: chunk.text for chunk in batch if chunk.content_hash not in cached}
        return EmbeddingCost(len(missing), sum(map(estimate_tokens, missing.values())))

    def matches(self, vectors: VectorView) -> bool:
        """Return whether the vectors of an index were made with this provider's identity, as far as it is known."""
        return self.identity.matches(_stored_identity(vectors))


class _Target(Enum):
    """The set of vectors that a phase fills: the stored or the staged one, or that of an index without readers."""

    STORED = auto()
    STAGED = auto()
    REBUILT = auto()


class _Phase:
    """One run over one set of vectors."""

    def __init__(
        self,
        embedder: Embedder,
        writer: VectorWriter,
        target: _Target,
        *,
        observer: EmbeddingObserver,
        confirmed: bool,
        should_stop: Callable[[], bool],
        jobs: BatchJobs | None,
    ) -> None:
        self._jobs = jobs
        self._embedder = embedder
        self._texts = embedder.texts
        self._writer = writer
        self._target = target
        self._observer = observer
        self._confirmed = confirmed
        self._should_stop = should_stop
        self._total_tokens = 0

    def run(self) -> EmbeddingOutcome:
        self._store_missing_dimensions()
        try:
            problem = self._check_dimensions()
            return self._failed(problem) if problem else self._update()
        except DimensionsChanged:
            pass
        try:
            # The provider's new dimensions are known now, and the index has the old ones.
            return self._update()
        except DimensionsChanged:
            return self._failed(
                "the provider returned vectors of different dimensions in successive calls; check the model that its "
                "server runs"
            )

    def _failed(self, fault: str) -> EmbeddingOutcome:
        return EmbeddingOutcome(pending=self._pending, reason=fault, fault=fault)

    def _store_missing_dimensions(self) -> None:
        """Store the dimensions if they were not known when the identity was stored."""
        stored = _stored_identity(self._writer)
        if stored is not None and stored.dimensions:
            self._set_identity(stored)

    def _check_dimensions(self) -> str:
        """Probe the provider if its dimensions differ from the index's; return why the probe failed, or an empty text.

        The other dimensions of a single query's vector could be a fault. The probe confirms them before all vectors are
        deleted.
        """
        stored, dimensions = _stored_identity(self._writer), self._embedder.provider.spec.dimensions
        differing = (
            {field for field, *_ in stored.differences(self._embedder.identity)} if stored is not None else set()
        )
        if dimensions is not None or differing != {"dimensions"}:
            return ""
        return self._texts.probe_fault(self._should_stop)

    @property
    def _pending(self) -> int:
        matches = self._embedder.matches(self._writer)
        return self._writer.count_pending() if matches else self._writer.count_chunks()

    def _update(self) -> EmbeddingOutcome:
        pending = self._pending
        if not pending:
            return EmbeddingOutcome()
        tokens = self._embedder.tokens_to_send(self._writer)
        reason = "" if self._confirmed else self._embedder.refusal(tokens)
        if reason:
            return EmbeddingOutcome(pending=pending, reason=reason)
        self._total_tokens = tokens
        if not self._embedder.matches(self._writer):
            self._begin_vectors(pending)
        if self._jobs is None:
            return self._new_run(pending).run()
        if self._target is _Target.REBUILT:
            # All other syncs wait for a rebuild, so it submits no jobs, which could take hours.
            context = BatchJobContext(waiting=self._jobs.hashes(), reason=self._jobs.reason)
            return self._new_run(pending, context).run()
        return self._run_jobs(self._jobs)

    def _run_jobs(self, jobs: BatchJobs) -> EmbeddingOutcome:
        """Embed by batch jobs, and directly what is too little for a job."""
        jobs.begin_run()
        outcome = EmbeddingOutcome()
        while True:
            more = jobs.submit(self._missing_texts(jobs), self._should_stop)
            context = BatchJobContext(outcome, jobs.hashes(), jobs.brought, more, jobs.reason)
            run = self._new_run(self._writer.count_pending(), context)
            outcome = run.run()
            if not jobs.wait(run.report_batch_jobs, self._should_stop):
                return replace(outcome, reason=outcome.reason or jobs.reason) if outcome.pending else outcome

    def _missing_texts(self, jobs: BatchJobs) -> Iterator[tuple[bytes, str]]:
        """Yield the texts that are neither cached, refused nor in a job, with their hashes; each text once."""
        known = jobs.hashes() | set(self._texts.refusals())
        after = 0
        while batch := self._writer.pending_chunks(after, CHUNKS_A_BATCH, everything=False):
            after = batch[-1].chunk_id
            left = {chunk.content_hash: chunk.text for chunk in batch if chunk.content_hash not in known}
            cached = self._texts.cached(list(left), 0)
            known.update(left)
            yield from ((each, text) for each, text in left.items() if each not in cached)

    def _begin_vectors(self, pending: int) -> None:
        identity = self._embedder.identity
        self._texts.clear_refusals()
        self._writer.begin_vectors(identity)
        if self._target is _Target.STORED:
            self._embedder.state = VectorSetState(identity, pending)
        elif self._target is _Target.STAGED:
            self._embedder.state = replace(self._embedder.state, staged=identity, pending=pending, reason="")

    def _new_run(self, pending: int, jobs: BatchJobContext | None = None) -> EmbeddingRun:
        stored = _stored_identity(self._writer) or self._embedder.identity
        return EmbeddingRun(
            self._texts,
            self._writer,
            self._observer,
            pending=pending,
            total_tokens=self._total_tokens,
            dimensions=stored.dimensions or self._embedder.identity.dimensions,
            on_dimensions=lambda dimensions: self._set_identity(replace(stored, dimensions=dimensions)),
            on_outcome=self._record_outcome,
            on_cache_hits=self._embedder.count_cache_hits,
            should_stop=self._should_stop,
            jobs=jobs,
        )

    def _set_identity(self, identity: VectorIdentity) -> None:
        if self._writer.vector_identity() != identity:
            self._writer.set_dimensions(identity)
        if self._target is _Target.STORED:
            self._embedder.state = replace(self._embedder.state, stored=identity)
        elif self._target is _Target.STAGED:
            self._embedder.state = replace(self._embedder.state, staged=identity)

    def _record_outcome(self, outcome: EmbeddingOutcome) -> None:
        if self._target is not _Target.REBUILT:
            self._embedder.record_pending(outcome.pending, outcome.reason)


_NewPhase = partial[_Phase]


def _stored_identity(vectors: VectorView) -> VectorIdentity | None:
    """Return the identity of an index's vectors, with the dimensions of its vectors if the identity has none."""
    identity = vectors.vector_identity()
    if identity is None or identity.dimensions:
        return identity
    return replace(identity, dimensions=vectors.vector_dimensions())
