"""ChunkRowCache: rows of chunks that searches have read, for one state of the index."""

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from memoryd_server.store import ChunkRow

MAX_BYTES: Final = 4 * 2**20
"""The limit of a cache, in bytes: the texts in memory, and for each row `_BYTES_PER_ROW` and its line numbers."""

_BYTES_PER_ROW = 600
_BYTES_PER_LINE_NUMBER = 36

State = tuple[int, int]
"""The revision, and how often file times changed without a new revision (`schema.TOUCHES`)."""


class ChunkRowCache:
    """Rows by id, each valid for the state in which it was read. Thread-safe. If full, it evicts the oldest entries."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._state: State | None = None
        self._rows: dict[int, ChunkRow] = {}
        self._bytes = 0

    def get(self, state: State, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """Return those of these rows that were added in this state."""
        with self._lock:
            rows = self._rows
            return {chunk_id: rows[chunk_id] for chunk_id in ids if chunk_id in rows} if self._state == state else {}

    def add(self, state: State, rows: Mapping[int, ChunkRow]) -> None:
        """Add rows that were read in `state`, and drop those of an earlier one. Ignored if a later state is cached."""
        with self._lock:
            # A search may still read the snapshot before the last commit.
            if self._state is not None and self._state > state:
                return
            if self._state != state:
                self._state, self._rows, self._bytes = state, {}, 0
            for chunk_id, row in rows.items():
                if chunk_id not in self._rows:
                    self._rows[chunk_id] = row
                    self._bytes += _bytes_of(row)
            while self._bytes > self._max_bytes:
                self._bytes -= _bytes_of(self._rows.pop(next(iter(self._rows))))


def _bytes_of(row: ChunkRow) -> int:
    return sys.getsizeof(row.text) + _BYTES_PER_ROW + _BYTES_PER_LINE_NUMBER * len(row.line_numbers)
