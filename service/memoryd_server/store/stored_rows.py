"""Histories and caches as they are stored, for copies from one store into another.

The functions block, and read the rows in order, a few at a time, so that a copy needs little memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memoryd_server.store.history import WriteRecord
from memoryd_server.store.rows import BatchJob, CacheKey, Counts


@dataclass(frozen=True, slots=True)
class StoredContent:
    """A content of a history: its SHA-256, its size in bytes, and its bytes, compressed with zlib."""

    digest: bytes
    size_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """A history of writes. `next_sequence` is the sequence number of its next record, `count` the number of records.

    `records` returns the records from a sequence number on, oldest first, and `content` a content by its SHA-256; None
    if it is not stored.
    """

    next_sequence: int
    count: int
    records: Callable[[int], Iterator[WriteRecord]]
    content: Callable[[bytes], StoredContent | None]


class CachedVector(NamedTuple):
    """The vector of a text, by the SHA-256 of the text, and when it was last used, in Unix milliseconds."""

    hash: bytes
    vector: bytes
    used_at_ms: int


@dataclass(frozen=True, slots=True)
class RefusedText:
    """A text that a provider has refused, by its SHA-256, with the reason and the time in Unix milliseconds."""

    key: CacheKey
    hash: bytes
    reason: str
    refused_at_ms: int


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """The total usage of a model."""

    provider: str
    model: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class StoredBatchJob:
    """A running batch job, with the SHA-256 of its texts."""

    key: CacheKey
    job: BatchJob
    hashes: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StoredCache:
    """An embedding cache. `count` is the number of vectors, which `vectors` returns in batches of one cache key."""

    count: int
    vectors: Callable[[], Iterator[tuple[CacheKey, list[CachedVector]]]]
    refused: Sequence[RefusedText]
    usage: Sequence[StoredUsage]
    jobs: Sequence[StoredBatchJob]
