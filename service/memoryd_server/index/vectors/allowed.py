"""Which chunks a question about some sources may be answered with."""

from collections.abc import Sequence

import numpy as np

from memoryd_server.index.reader import IndexReader
from memoryd_server.index.vectors.floats import Ids
from memoryd_server.model import Source


class AllowedChunks:
    """The answer to the last such question, true as long as the revision is the index's. For any thread."""

    def __init__(self) -> None:
        self._last: tuple[int, frozenset[Source], Ids] | None = None

    def ids(self, reader: IndexReader, sources: Sequence[Source]) -> Ids | None:
        """The chunks of these sources in the reader's snapshot, sorted; None when no chunk is left out."""
        wanted = frozenset(sources)
        if not wanted or wanted == frozenset(Source):
            return None
        revision = reader.revision()
        last = self._last
        if last is not None and last[:2] == (revision, wanted):
            return last[2]
        ids = np.sort(np.array(reader.chunk_ids(sorted(wanted)), np.int64))
        self._last = (revision, wanted, ids)
        return ids

    def forget(self) -> None:
        """Gives the memory back."""
        self._last = None

    @property
    def memory_bytes(self) -> int:
        """What is remembered takes."""
        return 0 if self._last is None else self._last[2].nbytes
