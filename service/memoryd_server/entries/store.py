"""The entries of one agent: the operations on its dataset. Methods block; they run on threads."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from memoryd_server.entries.dataset import (
    INDEX_THRESHOLD,
    VECTOR,
    Dataset,
    entry_to_row,
    row_to_entry,
    sql_string,
    text_hash,
    vector_fields,
)
from memoryd_server.entries.model import (
    ALL_ENTRIES,
    DUPLICATE_SCORE,
    DatasetLocation,
    Entry,
    EntryCategory,
    EntryFilter,
    EntryPage,
    IdentifiedVector,
    ListPosition,
    RememberAction,
    RememberResult,
    ScoredEntry,
    bm25_score,
    distance_score,
)
from memoryd_server.errors import EntriesUnavailable, EntryNotFound, FieldViolation, InvalidRequest
from memoryd_server.text import Analyzer, TermKind
from memoryd_server.vectors import Vector

OPTIMIZE_AFTER_WRITES = 64


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to store; `key` is the caller's idempotency key, or empty."""

    text: str
    importance: float
    category: EntryCategory
    key: str = ""


class EntryStore:
    """One agent's entries. `now_ms` is the clock, `new_id` creates ids."""

    def __init__(
        self,
        location: DatasetLocation,
        analyzer: Analyzer,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        *,
        index_threshold: int = INDEX_THRESHOLD,
    ) -> None:
        self._dataset = Dataset(location, index_threshold=index_threshold)
        self._analyzer = analyzer
        self._now_ms = now_ms
        self._new_id = new_id
        self._last_ms = 0
        # The first optimization after a start removes what a crash left behind.
        self._writes = OPTIMIZE_AFTER_WRITES

    def open(self) -> None:
        """Open the dataset, creating it if it is missing.

        Raises:
            MemorydError: as `Dataset.open`.
        """
        self._dataset.open()
        newest = self._dataset.rows(limit=1)
        self._last_ms = newest[0]["createdAt"] if newest else 0

    def close(self) -> None:
        """Close the dataset."""
        self._dataset.close()

    def find_by_key(self, new: NewEntry) -> Entry | None:
        """Return the entry stored with `new.key`, or None.

        Raises:
            InvalidRequest: the key was used for an entry with another text, importance or category.
        """
        found = self._dataset.rows(f"key = {sql_string(new.key)}") if new.key else []
        if not found:
            return None
        stored = row_to_entry(found[0])
        if (stored.text, stored.importance, stored.category) != (new.text, new.importance, new.category):
            raise InvalidRequest([FieldViolation("idempotency_key", "was used for another entry; choose a new one")])
        return stored

    def remember(self, new: NewEntry, embedded: IdentifiedVector | None) -> RememberResult:
        """Store an entry unless it is a duplicate; durable on return.

        Raises:
            InvalidRequest: the key was used for another entry.
            DiskFull, EntriesUnavailable: it cannot be stored.
        """
        with self._dataset.write_lock:
            stored = self.find_by_key(new)
            if stored is not None:
                return RememberResult(RememberAction.ALREADY_STORED, stored)
            duplicate = self._find_duplicate(new.text, embedded)
            if duplicate is not None:
                return RememberResult(RememberAction.DUPLICATE, duplicate.entry, duplicate.score)
            vector = self._accept_vector(embedded)
            entry = self._create_entry(new)
            self._dataset.insert([entry_to_row(entry, self._analyzer.index_tokens(entry.text), vector)])
            self._writes += 1
            return RememberResult(RememberAction.STORED, entry, without_vector=vector is None)

    def _accept_vector(self, embedded: IdentifiedVector | None) -> IdentifiedVector | None:
        """Return the vector if it has the stored length: one odd answer of a provider must not discard all others."""
        if embedded is None:
            return None
        if not self._dataset.dimensions:
            self._dataset.set_dimensions(embedded.vector.size)
        return embedded if embedded.vector.size == self._dataset.dimensions else None

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 if there are none."""
        return self._dataset.dimensions

    def set_dimensions(self, dimensions: int) -> None:
        """Change the length of the vectors. Removes all vectors of another length."""
        self._dataset.set_dimensions(dimensions)

    def _create_entry(self, new: NewEntry) -> Entry:
        # Later than all others, so that the list is in the order of storing even if the clock was set back.
        self._last_ms = max(self._now_ms(), self._last_ms + 1)
        return Entry(self._new_id(), new.text, new.importance, new.category, self._last_ms, new.key)

    def _find_duplicate(self, text: str, embedded: IdentifiedVector | None) -> ScoredEntry | None:
        same = self.find_by_text(text)
        if same is not None:
            return ScoredEntry(same, 1.0)
        nearest = self.nearest(embedded, 1) if embedded is not None else []
        return nearest[0] if nearest and nearest[0].score >= DUPLICATE_SCORE else None

    def find_by_text(self, text: str) -> Entry | None:
        """Return the entry with exactly this text, ignoring white space around it, or None."""
        found = self._dataset.rows(f"hash = {sql_string(text_hash(text))}")
        return row_to_entry(found[0]) if found else None

    def nearest(self, embedded: IdentifiedVector, limit: int, among: EntryFilter = ALL_ENTRIES) -> list[ScoredEntry]:
        """Return the entries nearest to a vector, best first, among those with a vector of the same identity."""
        size = embedded.vector.size
        if self._dataset.dimensions != size:
            return []
        condition = _all_of(f"embedding = {sql_string(embedded.identity)}", _within(among))
        try:
            found = self._dataset.nearest(embedded.vector, condition, limit)
        except EntriesUnavailable:
            # Another model's vectors have replaced the column in between.
            if self._dataset.dimensions != size:
                return []
            raise
        return [ScoredEntry(row_to_entry(row), distance_score(row["_distance"])) for row in found]

    def sample(self, identity: str, dimensions: int, limit: int) -> list[Vector]:
        """Return at most `limit` stored vectors of an identity and a length."""
        if self._dataset.dimensions != dimensions:
            return []
        return self._dataset.vectors(f"embedding = {sql_string(identity)}", limit)

    def match_words(self, query: str, limit: int, among: EntryFilter = ALL_ENTRIES) -> list[ScoredEntry]:
        """Return the entries that match the words of a query best, best first."""
        terms = dict.fromkeys(
            term.text for term in self._analyzer.query_terms(query) if term.kind is not TermKind.GUESS
        )
        if not terms:
            return []
        found = self._dataset.match_words(" ".join(terms), _within(among), limit)
        return [ScoredEntry(row_to_entry(row), bm25_score(row["_score"])) for row in found]

    def forget(self, entry_id: str) -> Entry:
        """Delete an entry and return it.

        Raises:
            EntryNotFound: no entry has this id.
        """
        condition = f"id = {sql_string(entry_id)}"
        with self._dataset.write_lock:
            found = self._dataset.rows(condition)
            if not found:
                raise EntryNotFound(f"no entry has the id {entry_id}", metadata={"entry_id": entry_id})
            self._dataset.delete(condition)
            self._writes += 1
            return row_to_entry(found[0])

    def page(self, after: ListPosition | None, limit: int, categories: Collection[EntryCategory] = ()) -> EntryPage:
        """Return at most `limit` entries after a position, newest first."""
        within = _within(EntryFilter(categories))
        older = "" if after is None else _older_than(after)
        found = self._dataset.rows(_all_of(within, older), limit + 1)
        return EntryPage(tuple(map(row_to_entry, found[:limit])), self._dataset.count(within), len(found) > limit)

    def count(self) -> int:
        """Return the number of entries."""
        return self._dataset.count()

    def count_pending(self, identity: str) -> int:
        """Return the number of entries without a vector of this identity."""
        return self._dataset.count(self._pending_condition(identity))

    def pending_bytes(self, identity: str) -> int:
        """Return the total length in bytes of the texts of these entries."""
        return self._dataset.text_bytes(self._pending_condition(identity))

    def text_bytes(self) -> int:
        """Return the total length in bytes of all texts."""
        return self._dataset.text_bytes()

    def list_pending(self, identity: str, limit: int) -> list[Entry]:
        """Return at most `limit` entries without a vector of this identity, newest first."""
        return [row_to_entry(row) for row in self._dataset.rows(self._pending_condition(identity), limit)]

    def _pending_condition(self, identity: str) -> str:
        differs = f"embedding <> {sql_string(identity)}"
        return f"({differs} OR {VECTOR} IS NULL)" if self._dataset.dimensions else ""

    def set_vectors(self, vectors: Sequence[tuple[str, IdentifiedVector]]) -> None:
        """Store vectors by entry id, of the stored length. Ids of deleted entries are ignored."""
        if not vectors:
            return
        with self._dataset.write_lock:
            self._dataset.update([{"id": entry_id, **vector_fields(embedded)} for entry_id, embedded in vectors])
            self._writes += 1

    def rebuild_vector_index(self) -> None:
        """Rebuild the vector index. Call it after the last missing vector is stored."""
        self._dataset.rebuild_vector_index()

    @property
    def needs_optimize(self) -> bool:
        """True after 64 writes, when small files and old versions add up."""
        return self._writes >= OPTIMIZE_AFTER_WRITES

    @property
    def is_optimized(self) -> bool:
        """True if nothing was written since the last optimization."""
        return self._writes == 0

    def optimize(self) -> float:
        """Remove small files and old versions, with the deleted entries in them.

        Return the seconds after which versions that had to stay can be removed; 0 if none stay.
        """
        with self._dataset.write_lock:
            was_optimized = self.is_optimized
            next_seconds = self._dataset.optimize()
            self._writes = 0
            return 0.0 if was_optimized else next_seconds


def _within(among: EntryFilter) -> str:
    names = ", ".join(sql_string(category) for category in among.categories)
    return _all_of(
        f"category IN ({names})" if names else "",
        "" if among.since_ms is None else f"createdAt >= {among.since_ms}",
        "" if among.before_ms is None else f"createdAt < {among.before_ms}",
    )


def _older_than(after: ListPosition) -> str:
    same = f"createdAt = {after.created_ms} AND id < {sql_string(after.entry_id)}"
    return f"(createdAt < {after.created_ms} OR ({same}))"


def _all_of(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions))
