"""check_files: whether the files of chunks exist, and whether they are as they were when they were indexed."""

from collections.abc import Sequence
from functools import lru_cache

from memoryd_server.errors import MemorydError
from memoryd_server.model import FileStat, Source, stored
from memoryd_server.sources import Corpus, Location
from memoryd_server.store import ChunkRow

# Paths of indexed files, of all agents. No request can add others.
_MOST_PATHS_KEPT = 4_096


def check_files(corpus: Corpus, rows: Sequence[ChunkRow], files: Corpus | None = None) -> list[tuple[bool, bool]]:
    """Return for each chunk whether its file exists, and whether the file is unchanged since it was indexed.

    The files are those of `files`, which is another view of the same corpus, if it is not None.
    """
    places = {row.path: place for row in rows if (place := _place(corpus, row.path)) is not None}
    stats = dict(zip(places, (files or corpus).stat(list(places.values())), strict=True))
    return [_as_indexed(row, stats.get(row.path)) for row in rows]


@lru_cache(_MOST_PATHS_KEPT)
def _place(corpus: Corpus, path: str) -> Location | None:
    """Return the location of a path; None if the corpus no longer contains it."""
    try:
        return corpus.resolve(path)
    except MemorydError:
        return None


def _as_indexed(row: ChunkRow, stat: FileStat | None) -> tuple[bool, bool]:
    if stat is None:
        return False, False
    if row.source is Source.SESSIONS:
        # A transcript that has grown is not stale: its new lines are indexed once they are due.
        return True, stat.size_bytes >= row.size_bytes
    same_time = stat.mtime_ns == row.mtime_ns or stored(stat).mtime_ns == row.mtime_ns
    return True, stat.size_bytes == row.size_bytes and same_time
