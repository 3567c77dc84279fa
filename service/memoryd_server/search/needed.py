"""The chunks that a search shows, read when it comes to them: of a hundred candidates it looks at ten."""

from collections.abc import Sequence

from memoryd_server.index.reader import IndexReader
from memoryd_server.index.rows import ChunkRow

# As many as a search with the default number of results looks at, mostly.
_AT_ONCE = 8


class RowsAsNeeded(dict[int, ChunkRow]):
    """Rows by chunk id; `ids` are those that may be asked for, in the order in which they will be.

    Raises:
        KeyError: a chunk is none of them.
    """

    def __init__(self, reader: IndexReader, ids: Sequence[int]) -> None:
        super().__init__()
        self._reader = reader
        self._ids = ids

    def __missing__(self, chunk_id: int) -> ChunkRow:
        try:
            start = self._ids.index(chunk_id)
        except ValueError:
            raise KeyError(chunk_id) from None
        self.update(self._reader.chunks(self._ids[start : start + _AT_ONCE]))
        return self[chunk_id]
