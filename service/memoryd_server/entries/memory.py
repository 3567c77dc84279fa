"""One agent's entries: what the RPCs ask of them. Methods are coroutines; LanceDB is touched on threads only."""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from memoryd_server.embedding import CostLimit
from memoryd_server.entries.capture import BLOCK_ENTRIES, BLOCK_SCORE
from memoryd_server.entries.maintenance import EntryEmbedder, EntryMaintenance, MaintenanceConfig, VectorResult
from memoryd_server.entries.model import (
    CANDIDATE_SCORE,
    CANDIDATES,
    CLEAR_SCORE,
    Entry,
    EntryCategory,
    EntryConfig,
    EntryPage,
    IdentifiedVector,
    ListPosition,
    RememberAction,
    RememberResult,
    ScoredEntry,
)
from memoryd_server.entries.store import EntryStore, NewEntry
from memoryd_server.model import Degradation, DegradationKind

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Entries, best first, and in which ways the answer is less than it should be."""

    entries: tuple[ScoredEntry, ...]
    degradations: tuple[Degradation, ...]


@dataclass(frozen=True, slots=True)
class EntryForgetResult:
    """What was deleted, or what the text could have meant."""

    deleted: Entry | None
    candidates: tuple[ScoredEntry, ...] = ()
    degradations: tuple[Degradation, ...] = ()


class EntryMemory:
    """The entries from `open` to `close`. `report` hears of what happens in the background."""

    def __init__(
        self,
        config: EntryConfig,
        store: EntryStore,
        vectors: EntryEmbedder,
        threads: Executor,
        report: Callable[..., None],
        *,
        maintenance: MaintenanceConfig | None = None,
    ) -> None:
        self.config = config
        self._store = store
        self._vectors = vectors
        self._threads = threads
        guard = CostLimit(config.confirm_above_tokens, vectors.costs)
        self._upkeep = EntryMaintenance(store, vectors, guard, self._run, report, config=maintenance)

    async def open(self) -> None:
        """Opens the dataset, and goes on with what a stop or a change of the model left undone.

        Raises:
            MemorydError: it cannot be opened.
        """
        await self._run(self._store.open)
        try:
            await self._upkeep.start()
        except BaseException:
            await self.close()
            raise

    def confirm(self) -> None:
        """Hears that the vectors that are missing may be made, whatever they cost."""
        self._upkeep.confirm()

    async def close(self) -> None:
        """Ends what is under way in the background, and lets the dataset go."""
        await self._upkeep.stop()
        await self._run(self._store.close)

    async def remember(self, new: NewEntry, deadline: float) -> tuple[RememberResult, tuple[Degradation, ...]]:
        """Stores an entry unless it is there; durable on return.

        Raises:
            InvalidRequest: its key was used for another.
            DiskFull, EntriesUnavailable: it cannot be stored.
        """
        made = VectorResult(None)
        # A repeated call costs no vector.
        if not new.key or await self._run(self._store.with_key, new) is None:
            made = await self._vectors.document(new.text, deadline)
        remembered = await self._run(self._store.remember, new, made.embedded)
        reason = made.reason
        if remembered.action is RememberAction.STORED:
            self._upkeep.wrote(without_vector=remembered.without_vector)
            if remembered.without_vector and made.embedded is not None:
                reason = await self._of_another_length(made.embedded)
        return remembered, self._by_words(reason, "the very same text") if reason else ()

    async def recall(
        self, query: str, limit: int, min_score: float, categories: Collection[EntryCategory], deadline: float
    ) -> RecallResult:
        """The entries nearest to a text: by meaning, or by words where there is no vector of it.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        found, degradations, _ = await self._near(query, limit, categories, deadline)
        return RecallResult(tuple(each for each in found if each.score >= min_score), degradations)

    async def _near(
        self, query: str, limit: int, categories: Collection[EntryCategory], deadline: float
    ) -> tuple[list[ScoredEntry], tuple[Degradation, ...], bool]:
        made = await self._vectors.question(query, deadline)
        if made.embedded is None:
            return await self._with_words(query, limit, categories, made.reason)
        if await self._run(lambda: self._store.dimensions) not in {0, made.embedded.vector.size}:
            return await self._with_words(query, limit, categories, await self._of_another_length(made.embedded))
        # Read first: vectors that are stored during the search are not among those that it compared.
        pending = self._pending()
        return await self._run(self._store.nearest, made.embedded, limit, categories), pending, True

    async def _with_words(
        self, query: str, limit: int, categories: Collection[EntryCategory], reason: str
    ) -> tuple[list[ScoredEntry], tuple[Degradation, ...], bool]:
        found = await self._run(self._store.with_words, query, limit, categories)
        return found, self._by_words(reason, "words"), False

    async def _of_another_length(self, embedded: IdentifiedVector) -> str:
        """Has the length of the vectors looked into, and tells why this one is of no use."""
        size, others = embedded.vector.size, await self._run(lambda: self._store.dimensions)
        self._upkeep.doubt()
        return f"{self._vectors.name} made a vector of {size} dimensions, and those of the entries have {others}"

    async def for_prompt(self, prompt: str, deadline: float) -> RecallResult:
        """The few entries that a prompt is to be given.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        return await self.recall(prompt, BLOCK_ENTRIES, BLOCK_SCORE, (), deadline)

    async def forget(self, entry_id: str) -> Entry:
        """Deletes an entry.

        Raises:
            EntryNotFound: there is none of this id.
            DiskFull, EntriesUnavailable: it cannot be deleted.
        """
        entry = await self._run(self._store.forget, entry_id)
        self._upkeep.wrote()
        return entry

    async def forget_meant(self, query: str, deadline: float) -> EntryForgetResult:
        """Deletes the one entry that a text clearly means.

        Raises:
            EntryNotFound: it was deleted by somebody else meanwhile.
            DiskFull, EntriesUnavailable: it cannot be deleted.
        """
        found, degradations, by_meaning = await self._near(query, CANDIDATES, (), deadline)
        same = await self._run(self._store.same_text, query)
        if by_meaning:
            found = [each for each in found if each.score >= CANDIDATE_SCORE]
        clear = [each.entry for each in found if by_meaning and each.score > CLEAR_SCORE]
        meant = clear[0] if len(clear) == 1 else same if same is not None and not clear else None
        if meant is None:
            return EntryForgetResult(None, tuple(found), degradations)
        return EntryForgetResult(await self.forget(meant.entry_id), (), degradations)

    async def page(self, after: ListPosition | None, limit: int, categories: Collection[EntryCategory]) -> EntryPage:
        """At most `limit` entries after a position, newest first.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        return await self._run(self._store.page, after, limit, categories)

    async def count(self) -> int:
        """How many entries there are.

        Raises:
            EntriesUnavailable: they cannot be read.
        """
        return await self._run(self._store.count)

    def _by_words(self, reason: str, used: str) -> tuple[Degradation, ...]:
        wanted = self._vectors.name or "embeddings"
        return (Degradation(DegradationKind.VECTOR_LEG_SKIPPED, wanted, used, reason), *self._pending())

    def _pending(self) -> tuple[Degradation, ...]:
        count = self._upkeep.pending
        if not count or self._vectors.provider is None:
            return ()
        reason = self._upkeep.waits or self._vectors.reason or "they are made in the background"
        words = f"{count} entries have no vector of this model yet and are not found by meaning: {reason}"
        return (Degradation(DegradationKind.VECTORS_PENDING, self._vectors.name, "", words),)

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))
