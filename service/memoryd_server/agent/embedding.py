"""AgentEmbedding: the embedding of one agent: its provider, the vectors of queries, and whether these fit the index.

While the index has vectors of an earlier model, queries are embedded with that model, if the settings still permit it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.query_embedding import QueryEmbedder
from memoryd_server.agent.sync_run import VectorReport
from memoryd_server.agent.threads import ProviderExecutors
from memoryd_server.embedding import (
    BatchJobsState,
    CostLimit,
    Embedder,
    ProviderFailover,
    ProviderUsage,
    UsageRecorder,
    VectorSetState,
    provider_and_model,
)
from memoryd_server.errors import (
    EmbeddingNotConfigured,
    EmbeddingUnavailable,
    MemorydError,
)
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.providers import (
    EmbeddingProvider,
    EmbeddingSpec,
    ProviderProbe,
    ProviderSelection,
    UnavailableProvider,
    probe,
)
from memoryd_server.search import SearchMode, SearchQuery
from memoryd_server.store import Difference, ProviderModel, Store, VectorCache, VectorEngineStatus, VectorIdentity

_NONE = "none"


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query and the identity that it was made with.

    If there is none, `reason` says why, and `error` is what the provider's call raised.
    """

    vector: NDArray[np.float32] | None = None
    identity: VectorIdentity | None = None
    reason: str = ""
    error: MemorydError | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """The provider of an agent's vectors, and the vectors of its index.

    `requested` is the configured provider, `spec` that of the provider which makes vectors now, None without one;
    `reason` says why it makes none, or why it replaces `fallback_from`. `usage` are calls by provider and model.
    `dimensions` are those of its vectors, 0 before the first. `stored` is what the index's vectors were made with, None
    if there are none; `staged` is what their replacement is made with, None if none is being made. `resident_bytes` are
    those of the vectors in memory.
    """

    requested: str
    spec: EmbeddingSpec | None
    reason: str
    fallback_from: str
    usage: Mapping[ProviderModel, ProviderUsage]
    dimensions: int
    stored: VectorIdentity | None
    staged: VectorIdentity | None
    engine: VectorEngineStatus
    resident_bytes: int


# The provider's embedder, the state of the index's vectors, the provider's model, and the length of its last vector.
_FitKey = tuple[Embedder, VectorSetState, EmbeddingSpec, int]


@dataclass(frozen=True, slots=True)
class _Fit:
    """Whether a provider's vectors fit those of an index; valid while `key` is current.

    `key` is the embedder, the state of the index's vectors, the provider's spec, and the length of its last vector.
    `dimensions` is the length of the index's vectors. `reason` says why no query vector can be used; it is empty if the
    provider may make one that fits.
    """

    key: _FitKey
    identity: VectorIdentity
    dimensions: int
    differences: tuple[Difference, ...]
    mismatch_reason: str
    reason: str

    @classmethod
    def of(cls, embedder: Embedder, state: VectorSetState, spec: EmbeddingSpec, last_dimensions: int) -> "_Fit":
        """Return whether the vectors of `embedder` fit an index in this state."""
        key, stored = (embedder, state, spec, last_dimensions), state.stored
        identity = VectorIdentity.of(spec, last_dimensions)
        if stored is None:
            return cls(key, identity, 0, (), "", state.reason or "no chunk has a vector yet; a sync makes them")
        differences = stored.differences(identity)
        changes = "; ".join(f"{field} was {old!r}, is {new!r}" for field, old, new in differences)
        # A provider that does not fix the dimensions may make vectors that fit again.
        is_fixed = spec.dimensions is not None
        cannot = any(field != "dimensions" for field, *_ in differences) or (bool(differences) and is_fixed)
        mismatch = f"the index's vectors are not what the provider makes now ({changes}); {_replacement(state)}"
        return cls(key, identity, stored.dimensions, differences, mismatch, mismatch if cannot else "")


