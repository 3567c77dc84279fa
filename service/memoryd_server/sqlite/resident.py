"""ResidentIndex: vectors in memory, kept equal to the last commit.

A search reads a snapshot that may be older than the last commit, so the vectors that it loads may be outdated. Three
rules prevent that:

- A snapshot opened before the last change that the load does not contain may not load.
- During a load, each change is applied to it immediately, and later pages skip the changed chunks.
- A load that was interrupted, for example by a deadline, is continued by the next search, from its snapshot.

The module also reads vectors through a search's own snapshot, page by page, to compare them with numpy.
"""

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from memoryd_server.sqlite.exact import ResidentVectors, TopK
from memoryd_server.sqlite.reader import SqliteReader
from memoryd_server.threads import RWLock
from memoryd_server.vectors import Ids, Vectors, from_blobs

# The vectors that one query of a load or of a scan reads.
PAGE_ROWS = 1_024

# How many pages a search adds to the load that will replace stale vectors, while those still answer.
_PAGES_WHILE_STALE = 1


class _Load:
    """Vectors being loaded: those of the chunks up to id `position`, and those of all `changed` chunks."""

    def __init__(self, resident: ResidentVectors, dimensions: int, since: float) -> None:
        self.resident = resident
        self.dimensions = dimensions
        self.since = since
        self.position = 0
        self.changed: set[int] = set()

    def put_page(self, ids: Ids, vectors: Vectors) -> None:
        rows = [row for row, chunk_id in enumerate(ids.tolist()) if chunk_id not in self.changed]
        self.resident.put(ids[rows], vectors[rows])


