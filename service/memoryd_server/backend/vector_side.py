"""What an agent needs to search by meaning: a provider, the vector leg, and the knowledge whether the two fit."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from memoryd_server.backend.config import AgentConfig
from memoryd_server.backend.embed_threads import EmbedThreads
from memoryd_server.backend.query_embedding import EmbeddedQuestion, QueryEmbedder
from memoryd_server.backend.sync_run import VectorReport
from memoryd_server.embed import AbsentProvider, EmbeddingProvider, ProviderStatus, Selection
from memoryd_server.errors import EmbeddingNotConfigured, EmbeddingUnavailable, MemorydError
from memoryd_server.index.batch_jobs import BatchState
from memoryd_server.index.embedding import CostGuard, Embedder, VectorState
from memoryd_server.index.lineup import Lineup, named
from memoryd_server.index.usage import Usage, UsageBook
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.search.query import SearchMode, SearchQuery
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.protocol import Store, VectorCache
from memoryd_server.store.rows import Maker

_LOCAL = "local"
_NONE = "none"


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """The vector of a question and the identity it was made with.

    `reason` says why there is none, and `error` is what asking for it raised.
    """

    vector: NDArray[np.float32] | None = None
    identity: VectorIdentity | None = None
    reason: str = ""
    error: MemorydError | None = None


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """What calling the provider once showed; `error` is empty when it answered."""

    elapsed_seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class VectorUse:
    """What an agent's vectors take: calls of providers by provider and model, and what is resident in memory.

    `resident_form` is `whole`, `bits`, or empty where nothing is resident.
    """

    usage: Mapping[Maker, Usage]
    resident_form: str
    resident_bytes: int


class VectorSide:
    """One agent's vectors. Without a provider it is there all the same, and says why it does nothing.

    `lineup` holds the configured provider and the one that may stand in for it; questions are embedded by whichever
    made the index's vectors. `on_mismatch` hears when a question shows that it has another model now. `now_ms` is Unix
    time. `wanted` is False for an agent without an index of memoryd's own.
    """

    def __init__(
        self,
        config: AgentConfig,
        selection: Selection,
        store: Store,
        cache: Callable[[], VectorCache | None],
        threads: EmbedThreads,
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
        self.usage = UsageBook(cache)
        self.lineup = self._lineup(selection, now_ms)
        self._threads = threads
        self._on_mismatch = on_mismatch
        self._askers: dict[EmbeddingProvider, QueryEmbedder] = {}

    def _lineup(self, selection: Selection, now_ms: Callable[[], int]) -> Lineup | None:
        provider = selection.provider
        second = None if selection.fallback is None or selection.requested == _NONE else selection.fallback()
        if provider is None and (second is None or second.provider is None):
            return None
        first = self._embedder(provider or AbsentProvider(selection.requested, selection.reason))
        if second is None:
            return Lineup(first, now_ms=now_ms)
        if second.provider is None:
            return Lineup(first, no_second=f"the fallback {second.requested} cannot be used: {second.reason}")
        return Lineup(first, self._embedder(second.provider), now_ms=now_ms)

    def _embedder(self, provider: EmbeddingProvider) -> Embedder:
        costs = not isinstance(provider, AbsentProvider) and provider.spec.provider != _LOCAL
        return Embedder(
            provider, self._cache, CostGuard(self._confirm_above_tokens, costs), self.usage, batches=self._batch
        )

    @property
    def embedder(self) -> Embedder | None:
        """Who makes the index's vectors; None without a provider."""
        return None if self.lineup is None else self.lineup.active

    @property
    def stands_in(self) -> Degradation | None:
        """That the fallback makes the vectors, and why; None where it does not."""
        lineup = self.lineup
        note = None if lineup is None else lineup.stands_in
        if lineup is None or note is None:
            return None
        since = datetime.fromtimestamp(note.since_ms / 1_000, UTC).isoformat(timespec="seconds")
        wanted, used = named(lineup.first.provider.spec), named(lineup.active.provider.spec)
        return Degradation(DegradationKind.EMBEDDING_FALLBACK, wanted, used, f"since {since}: {note.reason}")

    @property
    def batches(self) -> BatchState:
        """How the provider's batch jobs fare."""
        return BatchState() if self.embedder is None else self.embedder.batches

    @property
    def is_configured(self) -> bool:
        """Whether the settings ask for vectors, also if no provider can be used."""
        return self.embedder is not None or self.selection.is_configured

    def _asker(self, provider: EmbeddingProvider) -> QueryEmbedder:
        asker = self._askers.get(provider)
        if asker is None:
            asker = self._askers[provider] = QueryEmbedder(provider, self._threads.of(provider))
        return asker

    def look(self) -> None:
        """Finds out what the index's vectors were built with, and probes the extension. Blocks."""
        if self.lineup is not None:
            with self.store.read() as reader:
                self.lineup.look(reader)
            self.usage.load()
            self.store.probe_vector_engine()

    def measure(self) -> VectorUse:
        """Return what the vectors take, and have the providers look at what they need on this machine. Blocks."""
        if self.lineup is not None:
            self.lineup.refresh()
        return VectorUse(self.usage.totals(), self.store.vector_engine().form, self.store.vector_memory_bytes())

    @property
    def state(self) -> VectorState:
        """What the index's vectors are."""
        return VectorState() if self.embedder is None else self.embedder.state

    def pending(self, chunks: int) -> int:
        """Return how many of the index's `chunks` want a vector and have none that can be used.

        These are all when the provider that the settings name cannot be used, or has not made the vectors; none when
        "auto" is blocked by a setting that is not understood.
        """
        if not self.wanted:
            return 0
        if self.embedder is None:
            return chunks if self.selection.requires_vectors else 0
        return chunks if self.mismatches() else self.state.pending

    def report(self, chunks: int, rebuild: Sequence[Degradation]) -> VectorReport:
        """Return what a run reports of the vectors of an index of `chunks`.

        `rebuild` says why a rebuild of the index waits for approval of its cost; empty when none does.
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

    async def probe(self, deadline: float) -> ProbeOutcome:
        """Asks the provider for one vector, until `deadline` in `time.monotonic()` at the longest."""
        if self.embedder is None:
            return ProbeOutcome(0.0, self.selection.reason)
        provider = self.embedder.provider
        threads = self._threads.of(provider)
        return await asyncio.get_running_loop().run_in_executor(threads, _probe, provider, deadline)

    def mismatches(self) -> tuple[tuple[str, str, str], ...]:
        """(field, the index's value, the wanted value) of each difference; empty where there is nothing to compare."""
        if self.embedder is None or self.state.stored is None:
            return ()
        return self.state.stored.differences(self.embedder.identity)

    async def question(self, query: SearchQuery, on_wait: Callable[[], None] = lambda: None) -> QuestionVector:
        """Return the vector of a query, if it asks for vector search and the index can answer it.

        `on_wait` is called before the provider is asked; it is not called if the vector, or why there is none, is
        known.

        Raises:
            EmbeddingNotConfigured: only vector search was asked for, and there is no provider.
            EmbeddingUnavailable, EmbeddingQuotaExceeded: only vector search was asked for, and the provider or the
                index does not serve.
        """
        found = self._known(query)
        if found is None:
            on_wait()
            found = await self._ask(query)
        if query.mode is SearchMode.VECTOR and found.vector is None:
            raise found.error or EmbeddingUnavailable(found.reason, retry_after_seconds=5.0)
        return found

    def _known(self, query: SearchQuery) -> QuestionVector | None:
        if query.mode is SearchMode.KEYWORD:
            return QuestionVector(reason="the keyword leg alone was asked for")
        embedder = self.embedder
        if embedder is None:
            reason = self.selection.reason
            error = EmbeddingNotConfigured(
                f"vector search was asked for and cannot run: {reason}; ask for KEYWORD or HYBRID"
            )
            return QuestionVector(reason=reason, error=error)
        if self.state.stored is None:
            return QuestionVector(reason=self.state.reason or "no chunk has a vector yet; a sync makes them")
        differing = self.mismatches()
        fixed = embedder.provider.spec.dimensions is not None
        if any(field != "dimensions" for field, *_ in differing) or (differing and fixed):
            return QuestionVector(reason=self._mismatch_reason())
        asked = self._asker(embedder.provider).known(query.text, self.state.stored.dimensions)
        return None if asked is None else self._checked(asked, embedder)

    async def _ask(self, query: SearchQuery) -> QuestionVector:
        embedder, before, stored = self.embedder, self.mismatches(), self.state.stored
        if embedder is None or stored is None:
            raise AssertionError("what is known without asking was not looked at")
        asked = await self._asker(embedder.provider).embed(query.text, query.deadline, stored.dimensions)
        if asked.vector is not None and asked.fresh:
            embedder.saw(asked.vector.size)
        if self.mismatches() and not before:
            self._on_mismatch()
        return self._checked(asked, embedder)

    def _checked(self, asked: EmbeddedQuestion, embedder: Embedder) -> QuestionVector:
        if self.mismatches():
            return QuestionVector(reason=self._mismatch_reason())
        reason = "" if asked.error is None else asked.error.message
        identity = None if asked.vector is None else embedder.identity
        return QuestionVector(asked.vector, identity, reason, asked.error)

    def _mismatch_reason(self) -> str:
        differences = "; ".join(f"{field} was {old!r}, is {new!r}" for field, old, new in self.mismatches())
        return f"the index's vectors are not what the provider makes now ({differences}); " + (
            self.state.reason or "the next sync makes them anew"
        )

    def degradations(self) -> list[Degradation]:
        """In which ways the vector leg is less than what was configured."""
        found: list[Degradation] = []
        if self.embedder is None:
            if self.selection.is_configured:
                found.append(self._skipped(self.selection.reason))
            return found
        status = self.embedder.provider.status()
        if self.stands_in is not None:
            found.append(self.stands_in)
        if self.mismatches():
            name = named(self.embedder.provider.spec)
            reason = self._mismatch_reason()
            found.append(Degradation(DegradationKind.IDENTITY_MISMATCH, name, "keyword leg", reason))
        elif self.state.pending:
            reason = self.state.reason or "a sync makes them"
            count = "1 chunk has" if self.state.pending == 1 else f"{self.state.pending} chunks have"
            chunks = f"{count} no vector yet: {reason}"
            found.append(Degradation(DegradationKind.VECTORS_PENDING, "vectors", "keyword leg", chunks))
        if status.reason:
            found.append(self._skipped(status.reason))
        missing = self.store.vector_engine().load_error
        if missing:
            found.append(Degradation(DegradationKind.VECTOR_EXTENSION_MISSING, "sqlite-vec", "exact scan", missing))
        return found

    def _skipped(self, reason: str) -> Degradation:
        return Degradation(DegradationKind.VECTOR_LEG_SKIPPED, self.selection.requested, "keyword leg", reason)

    def provider_status(self) -> ProviderStatus | None:
        """How the provider fares; None where there is none."""
        return None if self.embedder is None else self.embedder.provider.status()


def _probe(provider: EmbeddingProvider, deadline: float) -> ProbeOutcome:
    began = time.monotonic()
    try:
        provider.embed_query("ping", deadline)
        error = ""
    except MemorydError as failure:
        error = failure.message
    return ProbeOutcome(time.monotonic() - began, error)
