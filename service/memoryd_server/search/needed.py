"""The chunks that a search shows, read when it comes to them: of a hundred candidates it looks at ten."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from memoryd_server.store.protocol import Reader
from memoryd_server.store.rows import ChunkRow

# Whether the file of each of these chunks is still there, and as it was when it was indexed: (there, unchanged).
FileCheck = Callable[[Sequence[ChunkRow]], Sequence[tuple[bool, bool]]]

# As many as a search with the default number of results looks at, mostly.
_AT_ONCE = 8


class LookedAt(NamedTuple):
    """A chunk, and what its file is like."""

    row: ChunkRow
    there: bool
    unchanged: bool


class RowsAsNeeded:
    """Rows of the chunks `ids`, which will be asked for in about this order, with a look at their files."""

    def __init__(self, reader: Reader, ids: Sequence[int], check: FileCheck) -> None:
        self._reader = reader
        self._ids = ids
        self._check = check
        self._found: dict[int, LookedAt | None] = {}

    def get(self, chunk_id: int) -> LookedAt | None:
        """One of them; None where the index holds no such chunk."""
        if chunk_id not in self._found:
            start = self._ids.index(chunk_id)
            some = self._ids[start : start + _AT_ONCE]
            rows = list(self._reader.chunks(some).values())
            self._found |= dict.fromkeys(some)
            self._found |= {row.id: LookedAt(row, *seen) for row, seen in zip(rows, self._check(rows), strict=True)}
        return self._found[chunk_id]
