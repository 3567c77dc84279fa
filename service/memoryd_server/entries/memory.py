"""The entries of one agent: one coroutine per RPC. LanceDB is only called on threads."""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from memoryd_server.agent import EntryAnswer, EntryHit, EntryQuery
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.embedding import CostLimit
from memoryd_server.entries.capture import BLOCK_ENTRIES
from memoryd_server.entries.maintenance import EntryEmbedder, EntryMaintenance, MaintenanceConfig, VectorResult
from memoryd_server.entries.model import (
    ALL_ENTRIES,
    CANDIDATE_SCORE,
    CANDIDATES,
    CLEAR_SCORE,
    Entry,
    EntryCategory,
    EntryConfig,
    EntryFilter,
    EntryPage,
    IdentifiedVector,
    ListPosition,
    RememberAction,
    RememberResult,
    ScoredEntry,
    score_cosine,
)
from memoryd_server.entries.relevance import (
    LEAST_SAMPLED,
    SAMPLED,
    WORDS_SCORE,
    derived_least_cosine,
    known_least_cosine,
)
from memoryd_server.entries.store import EntryStore, NewEntry
from memoryd_server.model import Degradation, DegradationKind

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Entries, best first, and the degradations of the answer."""

    entries: tuple[ScoredEntry, ...]
    degradations: tuple[Degradation, ...]


@dataclass(frozen=True, slots=True)
class EntryForgetResult:
    """The deleted entry, or the candidates that the text could mean."""

    deleted: Entry | None
    candidates: tuple[ScoredEntry, ...] = ()
    degradations: tuple[Degradation, ...] = ()


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The entries nearest to a text, best first, and the text's vector; None if words were compared instead."""

    entries: tuple[ScoredEntry, ...]
    degradations: tuple[Degradation, ...]
    embedded: IdentifiedVector | None = None


