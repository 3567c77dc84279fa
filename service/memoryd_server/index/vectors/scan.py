"""Reads vectors through a search's own snapshot, a page at a time, and compares them with numpy."""

from collections.abc import Iterator

import numpy as np

from memoryd_server.index.reader import IndexReader
from memoryd_server.index.vectors.ranking import Best
from memoryd_server.vectors import Ids, Vectors, from_blobs

Rows = list[tuple[int, bytes]]

PAGE = 1_024

_SAMPLED_PLACES = 64
_SAMPLED_RUN = 64


def offer_all(reader: IndexReader, dimensions: int, allowed: Ids | None, best: Best) -> None:
    """Offer every vector of the snapshot, or every allowed one: exact, in bounded memory, and slow for many."""
    if allowed is not None:
        offer(reader, dimensions, allowed, best)
        return
    for rows in _pages(reader):
        best.offer(*from_blobs(rows, dimensions))


def offer(reader: IndexReader, dimensions: int, ids: Ids, best: Best) -> None:
    """Offer the vectors of some chunks, in bounded memory."""
    for first in range(0, len(ids), PAGE):
        best.offer(*reader.vectors_of(ids[first : first + PAGE].tolist(), dimensions))


def _pages(reader: IndexReader) -> Iterator[Rows]:
    after = 0
    while rows := reader.embeddings_after(after, PAGE):
        yield rows
        after = rows[-1][0]


def sample_mean(reader: IndexReader, dimensions: int) -> Vectors:
    """The mean of a few thousand vectors from all over the index; zeros when there are none."""
    starts = np.linspace(0, reader.last_embedding(), _SAMPLED_PLACES, endpoint=False, dtype=np.int64)
    rows = {row[0]: row for start in starts.tolist() for row in reader.embeddings_after(start, _SAMPLED_RUN)}
    _, vectors = from_blobs(rows.values(), dimensions)
    return vectors.mean(axis=0, dtype=np.float32) if len(vectors) else np.zeros(dimensions, np.float32)