class ResidentIndex:
    """Holds at most one set of vectors that answers searches, and one that is being loaded.

    `new_resident` returns empty vectors for a snapshot and a dimension, or None if none should be in memory. A load
    reads `page_rows` vectors per query.
    """

    def __init__(
        self,
        new_resident: Callable[[SqliteReader, int], ResidentVectors | None],
        budget_bytes: int,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self._new_resident = new_resident
        self._page_rows = page_rows
        self._budget_bytes = budget_bytes
        self._lock = RWLock()
        self._loading = threading.Lock()
        self._resident: ResidentVectors | None = None
        self._dimensions = 0
        self._load: _Load | None = None
        self._changed_at = -1.0

    @property
    def memory_bytes(self) -> int:
        """The bytes of all vectors in memory, loaded or being loaded."""
        with self._lock.shared():
            return sum(resident.memory_bytes for resident in self._all_resident())

    @property
    def form(self) -> str:
        """The form of the vectors that answer searches; empty if there are none."""
        resident = self._resident
        return "" if resident is None else resident.form

    @property
    def is_empty(self) -> bool:
        """Whether no vectors are in memory, and none are being loaded."""
        return self._resident is None and self._load is None

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids | None:
        """Return the candidates of the vectors in memory; None if there are none of the query's dimensions."""
        with self._lock.shared():
            if self._resident is None or self._dimensions != len(query):
                return None
            return self._resident.candidates(query, limit, allowed)

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Apply a commit; the writer thread calls this immediately after it.

        `added` has the vectors of new and changed chunks, `removed` the chunks that have none now. An id in both is
        added.
        """
        with self._lock.alone():
            self._changed_at = time.monotonic()
            if self._load is not None:
                self._load.changed.update(added, removed)
                _change(self._load.resident, self._load.dimensions, added, removed)
            if self._resident is not None:
                _change(self._resident, self._dimensions, added, removed)
            if sum(resident.memory_bytes for resident in self._all_resident()) > self._budget_bytes:
                self._resident = self._load = None

    def reset(self) -> None:
        """Drop everything, and let no snapshot that was opened before now load."""
        with self._lock.alone():
            self._changed_at = time.monotonic()
            self._resident = self._load = None

    def release_memory(self) -> None:
        """Drop the vectors; the next search loads them again."""
        with self._lock.alone():
            self._resident = self._load = None

    def _all_resident(self) -> list[ResidentVectors]:
        loading = None if self._load is None else self._load.resident
        return [each for each in (self._resident, loading) if each is not None]

    def prepare(self, reader: SqliteReader, dimensions: int) -> bool:
        """Load the vectors unless another thread is loading them; return whether `candidates` can answer now."""
        with self._lock.shared():
            answers = self._resident is not None and self._dimensions == dimensions
            is_stale = answers and self._resident is not None and self._resident.is_stale
        if (answers and not is_stale) or not self._loading.acquire(blocking=False):
            return answers
        try:
            load = self._current_load(reader, dimensions)
            if load is not None:
                self._read(reader, load, _PAGES_WHILE_STALE if answers else None)
        finally:
            self._loading.release()
        return self._resident is not None and self._dimensions == dimensions

    def _current_load(self, reader: SqliteReader, dimensions: int) -> _Load | None:
        """Return the load that this snapshot may add to, started here if there is none; None if it may not load."""
        load = self._load
        if load is not None and load.dimensions == dimensions:
            return load if reader.opened_at > load.since else None
        if reader.opened_at <= self._changed_at or (resident := self._new_resident(reader, dimensions)) is None:
            return None
        with self._lock.alone():
            # Compared again under the lock: earlier changes are in the snapshot, later ones are applied to the load.
            if reader.opened_at <= self._changed_at:
                return None
            self._load = _Load(resident, dimensions, self._changed_at)
            return self._load

    def _read(self, reader: SqliteReader, load: _Load, max_pages: int | None) -> None:
        """Add up to `max_pages` pages to the load (None: all); after the last one, it answers searches."""
        for number in itertools.count(1):
            rows = reader.embeddings_after(load.position, self._page_rows)
            with self._lock.alone():
                if self._load is not load:
                    return
                load.put_page(*from_blobs(rows, load.dimensions))
                if len(rows) < self._page_rows:
                    self._resident, self._dimensions, self._load = load.resident, load.dimensions, None
                    return
                load.position = rows[-1][0]
            if number == max_pages:
                return


def _change(resident: ResidentVectors, dimensions: int, added: Mapping[int, bytes], removed: Collection[int]) -> None:
    resident.discard(np.fromiter({*added, *removed}, np.int64))
    ids, vectors = from_blobs(added.items(), dimensions)
    if len(ids):
        resident.put(ids, vectors)


Rows = list[tuple[int, bytes]]

_SAMPLED_PLACES = 64
_SAMPLED_RUN = 64


def offer_all(reader: SqliteReader, dimensions: int, allowed: Ids | None, best: TopK, page_rows: int) -> None:
    """Offer every vector of the snapshot, or every allowed one, to `best`: exact, in bounded memory, slow for many."""
    if allowed is not None:
        offer(reader, dimensions, allowed, best, page_rows)
        return
    for rows in _pages(reader, page_rows):
        best.offer(*from_blobs(rows, dimensions))


def offer(reader: SqliteReader, dimensions: int, ids: Ids, best: TopK, page_rows: int) -> None:
    """Offer the vectors of these chunks to `best`, in bounded memory."""
    for first in range(0, len(ids), page_rows):
        best.offer(*reader.vectors_of(ids[first : first + page_rows].tolist(), dimensions))


def _pages(reader: SqliteReader, page_rows: int) -> Iterator[Rows]:
    after = 0
    while rows := reader.embeddings_after(after, page_rows):
        yield rows
        after = rows[-1][0]


def sample_mean(reader: SqliteReader, dimensions: int) -> Vectors:
    """Return the mean of a few thousand vectors from all parts of the index; zeros if there are none."""
    starts = np.linspace(0, reader.last_embedding(), _SAMPLED_PLACES, endpoint=False, dtype=np.int64)
    rows = {row[0]: row for start in starts.tolist() for row in reader.embeddings_after(start, _SAMPLED_RUN)}
    _, vectors = from_blobs(rows.values(), dimensions)
    return vectors.mean(axis=0, dtype=np.float32) if len(vectors) else np.zeros(dimensions, np.float32)
