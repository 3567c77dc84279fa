"""Which chunks a question about some sources may be answered with."""

from collections.abc import Sequence

import numpy as np

from memoryd_server.index.reader import IndexReader
from memoryd_server.model import Source
from memoryd_server.vectors import Ids


def restricting(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources of a filter, each once; empty if the filter leaves no chunk out."""
    wanted = frozenset(sources)
    return () if wanted == frozenset(Source) else tuple(sorted(wanted))


class AllowedChunks:
    """The answers to such questions, true as long as their revision is the index's. For any thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[Source, ...], tuple[int, Ids]] = {}

    def ids(self, reader: IndexReader, sources: tuple[Source, ...]) -> Ids | None:
        """Return the sorted chunks of `restricting` sources in the reader's snapshot; None if there are no sources."""
        if not sources:
            return None
        revision = reader.revision
        known = self._known.get(sources)
        if known is not None and known[0] == revision:
            return known[1]
        ids = np.sort(np.array(reader.chunk_ids(sources), np.int64))
        self._known = {**self._known, sources: (revision, ids)}
        return ids

    def forget(self) -> None:
        """Gives the memory back."""
        self._known = {}

    @property
    def memory_bytes(self) -> int:
        """What is remembered takes."""
        return sum(ids.nbytes for _, ids in self._known.values())
