"""The entries of one agent: what may be done with them, on the dataset that holds them. Blocks; for threads."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from memoryd_server.entries import model
from memoryd_server.entries.dataset import VECTOR, Dataset, embedding, entry, quoted, row, text_hash
from memoryd_server.entries.model import (
    DUPLICATE_SCORE,
    DatasetLocation,
    Entry,
    EntryCategory,
    EntryPage,
    IdentifiedVector,
    ListPosition,
    RememberAction,
    RememberResult,
    ScoredEntry,
)
from memoryd_server.errors import EntryNotFound, FieldViolation, InvalidRequest
from memoryd_server.text import Analyzer, TermKind

TIDY_AFTER_WRITES = 64


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What is to be remembered; `key` is empty where the caller gave none."""

    text: str
    importance: float
    category: EntryCategory
    key: str = ""


class EntryStore:
    """One agent's entries. `now_ms` is the clock, `new_id` makes ids."""

    def __init__(
        self, place: DatasetLocation, analyzer: Analyzer, now_ms: Callable[[], int], new_id: Callable[[], str]
    ) -> None:
        self._dataset = Dataset(place)
        self._analyzer = analyzer
        self._now_ms = now_ms
        self._new_id = new_id
        self._last_ms = 0
        # What a crash left over is cleared away by the first tidying.
        self._untidy = TIDY_AFTER_WRITES

    def open(self) -> None:
        """Opens the dataset, or makes it.

        Raises:
            MemorydError: as `Dataset.open`.
        """
        self._dataset.open()
        newest = self._dataset.rows(limit=1)
        self._last_ms = newest[0]["createdAt"] if newest else 0

    def close(self) -> None:
        """Lets the dataset go."""
        self._dataset.close()

    def with_key(self, new: NewEntry) -> Entry | None:
        """The entry that was stored with this key, which must have been for the same contents; None for none.

        Raises:
            InvalidRequest: it was for others.
        """
        found = self._dataset.rows(f"key = {quoted(new.key)}") if new.key else []
        if not found:
            return None
        there = entry(found[0])
        if (there.text, there.importance, there.category) != (new.text, new.importance, new.category):
            raise InvalidRequest([FieldViolation("idempotency_key", "was used for another entry; choose a new one")])
        return there

    def remember(self, new: NewEntry, embedded: IdentifiedVector | None) -> RememberResult:
        """Stores an entry unless it is there; durable on return.

        Raises:
            InvalidRequest: the key was used for another entry.
            DiskFull, EntriesUnavailable: it cannot be stored.
        """
        with self._dataset.writing:
            there = self.with_key(new)
            if there is not None:
                return RememberResult(RememberAction.ALREADY_STORED, there)
            duplicate = self._duplicate(new.text, embedded)
            if duplicate is not None:
                return RememberResult(RememberAction.DUPLICATE, duplicate.entry, duplicate.score)
            fitting = self._fitting(embedded)
            made = self._made(new)
            self._dataset.insert([row(made, self._analyzer.index_tokens(made.text), fitting)])
            self._untidy += 1
            return RememberResult(RememberAction.STORED, made, without_vector=fitting is None)

    def _fitting(self, embedded: IdentifiedVector | None) -> IdentifiedVector | None:
        """The vector, if it is as long as the others: one odd answer of a provider must not cost all others."""
        if embedded is None:
            return None
        if not self._dataset.dimensions:
            self._dataset.fit(embedded.vector.size)
        return embedded if embedded.vector.size == self._dataset.dimensions else None

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 while there are none."""
        return self._dataset.dimensions

    def fit(self, dimensions: int) -> None:
        """Makes room for vectors of another length; all others are gone then, and have to be made anew."""
        self._dataset.fit(dimensions)

    def _made(self, new: NewEntry) -> Entry:
        # Later than every other, so that the list's order is that of storing even where the clock was set back.
        self._last_ms = max(self._now_ms(), self._last_ms + 1)
        return Entry(self._new_id(), new.text, new.importance, new.category, self._last_ms, new.key)

    def _duplicate(self, text: str, embedded: IdentifiedVector | None) -> ScoredEntry | None:
        same = self.same_text(text)
        if same is not None:
            return ScoredEntry(same, 1.0)
        nearest = self.nearest(embedded, 1) if embedded is not None else []
        return nearest[0] if nearest and nearest[0].score >= DUPLICATE_SCORE else None

    def same_text(self, text: str) -> Entry | None:
        """The entry with the very same text, white space around it aside."""
        found = self._dataset.rows(f"hash = {quoted(text_hash(text))}")
        return entry(found[0]) if found else None

    def nearest(
        self, embedded: IdentifiedVector, limit: int, categories: Collection[EntryCategory] = ()
    ) -> list[ScoredEntry]:
        """The entries nearest to a vector, best first; only those whose vector was made with the same."""
        if self._dataset.dimensions != embedded.vector.size:
            return []
        condition = _all_of(f"embedding = {quoted(embedded.identity)}", _within(categories))
        found = self._dataset.nearest(embedded.vector, condition, limit)
        return [ScoredEntry(entry(each), model.of_distance(each["_distance"])) for each in found]

    def with_words(self, query: str, limit: int, categories: Collection[EntryCategory] = ()) -> list[ScoredEntry]:
        """The entries that have the most telling of the words of a query, best first."""
        terms = dict.fromkeys(
            term.text for term in self._analyzer.query_terms(query) if term.kind is not TermKind.GUESS
        )
        if not terms:
            return []
        found = self._dataset.with_words(" ".join(terms), _within(categories), limit)
        return [ScoredEntry(entry(each), model.of_bm25(each["_score"])) for each in found]

    def forget(self, entry_id: str) -> Entry:
        """Deletes an entry and answers with it.

        Raises:
            EntryNotFound: there is none of this id.
        """
        condition = f"id = {quoted(entry_id)}"
        with self._dataset.writing:
            found = self._dataset.rows(condition)
            if not found:
                raise EntryNotFound(f"there is no entry {entry_id}", metadata={"entry_id": entry_id})
            self._dataset.delete(condition)
            self._untidy += 1
            return entry(found[0])

    def page(self, after: ListPosition | None, limit: int, categories: Collection[EntryCategory] = ()) -> EntryPage:
        """At most `limit` entries after a position, newest first."""
        within = _within(categories)
        older = "" if after is None else _older_than(after)
        found = self._dataset.rows(_all_of(within, older), limit + 1)
        return EntryPage(tuple(map(entry, found[:limit])), self._dataset.count(within), len(found) > limit)

    def count(self) -> int:
        """How many entries there are."""
        return self._dataset.count()

    def pending(self, identity: str) -> int:
        """How many entries have no vector that was made with this."""
        return self._dataset.count(self._without(identity))

    def pending_bytes(self, identity: str) -> int:
        """How long the texts of these entries are together."""
        return self._dataset.text_bytes(self._without(identity))

    def text_bytes(self) -> int:
        """How long all texts are together."""
        return self._dataset.text_bytes()

    def without_vector(self, identity: str, limit: int) -> list[Entry]:
        """Some of these entries, newest first."""
        return [entry(each) for each in self._dataset.rows(self._without(identity), limit)]

    def _without(self, identity: str) -> str:
        differs = f"embedding <> {quoted(identity)}"
        return f"({differs} OR {VECTOR} IS NULL)" if self._dataset.dimensions else ""

    def set_vectors(self, vectors: Sequence[tuple[str, IdentifiedVector]]) -> None:
        """Gives entries, by id, their vectors, of the length of the others. Who was deleted meanwhile stays deleted."""
        if not vectors:
            return
        with self._dataset.writing:
            self._dataset.update([{"id": entry_id, **embedding(embedded)} for entry_id, embedded in vectors])
            self._untidy += 1

    def settle_vectors(self) -> None:
        """Hears that vectors were given to all entries that a provider takes."""
        self._dataset.index_vectors_anew()

    @property
    def wants_tidying(self) -> bool:
        """Whether so much was written that small files and old versions add up."""
        return self._untidy >= TIDY_AFTER_WRITES

    @property
    def is_tidy(self) -> bool:
        """Whether nothing was written since the last tidying."""
        return self._untidy == 0

    def tidy(self) -> float:
        """Clears away small files and old versions; what was deleted leaves the disk with them.

        Answers with how many seconds later there is more to clear away, which has to stay for now; 0 for nothing.
        """
        with self._dataset.writing:
            was_tidy = self.is_tidy
            later = self._dataset.tidy()
            self._untidy = 0
            return 0.0 if was_tidy else later


def _within(categories: Collection[EntryCategory]) -> str:
    return f"category IN ({', '.join(quoted(category) for category in categories)})" if categories else ""


def _older_than(after: ListPosition) -> str:
    same = f"createdAt = {after.created_ms} AND id < {quoted(after.entry_id)}"
    return f"(createdAt < {after.created_ms} OR ({same}))"


def _all_of(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions))
