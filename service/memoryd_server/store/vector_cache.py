"""The protocols of what is stored separately from an index: VectorCache and BatchJobTable."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from memoryd_server.model import Degradation
from memoryd_server.store.rows import BatchJob, CacheKey, Counts, ProviderModel

MAX_COUNT: Final = 2**62
"""The largest number of calls, tokens, retries or cache hits; a sum above it stays there."""


class BatchJobTable(Protocol):
    """The providers' running batch jobs. Thread-safe; each call is durable when it returns."""

    def add(self, key: CacheKey, job: BatchJob, hashes: Collection[bytes]) -> None:
        """Store a job before it is submitted."""

    def set_job_id(self, name: str, job_id: str) -> None:
        """Store the provider's id of a job."""

    def jobs(self, key: CacheKey) -> list[BatchJob]:
        """Return the running jobs, oldest first."""

    def hashes(self, key: CacheKey) -> set[bytes]:
        """Return the hashes of the texts in running jobs."""

    def hashes_of(self, name: str) -> set[bytes]:
        """Return the hashes of the texts in one job."""

    def put_vectors(self, key: CacheKey, name: str, vectors: Mapping[bytes, bytes]) -> list[bytes]:
        """Put a job's vectors into the cache; return the hashes of those texts that the job still lists.

        A text leaves the job when `VectorCache.forget` deletes it.
        """

    def delete(self, name: str) -> None:
        """Delete a job that will bring no more vectors."""


class VectorCache(Protocol):
    """Vectors by cache key and SHA-256 of their text, stored separately from the index. Thread-safe.

    The cache also stores the texts that a provider has refused, the usage of each provider, and the batch jobs.
    """

    max_entries: int

    @property
    def jobs(self) -> BatchJobTable:
        """The running batch jobs."""

    @property
    def problem(self) -> Degradation | None:
        """Why the cache was replaced or is not on disk; None if it is intact."""

    def get(self, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached vectors of these texts, by hash; a hit counts as a use."""

    def put(self, key: CacheKey, vectors: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Store vectors by hash; beyond `max_entries` the least recently used are dropped."""

    def refusals(self, key: CacheKey) -> dict[bytes, str]:
        """Return the provider's reasons for refusing texts within the last day, by text hash."""

    def add_refusals(self, key: CacheKey, reasons: Mapping[bytes, str]) -> None:
        """Store the provider's reasons for refusing texts, by text hash."""

    def clear_refusals(self) -> None:
        """Delete every refusal, of all providers."""

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Delete what is stored of these texts; return the number of vectors deleted."""

    def count(self) -> int:
        """Return the number of cached vectors."""

    def usage(self) -> dict[ProviderModel, Counts]:
        """Return the total usage of each provider and model."""

    def add_usage(self, usage: Mapping[ProviderModel, Counts]) -> None:
        """Add to the total usage of providers and models, up to `MAX_COUNT`."""

    def release_memory(self) -> None:
        """Close the file until it is used again."""

    def close(self) -> None:
        """Close the cache. Idempotent."""