class AgentEmbedding:
    """One agent's embedding. Without a provider it makes no vectors and says why.

    `failover` holds the configured provider and its fallback; queries are embedded by the one that made the index's
    vectors. `on_mismatch` is called if a query's vector shows that the provider has another model now. `now_ms` is
    Unix time. `wanted` is False for an agent without an index of memoryd's own.
    """

    def __init__(
        self,
        config: AgentConfig,
        selection: ProviderSelection,
        store: Store,
        cache: Callable[[], VectorCache | None],
        threads: ProviderExecutors,
        *,
        on_mismatch: Callable[[], None] = lambda: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.selection = selection
        self.wanted = True
        self.store = store
        self._confirm_above_tokens = config.confirm_above_tokens
        self._batch = config.batch
        self._cache = cache
        self.usage = UsageRecorder(cache)
        self.failover = self._new_failover(selection, now_ms)
        self._threads = threads
        self._on_mismatch = on_mismatch
        self._query_embedders: dict[EmbeddingProvider, QueryEmbedder] = {}
        self._kept_fits: dict[Embedder, _Fit] = {}

    def _new_failover(self, selection: ProviderSelection, now_ms: Callable[[], int]) -> ProviderFailover | None:
        provider = selection.provider
        second = None if selection.fallback is None or selection.requested == _NONE else selection.fallback()
        if provider is None and (second is None or second.provider is None):
            return None
        first = self._embedder(provider or UnavailableProvider(selection.requested, selection.reason))
        if second is None:
            return ProviderFailover(first, former=self._former, now_ms=now_ms)
        if second.provider is None:
            problem = f"the fallback {second.requested} cannot be used: {second.reason}"
            return ProviderFailover(first, fallback_problem=problem, former=self._former)
        return ProviderFailover(first, self._embedder(second.provider), former=self._former, now_ms=now_ms)

    def _former(self, stored: VectorIdentity) -> Embedder | None:
        """Return the embedder of an earlier model that the settings still permit. Blocks."""
        provider = self.selection.former(stored.spec())
        return None if provider is None else self._embedder(provider).embedder_of(stored)

    def _embedder(self, provider: EmbeddingProvider) -> Embedder:
        limit = CostLimit.of(provider, self._confirm_above_tokens)
        return Embedder(provider, self._cache, limit, self.usage, batches=self._batch)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the provider that makes the index's vectors; None without a provider."""
        return None if self.failover is None else self.failover.active

    @property
    def providers(self) -> tuple[EmbeddingProvider, ...]:
        """The provider that makes the index's vectors, and the configured one if that is another."""
        failover = self.failover
        return () if failover is None else tuple({e.provider: None for e in (failover.active, failover.primary)})

    def may_use(self, provider: EmbeddingProvider) -> bool:
        """Return whether a provider is the configured one or its fallback."""
        failover = self.failover
        return failover is not None and provider in {e.provider for e in (failover.primary, failover.fallback) if e}

    @property
    def answering(self) -> Embedder | None:
        """The embedder that makes the vectors of queries; None without a provider."""
        return None if self.failover is None else self.failover.answering

    @property
    def fallback(self) -> Degradation | None:
        """Why the fallback provider makes the vectors; None if it does not."""
        failover = self.failover
        if failover is None or failover.active is failover.primary:
            return None
        note = failover.active_failover
        if note is None:
            return None
        since = datetime.fromtimestamp(note.since_ms / 1_000, UTC).isoformat(timespec="seconds")
        wanted = provider_and_model(failover.primary.provider.spec)
        used = provider_and_model(failover.active.provider.spec)
        return Degradation(DegradationKind.EMBEDDING_FALLBACK, wanted, used, f"since {since}: {note.reason}")

    @property
    def batches(self) -> BatchJobsState:
        """The state of the provider's batch jobs."""
        return BatchJobsState() if self.embedder is None else self.embedder.batch_jobs

    @property
    def is_configured(self) -> bool:
        """Whether the settings configure vectors, even if no provider can be used."""
        return self.embedder is not None or self.selection.is_configured

    def _query_embedder(self, provider: EmbeddingProvider) -> QueryEmbedder:
        embedder = self._query_embedders.get(provider)
        if embedder is None:
            embedder = self._query_embedders[provider] = QueryEmbedder(provider, self._threads.of(provider))
        return embedder

    def load_state(self) -> None:
        """Read from the index what its vectors were made with, and probe the vector extension. Blocks."""
        if self.failover is not None:
            with self.store.read() as reader:
                self.failover.load_state(reader)
            self.usage.load()
            self.store.probe_vector_engine()

    def measure(self) -> EmbeddingStatus:
        """Return the status, after the providers have looked for what they need on this machine. Blocks."""
        if self.failover is not None:
            self.failover.refresh()
        embedder, fallback = self.embedder, self.fallback
        reason = self.selection.reason if embedder is None else embedder.provider.problem
        return EmbeddingStatus(
            requested=self.selection.requested,
            spec=None if embedder is None else embedder.provider.spec,
            reason=reason if fallback is None else fallback.reason,
            fallback_from="" if fallback is None else fallback.wanted,
            usage=self.usage.totals(),
            dimensions=0 if embedder is None else _dimensions(embedder),
            stored=self.state.stored,
            staged=self.state.staged,
            engine=self.store.vector_engine(),
            resident_bytes=self.store.vector_memory_bytes(),
        )

    @property
    def state(self) -> VectorSetState:
        """The state of the index's vectors."""
        return VectorSetState() if self.embedder is None else self.embedder.state

    def pending(self, chunks: int) -> int:
        """Return how many of the index's `chunks` need a vector and have none that can be used.

        All of them if the configured provider cannot be used, or has not made any of the vectors; none if "auto" is
        blocked by a setting that is not understood.
        """
        if not self.wanted:
            return 0
        if self.embedder is None:
            return chunks if self.selection.requires_vectors else 0
        return chunks if self.mismatches() and self.state.staged is None else self.state.pending

    def report(self, chunks: int, rebuild: Sequence[Degradation]) -> VectorReport:
        """Return what a run reports of the vectors of an index of `chunks`.

        `rebuild` says why a rebuild of the index waits for approval of its cost; empty if none does.
        """
        if not self.wanted:
            return VectorReport()
        pending = self.pending(chunks)
        return VectorReport(
            pending,
            min(pending, self.state.refused),
            missing=pending > 0 or bool(rebuild),
            degradations=(*rebuild, *self.degradations()),
        )

    async def probe(self, deadline: float) -> ProviderProbe:
        """Request one vector from the provider, before `deadline` in `time.monotonic()` seconds.

        Without a provider, test the vector engine, which is otherwise tested when the index is opened.
        """
        if self.embedder is None:
            await asyncio.to_thread(self.store.probe_vector_engine)
            return ProviderProbe(0.0, self.selection.reason)
        provider = self.embedder.provider
        threads = self._threads.of(provider)
        return await asyncio.get_running_loop().run_in_executor(threads, probe, provider, deadline)

    async def query_vector(self, query: SearchQuery, on_wait: Callable[[], None] = lambda: None) -> QueryVector:
        """Return the vector of a query, if the query wants vector search and the index can answer it.

        `on_wait` is called before the provider is called; not if the vector, or why there is none, is known.

        Raises:
            EmbeddingNotConfigured: only vector search was requested, and there is no provider.
            EmbeddingUnavailable, EmbeddingQuotaExceeded: only vector search was requested, and the provider or the
                index cannot serve it.
        """
        vector = await self._query_vector(query, on_wait)
        if query.mode is SearchMode.VECTOR and vector.vector is None:
            raise vector.error or EmbeddingUnavailable(vector.reason, retry_after_seconds=5.0)
        return vector

    async def _query_vector(self, query: SearchQuery, on_wait: Callable[[], None]) -> QueryVector:
        if query.mode is SearchMode.KEYWORD:
            return QueryVector(reason="only keyword search was requested")
        if self.failover is None:
            reason = self.selection.reason
            error = EmbeddingNotConfigured(
                f"vector search was requested and cannot run: {reason}; use the mode KEYWORD or HYBRID"
            )
            return QueryVector(reason=reason, error=error)
        answering = self.failover.answering
        vector = await self._vector_by(answering, query, on_wait)
        if vector.vector is None and self.failover.answering is not answering:
            # The vectors were replaced during the call.
            vector = await self._vector_by(self.failover.answering, query, lambda: None)
        return vector

    async def _vector_by(self, embedder: Embedder, query: SearchQuery, on_wait: Callable[[], None]) -> QueryVector:
        fit = self._fit(embedder)
        if fit.reason:
            return QueryVector(reason=fit.reason)
        asker, before = self._query_embedder(embedder.provider), fit
        embedding = asker.known(query.text, fit.dimensions)
        if embedding is None:
            on_wait()
            if query.embedding_seconds is None:
                embedding = await asker.embed(query.text, query.deadline, fit.dimensions)
            else:
                embedding = await asker.embed_soon(query.text, query.deadline, fit.dimensions, query.embedding_seconds)
            if embedding.vector is not None and embedding.fresh:
                embedder.texts.dimensions = embedding.vector.size
            # The length of this vector, or a sync during the call, may have changed what fits.
            fit = self._fit(embedder)
            if fit.differences and not before.differences:
                self._on_mismatch()
        if fit.differences:
            return QueryVector(reason=fit.mismatch_reason)
        reason = "" if embedding.error is None else embedding.error.message
        identity = None if embedding.vector is None else fit.identity
        return QueryVector(embedding.vector, identity, reason, embedding.error)

    def _fit(self, embedder: Embedder) -> _Fit:
        """Return whether the provider's vectors fit those of the index; computed again only after a change."""
        kept = self._kept_fits.get(embedder)
        key = (embedder, self.state, embedder.spec, embedder.texts.dimensions)
        if kept is None or kept.key != key:
            kept = self._kept_fits[embedder] = _Fit.of(*key)
        return kept

    def mismatches(self) -> tuple[Difference, ...]:
        """Return (field, the index's value, the provider's value) of each difference; none if there is no vector."""
        embedder = self.embedder
        return () if embedder is None else self._fit(embedder).differences

    def _mismatch(self, embedder: Embedder) -> Degradation:
        """Return what answers while the index has vectors of another model than that of `embedder`, and why."""
        wanted, answering = provider_and_model(embedder.provider.spec), self.answering
        reason = self._fit(embedder).mismatch_reason
        if answering is None or answering is embedder:
            stored = self.state.stored
            if stored is not None and embedder.replaces_identity(stored):
                reason = f"the settings no longer name {provider_and_model(stored.spec())}: {reason}"
            return Degradation(DegradationKind.IDENTITY_MISMATCH, wanted, "keyword leg", reason)
        used = provider_and_model(answering.provider.spec)
        reason = f"{used} answers until the vectors of {wanted} are complete: {reason}"
        return Degradation(DegradationKind.IDENTITY_MISMATCH, wanted, used, reason)

    def degradations(self) -> list[Degradation]:
        """Return each way in which vector search is less than what is configured."""
        found: list[Degradation] = []
        if self.embedder is None:
            if self.selection.is_configured:
                found.append(self._skipped(self.selection.reason))
            return found
        problem, fallback = self.embedder.provider.problem, self.fallback
        if fallback is not None:
            found.append(fallback)
        if self.mismatches():
            found.append(self._mismatch(self.embedder))
        elif self.state.pending:
            reason = self.state.reason or "a sync makes them"
            count = "1 chunk has" if self.state.pending == 1 else f"{self.state.pending} chunks have"
            chunks = f"{count} no vector yet: {reason}"
            found.append(Degradation(DegradationKind.VECTORS_PENDING, "vectors", "keyword leg", chunks))
        if problem:
            found.append(self._skipped(problem))
        missing = self.store.vector_engine().load_error
        if missing:
            found.append(Degradation(DegradationKind.VECTOR_EXTENSION_MISSING, "sqlite-vec", "exact scan", missing))
        return found

    def _skipped(self, reason: str) -> Degradation:
        return Degradation(DegradationKind.VECTOR_LEG_SKIPPED, self.selection.requested, "keyword leg", reason)


def _replacement(state: VectorSetState) -> str:
    """Return what becomes of vectors of another model than the provider's."""
    if state.staged is None:
        return state.reason or "the next sync replaces them"
    count = "1 chunk has" if state.pending == 1 else f"{state.pending} chunks have"
    return f"{count} no new vector yet: {state.reason or 'a sync makes them'}"


def _dimensions(embedder: Embedder) -> int:
    """Return the length of a provider's vectors: as requested, as stored in the index, or as last returned."""
    state, identity = embedder.state, embedder.identity
    known = (each.dimensions for each in (state.stored, state.staged) if each is not None and identity.matches(each))
    return identity.dimensions or next(known, 0)
