"""Vectors in memory, kept equal to commits.

What of one index's vectors is in memory, and how it stays equal to the last commit.

A search works on a snapshot that may be older than the last commit, so what it loads may be outdated on arrival. Three
rules keep that out. A snapshot opened before the last change that the load has not seen may not load. Once a load has
begun, every change goes into it at once, and the pages that are still to come leave those chunks alone. And a load goes
on where it was broken off, by a deadline say, with the next search's snapshot.

Reads vectors through a search's own snapshot, a page at a time, and compares them with numpy.
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

# What a search adds to the load that is to replace a worn resident, while that one still answers.
_PAGES_BESIDE = 1


class _Load:
    """A resident in the making: chunks up to `position` are in it, and the `changed` ones wherever they stand."""

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
    """Holds at most one resident that answers and one in the making.

    `begin` makes an empty resident for a snapshot and a dimension, or None when nothing is to be resident.
    """

    def __init__(self, begin: Callable[[SqliteReader, int], ResidentVectors | None], budget_bytes: int) -> None:
        self._begin = begin
        self._budget_bytes = budget_bytes
        self._gate = RWLock()
        self._loading = threading.Lock()
        self._resident: ResidentVectors | None = None
        self._dimensions = 0
        self._load: _Load | None = None
        self._changed_at = -1.0

    @property
    def memory_bytes(self) -> int:
        """What is held, finished or not."""
        with self._gate.shared():
            return sum(resident.memory_bytes for resident in self._held())

    @property
    def form(self) -> str:
        """What the resident that answers holds of each vector; empty where there is none."""
        resident = self._resident
        return "" if resident is None else resident.form

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids | None:
        """Return the candidates of the resident; None if there is none for the query's dimensions."""
        with self._gate.shared():
            if self._resident is None or self._dimensions != len(query):
                return None
            return self._resident.candidates(query, limit, allowed)

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Brings what is held in line with a commit that has just been made."""
        with self._gate.alone():
            self._changed_at = time.monotonic()
            if self._load is not None:
                self._load.changed.update(added, removed)
                _change(self._load.resident, self._load.dimensions, added, removed)
            if self._resident is not None:
                _change(self._resident, self._dimensions, added, removed)
            if sum(resident.memory_bytes for resident in self._held()) > self._budget_bytes:
                self._resident = self._load = None

    def reset(self) -> None:
        """Forgets everything, and lets no snapshot load that was opened before now."""
        with self._gate.alone():
            self._changed_at = time.monotonic()
            self._resident = self._load = None

    def unload(self) -> None:
        """Gives the memory back; the next search loads anew."""
        with self._gate.alone():
            self._resident = self._load = None

    def _held(self) -> list[ResidentVectors]:
        making = None if self._load is None else self._load.resident
        return [held for held in (self._resident, making) if held is not None]

    def prepare(self, reader: SqliteReader, dimensions: int) -> bool:
        """Load the vectors unless another thread is loading them; return whether `candidates` can answer now."""
        with self._gate.shared():
            answers = self._resident is not None and self._dimensions == dimensions
            worn = answers and self._resident is not None and self._resident.worn
        if (answers and not worn) or not self._loading.acquire(blocking=False):
            return answers
        try:
            load = self._joined(reader, dimensions)
            if load is not None:
                self._read(reader, load, _PAGES_BESIDE if answers else None)
        finally:
            self._loading.release()
        return self._resident is not None and self._dimensions == dimensions

    def _joined(self, reader: SqliteReader, dimensions: int) -> _Load | None:
        """The load that this snapshot may add to, begun here if there is none."""
        load = self._load
        if load is not None and load.dimensions == dimensions:
            return load if reader.opened_at > load.since else None
        if reader.opened_at <= self._changed_at or (resident := self._begin(reader, dimensions)) is None:
            return None
        with self._gate.alone():
            # Compared again, with changes shut out: those before are in the snapshot, those after reach the load.
            if reader.opened_at <= self._changed_at:
                return None
            self._load = _Load(resident, dimensions, self._changed_at)
            return self._load

    def _read(self, reader: SqliteReader, load: _Load, most_pages: int | None) -> None:
        """Adds pages to the load, all of them or so many, and lets it answer when the last is in."""
        for number in itertools.count(1):
            rows = reader.embeddings_after(load.position, PAGE)
            with self._gate.alone():
                if self._load is not load:
                    return
                load.put_page(*from_blobs(rows, load.dimensions))
                if len(rows) < PAGE:
                    self._resident, self._dimensions, self._load = load.resident, load.dimensions, None
                    return
                load.position = rows[-1][0]
            if number == most_pages:
                return


def _change(resident: ResidentVectors, dimensions: int, added: Mapping[int, bytes], removed: Collection[int]) -> None:
    resident.discard(np.fromiter({*added, *removed}, np.int64))
    ids, vectors = from_blobs(added.items(), dimensions)
    if len(ids):
        resident.put(ids, vectors)


Rows = list[tuple[int, bytes]]

PAGE = 1_024

_SAMPLED_PLACES = 64
_SAMPLED_RUN = 64


def offer_all(reader: SqliteReader, dimensions: int, allowed: Ids | None, best: TopK) -> None:
    """Offer every vector of the snapshot, or every allowed one: exact, in bounded memory, and slow for many."""
    if allowed is not None:
        offer(reader, dimensions, allowed, best)
        return
    for rows in _pages(reader):
        best.offer(*from_blobs(rows, dimensions))


def offer(reader: SqliteReader, dimensions: int, ids: Ids, best: TopK) -> None:
    """Offer the vectors of some chunks, in bounded memory."""
    for first in range(0, len(ids), PAGE):
        best.offer(*reader.vectors_of(ids[first : first + PAGE].tolist(), dimensions))


def _pages(reader: SqliteReader) -> Iterator[Rows]:
    after = 0
    while rows := reader.embeddings_after(after, PAGE):
        yield rows
        after = rows[-1][0]


def sample_mean(reader: SqliteReader, dimensions: int) -> Vectors:
    """The mean of a few thousand vectors from all over the index; zeros when there are none."""
    starts = np.linspace(0, reader.last_embedding(), _SAMPLED_PLACES, endpoint=False, dtype=np.int64)
    rows = {row[0]: row for start in starts.tolist() for row in reader.embeddings_after(start, _SAMPLED_RUN)}
    _, vectors = from_blobs(rows.values(), dimensions)
    return vectors.mean(axis=0, dtype=np.float32) if len(vectors) else np.zeros(dimensions, np.float32)
