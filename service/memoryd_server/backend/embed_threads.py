"""Threads that wait for embedding providers: each has its own, so that one that hangs delays no other's callers."""

import threading
from concurrent.futures import ThreadPoolExecutor

from memoryd_server.embed import EmbeddingProvider

THREADS_A_PROVIDER = 8


class EmbedThreads:
    """Hands out one executor a provider; agents that share a provider share its threads. Thread-safe.

    An executor starts its threads one by one, when there is something to wait for.
    """

    def __init__(self, each: int = THREADS_A_PROVIDER) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._executors: dict[EmbeddingProvider, ThreadPoolExecutor] = {}

    def of(self, provider: EmbeddingProvider) -> ThreadPoolExecutor:
        """The threads of this provider."""
        with self._lock:
            threads = self._executors.get(provider)
            if threads is None:
                name = f"embed-{len(self._executors)}"
                threads = self._executors[provider] = ThreadPoolExecutor(self._each, thread_name_prefix=name)
            return threads

    def shutdown(self) -> None:
        """Takes no more calls and drops those that wait; does not wait for those under way."""
        with self._lock:
            for threads in self._executors.values():
                threads.shutdown(wait=False, cancel_futures=True)
