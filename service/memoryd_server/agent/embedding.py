"""AgentEmbedding: the embedding of one agent: its provider, the vectors of queries, and whether these fit the index.

A query's vector has its own short time limit. A provider that is down, or whose quota is used up, is not called for a
while, so that searches do not wait for it again and again. Any other error, such as the refusal of one text or of the
key, does not affect the next query.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from memoryd_server.agent.config import AgentConfig
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
    EmbeddingOutage,
    EmbeddingQuotaExceeded,
    EmbeddingUnavailable,
    MemorydError,
)
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.providers import (
    PLAIN_TEXT,
    EmbeddingProvider,
    EmbeddingSpec,
    ProviderSelection,
    UnavailableProvider,
)
from memoryd_server.search import SearchMode, SearchQuery
from memoryd_server.store import Difference, ProviderModel, Store, VectorCache, VectorEngineStatus, VectorIdentity

LONGEST_WAIT_SECONDS = 8.0
LEFT_FOR_THE_SEARCH_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
ENOUGH_SECONDS = 1.0
"""A timeout shorter than this is not counted as a failure of the provider."""

REMEMBERED_QUERIES = 512

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """The vector, or the error instead. `fresh` if the provider has just made the vector."""

    vector: Vector | None
    error: MemorydError | None = None
    fresh: bool = False


class QueryEmbedder:
    """Embeds queries with one provider, whose calls run on `threads`. Use it only on the event loop's thread."""

    def __init__(
        self,
        provider: EmbeddingProvider,
        threads: Executor,
        *,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        max_remembered: int = REMEMBERED_QUERIES,
    ) -> None:
        self.provider = provider
        self._longest_wait_seconds, self._first_pause_seconds = longest_wait_seconds, first_pause_seconds
        self._max_remembered = max_remembered
        self._threads = threads
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._pause_seconds = 0.0
        self._paused_until = 0.0
        self._failed_at = 0.0
        self._last_error: MemorydError | None = None

    def known(self, text: str, dimensions: int = 0) -> QueryEmbedding | None:
        """Return the remembered vector, or why the provider is not called for now; None if it has to be called.

        A vector of another length than `dimensions` is not returned; 0 means any length.
        """
        vector = self._known.get(text)
        if vector is not None and dimensions in (0, vector.size):
            self._known.move_to_end(text)
            return QueryEmbedding(vector)
        if time.monotonic() < self._paused_until and self._last_error is not None:
            return QueryEmbedding(None, self._last_error)
        return None

    async def embed(self, text: str, deadline: float, dimensions: int = 0) -> QueryEmbedding:
        """Return the vector of `text`, before `deadline` (in `time.monotonic()`) and within `LONGEST_WAIT_SECONDS`."""
        known = self.known(text, dimensions)
        if known is not None:
            return known
        began = time.monotonic()
        latest = min(deadline - LEFT_FOR_THE_SEARCH_SECONDS, began + self._longest_wait_seconds)
        try:
            vector = await self._ask(text, latest)
            if dimensions not in (0, vector.size):
                await self._check_length(vector, dimensions, latest)
        except (EmbeddingOutage, EmbeddingQuotaExceeded) as error:
            if time.monotonic() < latest or latest - began >= ENOUGH_SECONDS:
                self._failed(error, began)
            return QueryEmbedding(None, error)
        except EmbeddingUnavailable as error:
            return QueryEmbedding(None, error)
        self._pause_seconds = self._paused_until = 0.0
        self._known[text] = vector
        if len(self._known) > self._max_remembered:
            self._known.popitem(last=False)
        return QueryEmbedding(vector, fresh=True)

    async def _check_length(self, vector: Vector, dimensions: int, latest: float) -> None:
        """Return if the provider now makes vectors of this other length for every text.

        Raises:
            EmbeddingUnavailable: only this vector has another length, or that cannot be found out.
            EmbeddingQuotaExceeded: the quota is used up.
        """
        other = await self._ask(PLAIN_TEXT, latest)
        if other.size != vector.size:
            raise EmbeddingUnavailable(
                f"{self.provider.spec.provider}: the vector has {vector.size} dimensions instead of {dimensions}"
            )

    async def _ask(self, text: str, latest: float) -> Vector:
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, self.provider.embed_query, text, latest)
        try:
            async with asyncio.timeout(max(0.0, latest - time.monotonic())):
                return await call
        except TimeoutError:
            waited = self._longest_wait_seconds
            raise EmbeddingOutage(
                f"{self.provider.spec.provider} did not embed the query in time (at most {waited:g} s)"
            ) from None

    def _failed(self, error: MemorydError, began: float) -> None:
        """Do not call the provider for a while, longer after each failure, so that searches do not wait for it.

        A call that began before the last failure counts as the same failure and does not lengthen the pause.
        """
        if began <= self._failed_at:
            return
        self._failed_at = time.monotonic()
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(self._first_pause_seconds, 2 * self._pause_seconds))
        self._paused_until = self._failed_at + self._pause_seconds
        self._last_error = error


