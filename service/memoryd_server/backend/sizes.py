"""What an agent's files take up on the disk."""

from dataclasses import dataclass
from pathlib import Path

from memoryd_server.store.protocol import StoreSizes


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the index, of its write-ahead log, and of the cache of embeddings with its own."""

    database_bytes: int
    wal_bytes: int
    cache_bytes: int


def sizes(index: StoreSizes, cache: Path) -> Sizes:
    """The sizes of an index and of its cache, whose files may come and go; one that is not there has none. Blocks."""
    return Sizes(index.database_bytes, index.log_bytes, _bytes(cache) + _bytes(_log_of(cache)))


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
