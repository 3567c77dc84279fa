"""Whether what a search has found is still there."""

from collections.abc import Sequence
from functools import lru_cache

from memoryd_server.errors import MemorydError
from memoryd_server.index.plan import stored
from memoryd_server.model import FileStat, Source
from memoryd_server.sources import Location, stat_files
from memoryd_server.sources.corpus import Corpus
from memoryd_server.store.rows import ChunkRow

# Paths of indexed files, of all agents; nobody's request can name others.
_MOST_PATHS_KEPT = 4_096


def look_at(corpus: Corpus, rows: Sequence[ChunkRow]) -> list[tuple[bool, bool]]:
    """Whether each chunk's file is there, and whether it is as it was when it was indexed."""
    places = {row.path: place for row in rows if (place := _place(corpus, row.path)) is not None}
    stats = dict(zip(places, stat_files(list(places.values())), strict=True))
    return [_as_indexed(row, stats.get(row.path)) for row in rows]


@lru_cache(_MOST_PATHS_KEPT)
def _place(corpus: Corpus, path: str) -> Location | None:
    """Where a path points; None where it is no longer one of the corpus."""
    try:
        return corpus.resolve(path)
    except MemorydError:
        return None


def _as_indexed(row: ChunkRow, stat: FileStat | None) -> tuple[bool, bool]:
    if stat is None:
        return False, False
    now = stored(stat)
    if row.source is Source.SESSIONS:
        # What it has grown by is not missing: it waits until it is due.
        return True, now.size_bytes >= row.size_bytes
    return True, (now.size_bytes, now.mtime_ns) == (row.size_bytes, row.mtime_ns)
