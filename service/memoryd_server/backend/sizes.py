"""What an agent's files take up on the disk."""

from dataclasses import dataclass
from pathlib import Path

from memoryd_server.index.condition import size_bytes
from memoryd_server.store.protocol import StoreSizes


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the index, of its write-ahead log, and of the cache of embeddings with its own."""

    database_bytes: int
    wal_bytes: int
    cache_bytes: int


def sizes(index: StoreSizes, cache: Path) -> Sizes:
    """Return the sizes in bytes; 0 for a missing file. Blocks."""
    return Sizes(index.database_bytes, index.log_bytes, sum(size_bytes(cache)))