_LOCAL = "local"
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
class ProviderProbe:
    """The result of one call of the provider; `error` is empty if it answered."""

    elapsed_seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """The provider of an agent's vectors, and the vectors of its index.

    `requested` is the configured provider, `spec` that of the provider which makes vectors now, None without one;
    `reason` says why it makes none, or why it replaces `fallback_from`. `usage` are calls by provider and model.
    `stored` is what the index's vectors were made with, None if there are none. `resident_bytes` are those of the
    vectors in memory.
    """

    requested: str
    spec: EmbeddingSpec | None
    reason: str
    fallback_from: str
    usage: Mapping[ProviderModel, ProviderUsage]
    stored: VectorIdentity | None
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
        mismatch = (
            f"the index's vectors are not what the provider makes now ({changes}); "
            f"{state.reason or 'the next sync replaces them'}"
        )
        # A provider that does not fix the dimensions may make vectors that fit again.
        is_fixed = spec.dimensions is not None
        cannot = any(field != "dimensions" for field, *_ in differences) or (bool(differences) and is_fixed)
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
        self._kept_fit: _Fit | None = None

    def _new_failover(self, selection: ProviderSelection, now_ms: Callable[[], int]) -> ProviderFailover | None:
        provider = selection.provider
        second = None if selection.fallback is None or selection.requested == _NONE else selection.fallback()
        if provider is None and (second is None or second.provider is None):
            return None
        first = self._embedder(provider or UnavailableProvider(selection.requested, selection.reason))
        if second is None:
            return ProviderFailover(first, now_ms=now_ms)
        if second.provider is None:
            return ProviderFailover(
                first, fallback_problem=f"the fallback {second.requested} cannot be used: {second.reason}"
            )
        return ProviderFailover(first, self._embedder(second.provider), now_ms=now_ms)

    def _embedder(self, provider: EmbeddingProvider) -> Embedder:
        costs = not isinstance(provider, UnavailableProvider) and provider.spec.provider != _LOCAL
        return Embedder(
            provider, self._cache, CostLimit(self._confirm_above_tokens, costs), self.usage, batches=self._batch
        )

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the provider that makes the index's vectors; None without a provider."""
        return None if self.failover is None else self.failover.active

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
            stored=self.state.stored,
            engine=self.store.vector_engine(),
            resident_bytes=self.store.vector_memory_bytes(),
        )

    @property
    def state(self) -> VectorSetState:
        """The state of the index's vectors."""
        return VectorSetState() if self.embedder is None else self.embedder.state

    def pending(self, chunks: int) -> int:
        """Return how many of the index's `chunks` need a vector and have none that can be used.

        All of them if the configured provider cannot be used, or has not made the vectors; none if "auto" is blocked by
        a setting that is not understood.
        """
        if not self.wanted:
            return 0
        if self.embedder is None:
            return chunks if self.selection.requires_vectors else 0
        return chunks if self.mismatches() else self.state.pending

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
        """Request one vector from the provider, before `deadline` in `time.monotonic()` seconds."""
        if self.embedder is None:
            return ProviderProbe(0.0, self.selection.reason)
        provider = self.embedder.provider
        threads = self._threads.of(provider)
        return await asyncio.get_running_loop().run_in_executor(threads, _probe, provider, deadline)

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
        embedder = self.embedder
        if embedder is None:
            reason = self.selection.reason
            error = EmbeddingNotConfigured(
                f"vector search was requested and cannot run: {reason}; use the mode KEYWORD or HYBRID"
            )
            return QueryVector(reason=reason, error=error)
        fit = self._fit(embedder)
        if fit.reason:
            return QueryVector(reason=fit.reason)
        asker, identity, differences = self._query_embedder(embedder.provider), fit.identity, fit.differences
        embedding = asker.known(query.text, fit.dimensions)
        if embedding is None:
            on_wait()
            embedding = await asker.embed(query.text, query.deadline, fit.dimensions)
            if embedding.vector is not None and embedding.fresh:
                embedder.texts.dimensions = embedding.vector.size
            # The length of this vector, or a sync during the call, may have changed what fits.
            identity, differences = self._fit(embedder).identity, self.mismatches()
            if differences and not fit.differences:
                self._on_mismatch()
        if differences:
            return QueryVector(reason=self._mismatch_reason())
        reason = "" if embedding.error is None else embedding.error.message
        return QueryVector(embedding.vector, None if embedding.vector is None else identity, reason, embedding.error)

    def _fit(self, embedder: Embedder) -> _Fit:
        """Return whether the provider's vectors fit those of the index; computed again only after a change."""
        kept = self._kept_fit
        key = (embedder, embedder.state, embedder.provider.spec, embedder.texts.dimensions)
        if kept is None or kept.key != key:
            kept = self._kept_fit = _Fit.of(*key)
        return kept

    def mismatches(self) -> tuple[Difference, ...]:
        """Return (field, the index's value, the provider's value) of each difference; none if there is no vector."""
        embedder = self.embedder
        return () if embedder is None else self._fit(embedder).differences

    def _mismatch_reason(self) -> str:
        return "" if self.embedder is None else self._fit(self.embedder).mismatch_reason

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
            name = provider_and_model(self.embedder.provider.spec)
            reason = self._mismatch_reason()
            found.append(Degradation(DegradationKind.IDENTITY_MISMATCH, name, "keyword leg", reason))
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


def _probe(provider: EmbeddingProvider, deadline: float) -> ProviderProbe:
    began = time.monotonic()
    try:
        provider.embed_query("ping", deadline)
        error = ""
    except MemorydError as failure:
        error = failure.message
    return ProviderProbe(time.monotonic() - began, error)
