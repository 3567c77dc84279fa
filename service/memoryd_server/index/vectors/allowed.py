"""Which chunks a question about some sources may be answered with."""

from collections.abc import Sequence

import numpy as np

from memoryd_server.index.floats import Ids
from memoryd_server.index.reader import IndexReader
from memoryd_server.model import Source


class AllowedChunks:
    """The answers to such questions, true as long as their revision is the index's. For any thread."""

    def __init__(self) -> None:
        self._known: dict[frozenset[Source], tuple[int, Ids]] = {}

    def ids(self, reader: IndexReader, sources: Sequence[Source]) -> Ids | None:
        """The chunks of these sources in the reader's snapshot, sorted; None when no chunk is left out."""
        wanted = frozenset(sources)
        if not wanted or wanted == frozenset(Source):
            return None
        revision = reader.revision
        known = self._known.get(wanted)
        if known is not None and known[0] == revision:
            return known[1]
        ids = np.sort(np.array(reader.chunk_ids(sorted(wanted)), np.int64))
        self._known = {**self._known, wanted: (revision, ids)}
        return ids

    def forget(self) -> None:
        """Gives the memory back."""
        self._known = {}

    @property
    def memory_bytes(self) -> int:
        """What is remembered takes."""
        return sum(ids.nbytes for _, ids in self._known.values())
