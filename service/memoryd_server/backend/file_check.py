"""Whether what a search has found is still there."""

from functools import lru_cache

from memoryd_server.errors import MemorydError
from memoryd_server.index.plan import stored
from memoryd_server.index.rows import ChunkRow
from memoryd_server.model import Source
from memoryd_server.sources import stat_file
from memoryd_server.sources.corpus import Corpus
from memoryd_server.sources.roots import Location

# Paths of indexed files, of all agents; nobody's request can name others.
_MOST_PATHS_KEPT = 4_096


@lru_cache(_MOST_PATHS_KEPT)
def _place(corpus: Corpus, path: str) -> Location:
    return corpus.resolve(path)


def look_at(corpus: Corpus, row: ChunkRow) -> tuple[bool, bool]:
    """Whether a chunk's file is there, and whether it is as it was when it was indexed."""
    try:
        stat = stat_file(_place(corpus, row.path))
    except (MemorydError, OSError):
        return False, False
    if stat is None:
        return False, False
    now = stored(stat)
    if row.source is Source.SESSIONS:
        # What it has grown by is not missing: it waits until it is due.
        return True, now.size_bytes >= row.size_bytes
    return True, (now.size_bytes, now.mtime_ns) == (row.size_bytes, row.mtime_ns)
