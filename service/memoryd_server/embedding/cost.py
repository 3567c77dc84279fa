"""The cost of embedding: the estimate and its limit before the provider is called, and the usage afterwards.

`EmbeddingCost` estimates the tokens of missing vectors; above `CostLimit` they need the operator's confirmation.
`UsageRecorder` counts calls, tokens, retries and cache hits per provider, for one index, across restarts.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from memoryd_server.errors import MemorydError
from memoryd_server.providers import EmbeddingProvider, leaves_machine
from memoryd_server.store import MAX_COUNT, ProviderModel, VectorCache

# A rough estimate, usually too high: providers count about four bytes of prose per token.
BYTES_A_TOKEN = 4

# Databases and protobuf store 64 bits.


def estimate_tokens(text: str) -> int:
    """Return the approximate number of tokens of a text."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)


@dataclass(frozen=True, slots=True)
class EmbeddingCost:
    """The chunks to send to the provider, and the approximate number of their tokens."""

    chunks: int = 0
    tokens: int = 0

    def __add__(self, other: "EmbeddingCost") -> "EmbeddingCost":
        return EmbeddingCost(self.chunks + other.chunks, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class CostLimit:
    """The number of tokens above which sending texts to another machine needs confirmation; 0 means never.

    `remote` is whether the provider is on another machine.
    """

    confirm_above_tokens: int
    remote: bool

    @classmethod
    def of(cls, provider: EmbeddingProvider, confirm_above_tokens: int) -> "CostLimit":
        """Return the limit for the texts that are sent to this provider."""
        return cls(confirm_above_tokens, leaves_machine(provider.spec))

    def refuses(self, tokens: int) -> bool:
        """Return whether this number of tokens needs confirmation."""
        return self.remote and 0 < self.confirm_above_tokens < tokens


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """Calls, tokens sent, retries, and vectors that came from the cache instead."""

    calls: int = 0
    tokens: int = 0
    retries: int = 0
    cache_hits: int = 0

    def __add__(self, other: "ProviderUsage") -> "ProviderUsage":
        return ProviderUsage(
            min(self.calls + other.calls, MAX_COUNT),
            min(self.tokens + other.tokens, MAX_COUNT),
            min(self.retries + other.retries, MAX_COUNT),
            min(self.cache_hits + other.cache_hits, MAX_COUNT),
        )

    def __sub__(self, other: "ProviderUsage") -> "ProviderUsage":
        return ProviderUsage(
            self.calls - other.calls,
            self.tokens - other.tokens,
            self.retries - other.retries,
            self.cache_hits - other.cache_hits,
        )


class UsageRecorder:
    """Counts the usage of one agent's providers, and adds it to what the cache stores. Thread-safe.

    A provider that agents share is counted with the calls of all of them, from when it is watched; cache hits are the
    agent's own. Usage that was not saved before the process is killed is lost. Other processes may add to the same
    cache.
    """

    def __init__(self, cache: Callable[[], VectorCache | None]) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._seen: dict[EmbeddingProvider, ProviderUsage] = {}
        # What the cache had when it was last read, and what was counted since and is not added yet.
        self._stored: dict[ProviderModel, ProviderUsage] = {}
        self._unsaved: dict[ProviderModel, ProviderUsage] = {}
        self._loaded = False

    def watch(self, provider: EmbeddingProvider) -> None:
        """Count this provider's usage from now on."""
        with self._lock:
            self._seen.setdefault(provider, _reported_usage(provider))

    def load(self) -> None:
        """Read the stored usage, once. Blocks."""
        cache = self._cache()
        if cache is not None and not self._loaded:
            with suppress(MemorydError):
                self._read(cache)

    def _read(self, cache: VectorCache) -> None:
        # Not under the lock, which the event loop's thread takes.
        stored = {each: ProviderUsage(*counts) for each, counts in cache.usage().items()}
        with self._lock:
            self._stored = stored
            self._loaded = True

    def count_cache_hits(self, provider: EmbeddingProvider, count: int) -> None:
        """Add `count` vectors of this provider that came from the cache."""
        with self._lock:
            self._add(_provider_model(provider), ProviderUsage(cache_hits=count))

    def totals(self) -> dict[ProviderModel, ProviderUsage]:
        """Return the usage of each provider and model; those without any are left out."""
        with self._lock:
            self._count()
            totals = dict(self._stored)
            for each, usage in self._unsaved.items():
                totals[each] = totals.get(each, ProviderUsage()) + usage
        return {each: usage for each, usage in totals.items() if usage != ProviderUsage()}

    def save(self) -> None:
        """Store the usage counted since the last call. Blocks. If it cannot be stored, the next call tries again."""
        if not self._seen:
            return
        self.load()
        cache = self._cache()
        with self._lock:
            self._count()
            added = {each: usage for each, usage in self._unsaved.items() if usage != ProviderUsage()}
        if cache is None or not self._loaded or not added:
            return
        with suppress(MemorydError):
            cache.add_usage({each: (u.calls, u.tokens, u.retries, u.cache_hits) for each, u in added.items()})
            with self._lock:
                for each, usage in added.items():
                    self._stored[each] = self._stored.get(each, ProviderUsage()) + usage
                    self._unsaved[each] -= usage
            self._read(cache)

    def _count(self) -> None:
        for provider, before in self._seen.items():
            now = _reported_usage(provider)
            self._seen[provider] = now
            self._add(_provider_model(provider), now - before)

    def _add(self, provider_model: ProviderModel, usage: ProviderUsage) -> None:
        self._unsaved[provider_model] = self._unsaved.get(provider_model, ProviderUsage()) + usage


def _provider_model(provider: EmbeddingProvider) -> ProviderModel:
    spec = provider.spec
    return spec.provider, spec.model


def _reported_usage(provider: EmbeddingProvider) -> ProviderUsage:
    status = provider.status()
    return ProviderUsage(status.calls, status.tokens, status.retries)