class EntryMemory:
    """One agent's entries. `report` is called with each event of the background work and its fields."""

    def __init__(
        self,
        config: EntryConfig,
        store: EntryStore,
        embedder: EntryEmbedder,
        threads: Executor,
        report: Callable[..., None],
        *,
        maintenance: MaintenanceConfig | None = None,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self.config = config
        self._store = store
        self._embedder = embedder
        self._threads = threads
        provider = embedder.provider
        cost_limit = None if provider is None else CostLimit.of(provider, config.confirm_above_tokens)
        self._maintenance = EntryMaintenance(
            store, embedder, cost_limit, self._run, report, config=maintenance, tasks=tasks
        )

    async def open(self) -> None:
        """Open the dataset, and continue with the missing vectors.

        Raises:
            MemorydError: it cannot be opened.
        """
        await self._run(self._store.open)
        try:
            await self._maintenance.start()
        except BaseException:
            await self.close()
            raise

    def approve_cost(self) -> None:
        """Approve the cost of the missing vectors."""
        self._maintenance.approve_cost()

    async def close(self) -> None:
        """Stop the background work and close the dataset."""
        await self._maintenance.stop()
        await self._run(self._store.close)

    async def remember(self, new: NewEntry, deadline: float) -> tuple[RememberResult, tuple[Degradation, ...]]:
        """Store an entry unless it is a duplicate; durable on return.

        Raises:
            InvalidRequest: its key was used for another entry.
            DiskFull, EntriesUnavailable: it cannot be stored.
        """
        result = VectorResult(None)
        # A repeated call is not embedded again.
        if not new.key or await self._run(self._store.find_by_key, new) is None:
            result = await self._embedder.embed_document(new.text, deadline)
        remembered = await self._run(self._store.remember, new, result.embedded)
        reason = result.reason
        if remembered.action is RememberAction.STORED:
            self._maintenance.record_write(without_vector=remembered.without_vector)
            if remembered.without_vector and result.embedded is not None:
                reason = await self._report_other_length(result.embedded)
        return remembered, self._vector_search_skipped(reason, "the very same text") if reason else ()

    async def recall(
        self, query: str, limit: int, min_score: float, categories: Collection[EntryCategory], deadline: float
    ) -> RecallResult:
        """Return the entries nearest to a text by vectors; by words if the text has no vector.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        found = await self._find_nearest(query, limit, EntryFilter(categories), deadline)
        return RecallResult(tuple(each for each in found.entries if each.score >= min_score), found.degradations)

    async def _find_nearest(
        self, query: str, limit: int, among: EntryFilter, deadline: float, *, seconds: float | None = None
    ) -> _Nearest:
        result = await self._embedder.embed_query(query, deadline, seconds)
        if result.embedded is None:
            return await self._match_words(query, limit, among, result.reason)
        if await self._run(lambda: self._store.dimensions) not in {0, result.embedded.vector.size}:
            return await self._match_words(query, limit, among, await self._report_other_length(result.embedded))
        # Read before the search, which does not see vectors stored while it runs.
        pending = self._pending()
        found = await self._run(self._store.nearest, result.embedded, limit, among)
        return _Nearest(tuple(found), pending, result.embedded)

    async def _match_words(self, query: str, limit: int, among: EntryFilter, reason: str) -> _Nearest:
        found = await self._run(self._store.match_words, query, limit, among)
        return _Nearest(tuple(found), self._vector_search_skipped(reason, "words"))

    async def _report_other_length(self, embedded: IdentifiedVector) -> str:
        """Have the maintenance check the vectors' length, and return why this vector cannot be used."""
        size, others = embedded.vector.size, await self._run(lambda: self._store.dimensions)
        self._maintenance.record_other_length()
        return f"{self._embedder.name} made a vector of {size} dimensions, and those of the entries have {others}"

    async def recall_for_prompt(self, prompt: str, deadline: float) -> RecallResult:
        """Return at most three entries that concern a prompt; see `relevance`.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        return await self._concerning(prompt, BLOCK_ENTRIES, ALL_ENTRIES, deadline)

    async def search(self, query: EntryQuery) -> EntryAnswer:
        """Return the entries that answer a query of the agent's search or recall.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        among = EntryFilter((), query.since_ms, query.before_ms)
        if query.for_prompt:
            found = await self._concerning(
                query.text, query.limit, among, query.deadline, seconds=query.embedding_seconds
            )
            entries = found.entries
        else:
            nearest = await self._find_nearest(query.text, query.limit, among, query.deadline)
            found = RecallResult(nearest.entries, nearest.degradations)
            entries = tuple(each for each in nearest.entries if each.score >= query.min_score)
        hits = (EntryHit(each.entry.entry_id, each.entry.text, each.entry.created_ms, each.score) for each in entries)
        return EntryAnswer(tuple(hits), found.degradations)

    async def _concerning(
        self, prompt: str, limit: int, among: EntryFilter, deadline: float, *, seconds: float | None = None
    ) -> RecallResult:
        found = await self._find_nearest(prompt, limit, among, deadline, seconds=seconds)
        if found.embedded is None:
            entries = tuple(each for each in found.entries if each.score >= WORDS_SCORE)
        elif found.entries:
            least = await self._least_cosine(found.embedded, deadline)
            entries = tuple(each for each in found.entries if score_cosine(each.score) >= least)
        else:
            entries = ()
        return RecallResult(entries, found.degradations)

    async def _least_cosine(self, prompt: IdentifiedVector, deadline: float) -> float:
        """Return the cosine that an entry must have with a prompt to concern it."""
        known = known_least_cosine(self._embedder.model)
        if known is not None:
            return known
        size = prompt.vector.size
        sample = await self._run(self._store.sample, prompt.identity, size, SAMPLED)
        if len(sample) < LEAST_SAMPLED:
            references = await self._embedder.embed_references(deadline)
            sample = [*sample, *(each for each in references if each.size == size)]
        return derived_least_cosine(prompt.vector, sample)

    async def forget(self, entry_id: str) -> Entry:
        """Delete an entry and return it.

        Raises:
            EntryNotFound: no entry has this id.
            DiskFull, EntriesUnavailable: it cannot be deleted.
        """
        entry = await self._run(self._store.forget, entry_id)
        self._maintenance.record_write()
        return entry

    async def forget_by_text(self, query: str, deadline: float) -> EntryForgetResult:
        """Delete the one entry that a text clearly means, or return the candidates.

        Raises:
            EntryNotFound: another call deleted it first.
            DiskFull, EntriesUnavailable: it cannot be deleted.
        """
        nearest = await self._find_nearest(query, CANDIDATES, ALL_ENTRIES, deadline)
        same = await self._run(self._store.find_by_text, query)
        by_meaning = nearest.embedded is not None
        found = [each for each in nearest.entries if not by_meaning or each.score >= CANDIDATE_SCORE]
        clear = [each.entry for each in found if by_meaning and each.score > CLEAR_SCORE]
        meant = clear[0] if len(clear) == 1 else same if same is not None and not clear else None
        if meant is None:
            return EntryForgetResult(None, tuple(found), nearest.degradations)
        return EntryForgetResult(await self.forget(meant.entry_id), (), nearest.degradations)

    async def page(self, after: ListPosition | None, limit: int, categories: Collection[EntryCategory]) -> EntryPage:
        """Return at most `limit` entries after a position, newest first.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        return await self._run(self._store.page, after, limit, categories)

    async def count(self) -> int:
        """Return the number of entries.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        return await self._run(self._store.count)

    def _vector_search_skipped(self, reason: str, used: str) -> tuple[Degradation, ...]:
        wanted = self._embedder.name or "embeddings"
        return (Degradation(DegradationKind.VECTOR_LEG_SKIPPED, wanted, used, reason), *self._pending())

    def _pending(self) -> tuple[Degradation, ...]:
        count = self._maintenance.pending
        if not count or self._embedder.provider is None:
            return ()
        reason = self._maintenance.approval_reason or self._embedder.reason or "they are made in the background"
        text = f"{count} entries have no vector of this model yet and are not found by meaning: {reason}"
        return (Degradation(DegradationKind.VECTORS_PENDING, self._embedder.name, "", text),)

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))
