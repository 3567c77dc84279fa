"""FilterCache: the chunks that a filter leaves, as sorted ids and as a mask, cached for one state of the index.

A filter is resolved once, to the ids of its chunks. Both retrievers then compare ids only, whatever the conditions
are. SQLite reads the mask, a blob with one byte per id, by `IN_MASK`: this costs a tenth of a microsecond per row, and
less than a table of the ids (docs/decisions/0039-filters-are-resolved-to-chunk-ids.md).
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Self

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import Source
from memoryd_server.sqlite import readers
from memoryd_server.store import ChunkFilter, FileFilter, FileKey
from memoryd_server.vectors import Ids

MAX_FILTERS: Final = 16
"""The most filters in a cache; the least recently used is dropped."""
MAX_BYTES: Final = 16 * 2**20
"""The most bytes of a cache that has more than one filter."""

IN_MASK: Final = "substr(?, {id} + 1, 1) = x'01'"
"""An SQL condition on `id`, which takes the mask of a `ChunkSet`."""

_MOST_NS = 2**63 - 1
_DAY_NS = 86_400 * 10**9
_EPOCH = date(1970, 1, 1)
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class ChunkSet:
    """Chunk ids, ascending, and their mask: the byte at the position of an id in the set is 1."""

    ids: Ids
    mask: bytes

    @classmethod
    def of(cls, ids: Ids) -> Self:
        """Return the set of these ids, given in any order."""
        ids = np.sort(ids)
        mask = np.zeros(int(ids[-1]) + 1 if len(ids) else 0, np.uint8)
        mask[ids] = 1
        return cls(ids, mask.tobytes())

    def __bool__(self) -> bool:
        """Return whether the set has any chunk."""
        return bool(self.mask)

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Return for each id whether it is in the set."""
        if not self:
            return np.zeros(len(ids), np.bool_)
        mask = np.frombuffer(self.mask, np.bool_)
        return mask[np.minimum(ids, len(mask) - 1)] & (ids < len(mask))

    @property
    def bytes(self) -> int:
        """The bytes of ids and mask."""
        return self.ids.nbytes + len(self.mask)


SnapshotState = tuple[int, int]
"""The revision of an index, and the number of changes of file times that did not raise it."""


class FilterCache:
    """The chunks of the filters that were used last, shared by all readers of an index. Thread-safe."""

    def __init__(self, max_filters: int = MAX_FILTERS, max_bytes: int = MAX_BYTES) -> None:
        self._guard = threading.Lock()
        self._sets: OrderedDict[ChunkFilter, tuple[SnapshotState, ChunkSet]] = OrderedDict()
        self._max_filters = max_filters
        self._max_bytes = max_bytes

    def get(self, connection: apsw.Connection, state: SnapshotState, among: ChunkFilter) -> ChunkSet:
        """Return the chunks of the connection's snapshot, which is of `state`, that a filter leaves."""
        with self._guard:
            known = self._sets.get(among)
            if known is not None and known[0] == state:
                self._sets.move_to_end(among)
                return known[1]
        found = ChunkSet.of(chunk_ids(connection, among))
        with self._guard:
            self._sets[among] = (state, found)
            self._sets.move_to_end(among)
            while len(self._sets) > self._max_filters or (len(self._sets) > 1 and self._bytes() > self._max_bytes):
                self._sets.popitem(last=False)
        return found

    def clear(self) -> None:
        """Drop all filters."""
        with self._guard:
            self._sets.clear()

    @property
    def memory_bytes(self) -> int:
        """The bytes of all cached chunks."""
        with self._guard:
            return self._bytes()

    def _bytes(self) -> int:
        return sum(found.bytes for _, found in self._sets.values())


def chunk_ids(connection: apsw.Connection, among: ChunkFilter) -> Ids:
    """Return the ids of the chunks that a filter leaves, in no order. Takes 3 to 5 ms for 15,000 chunks."""
    terms, values = _file_terms(among.files, among.sources)
    # CROSS makes the files the outer table, so that one range of the index of chunks is read per file.
    tables = "files CROSS JOIN chunks ON file_id = files.id" if terms else "chunks"
    if among.origins:
        terms.append(f"origin IN ({_marks(among.origins)})")
        values += among.origins
    return readers.ids(connection, f"SELECT chunks.id AS id FROM {tables}{_where(terms)}", tuple(values))  # noqa: S608 -- constants and marks


def file_keys(connection: apsw.Connection, among: ChunkFilter) -> frozenset[FileKey]:
    """Return the files that match the conditions of a filter on files and sources."""
    terms, values = _file_terms(among.files, among.sources)
    rows = connection.execute(f"SELECT source, path FROM files{_where(terms)}", tuple(values))  # noqa: S608 -- constants and marks
    return frozenset((Source(str(source)), str(path)) for source, path in rows)


def _file_terms(files: FileFilter, sources: tuple[Source, ...]) -> tuple[list[str], list[Any]]:
    """Return SQL conditions on the table of files, and their bindings."""
    terms: list[str] = []
    values: list[Any] = []
    is_dated = files.since is not None or files.until is not None
    # "+" makes SQLite scan the index of dates, which has all columns, instead of looking up each row of a source.
    plus = "+" if is_dated else ""
    if sources or files.path_prefixes:
        wanted = sources or tuple(Source)
        terms.append(f"{plus}source IN ({_marks(wanted)})")
        values += wanted
    if files.path_prefixes:
        ranges = [_path_range(f"{plus}path", prefix) for prefix in files.path_prefixes]
        terms.append(f"({' OR '.join(term for term, _ in ranges)})")
        values += [value for _, bounds in ranges for value in bounds]
    if is_dated:
        first, last = files.since or date.min, files.until or date.max
        terms.append(
            "CASE WHEN files.date IS NULL THEN mtime_ns BETWEEN ? AND ? ELSE files.date BETWEEN ? AND ? END",
        )
        values += [*_nanoseconds(first, last), first.isoformat(), last.isoformat()]
    for condition in files.front_matter:
        values += [condition.key, *condition.values]
        marks = _marks(condition.values)
        terms.append(f"files.id IN (SELECT file_id FROM front_matter WHERE key = ? AND value IN ({marks}))")  # noqa: S608 -- marks
    return terms, values


def _marks(values: tuple[Any, ...]) -> str:
    return ",".join("?" * len(values))


def _where(terms: list[str]) -> str:
    return f" WHERE {' AND '.join(terms)}" if terms else ""


def _path_range(path: str, prefix: str) -> tuple[str, list[str]]:
    """Return a condition that is true if the column `path` begins with `prefix`, as a range of the index of paths."""
    # The order of UTF-8 is that of the code points.
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return f"{path} >= ?", [prefix]
    following = ord(kept[-1]) + 1
    # Surrogates cannot be encoded.
    after = kept[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)  # noqa: PLR2004 -- Unicode
    return f"({path} >= ? AND {path} < ?)", [prefix, after]


def _nanoseconds(first: date, last: date) -> tuple[int, int]:
    """Return the first and the last Unix nanosecond of a range of days in UTC, as the index stores them."""
    start, end = (first - _EPOCH).days * _DAY_NS, ((last - _EPOCH).days + 1) * _DAY_NS - 1
    return min(max(start, -_MOST_NS), _MOST_NS), min(max(end, -_MOST_NS), _MOST_NS)
