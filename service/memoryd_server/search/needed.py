"""The chunks that a search shows, read when it comes to them: of a hundred candidates it looks at ten."""

from collections.abc import Sequence

from memoryd_server.index.reader import IndexReader
from memoryd_server.index.rows import ChunkRow

# As many as a search with the default number of results looks at, mostly.
_AT_ONCE = 8


class RowsAsNeeded:
    """Rows of the chunks `ids`, which will be asked for in about this order."""

    def __init__(self, reader: IndexReader, ids: Sequence[int]) -> None:
        self._reader = reader
        self._ids = ids
        self._found: dict[int, ChunkRow | None] = {}

    def get(self, chunk_id: int) -> ChunkRow | None:
        """One of them; None where the index holds no such chunk."""
        if chunk_id not in self._found:
            start = self._ids.index(chunk_id)
            some = self._ids[start : start + _AT_ONCE]
            self._found |= dict.fromkeys(some) | self._reader.chunks(some)
        return self._found[chunk_id]
