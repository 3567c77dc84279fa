"""What providers of embeddings were asked for on behalf of one index, counted over restarts."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from memoryd_server.errors import MemorydError
from memoryd_server.providers import EmbeddingProvider
from memoryd_server.store import ProviderModel, VectorCache


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """Calls, their retries and the tokens sent; vectors that came from the cache instead."""

    calls: int = 0
    tokens: int = 0
    retries: int = 0
    cache_hits: int = 0

    def __add__(self, other: "ProviderUsage") -> "ProviderUsage":
        return ProviderUsage(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.retries + other.retries,
            self.cache_hits + other.cache_hits,
        )


class UsageRecorder:
    """Keeps count of the providers of one agent, in its cache's file. Thread-safe.

    A provider that agents share is counted with what all of them ask, from when it is watched; cache hits are the
    agent's own. What was not saved when the process is killed is not counted.
    """

    def __init__(self, cache: Callable[[], VectorCache | None]) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._seen: dict[EmbeddingProvider, ProviderUsage] = {}
        self._totals: dict[ProviderModel, ProviderUsage] = {}
        self._saved: dict[ProviderModel, ProviderUsage] = {}
        self._loaded = False

    def watch(self, provider: EmbeddingProvider) -> None:
        """Counts this provider from now on."""
        with self._lock:
            self._seen.setdefault(provider, _told(provider))

    def load(self) -> None:
        """Adds what the file holds; once. Blocks."""
        cache = self._cache()
        if cache is None or self._loaded:
            return
        with suppress(MemorydError):
            # Not under the lock, which the event loop's thread takes.
            held = cache.usage()
            with self._lock:
                if self._loaded:
                    return
                self._loaded = True
                for maker, counts in held.items():
                    self._add(maker, ProviderUsage(*counts))
                    self._saved[maker] = ProviderUsage(*counts)

    def hit(self, provider: EmbeddingProvider, count: int) -> None:
        """So many vectors of this provider have come from the cache."""
        with self._lock:
            self._add(_maker(provider), ProviderUsage(cache_hits=count))

    def totals(self) -> dict[ProviderModel, ProviderUsage]:
        """What each provider and model was asked for until now; those that never were are left out."""
        with self._lock:
            self._count()
            return {maker: usage for maker, usage in self._totals.items() if usage != ProviderUsage()}

    def save(self) -> None:
        """Writes what was counted since the last time. Blocks; what cannot be written now is written later."""
        if not self._seen:
            return
        self.load()
        cache = self._cache()
        totals = self.totals()
        if cache is None or not self._loaded or totals == self._saved:
            return
        with suppress(MemorydError):
            cache.record_usage({maker: (u.calls, u.tokens, u.retries, u.cache_hits) for maker, u in totals.items()})
            self._saved = totals

    def _count(self) -> None:
        for provider, before in self._seen.items():
            now = _told(provider)
            self._seen[provider] = now
            self._add(
                _maker(provider),
                ProviderUsage(now.calls - before.calls, now.tokens - before.tokens, now.retries - before.retries),
            )

    def _add(self, maker: ProviderModel, usage: ProviderUsage) -> None:
        self._totals[maker] = self._totals.get(maker, ProviderUsage()) + usage


def _maker(provider: EmbeddingProvider) -> ProviderModel:
    spec = provider.spec
    return spec.provider, spec.model


def _told(provider: EmbeddingProvider) -> ProviderUsage:
    status = provider.status()
    return ProviderUsage(status.calls, status.tokens, status.retries)
