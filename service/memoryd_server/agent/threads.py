"""Pools shared by agents, each limited.

Threads that all agents share, and of which no agent can take all.

Threads that wait for embedding providers: each has its own, so that one that hangs delays no other's callers.

They are daemons, as a provider that hangs must not keep the process from ending.

What all agents share: threads, turns, and the words that the analyzer remembers.

Memory that was freed goes back to the system, once for all agents that freed some in a while.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from memoryd_server.providers import EmbeddingProvider
from memoryd_server.sources import SharedInotify
from memoryd_server.system import give_back
from memoryd_server.text import Analyzer
from memoryd_server.threads import _carry_out, _DaemonThreads, _Job

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SharedPool:
    """`count` threads, of which each share has `each` at most, so that one whose disk hangs leaves the others some.

    Those who wait come in turn: a share has no more than `each` calls in the common queue, whatever it was given.
    """

    def __init__(self, count: int, each: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._each = each

    def share(self) -> Executor:
        """An executor for one agent."""
        return _Share(self._pool, self._each)

    def shutdown(self) -> None:
        """Takes no more calls, cancels those that wait, and waits for none that is at work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Share(Executor):
    """Calls beyond `most` wait here, in the order in which they came."""

    def __init__(self, pool: ThreadPoolExecutor, most: int) -> None:
        self._pool = pool
        self._most = most
        self._lock = threading.Lock()
        self._given = 0
        self._waiting: deque[_Job] = deque()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """What `fn` will return.

        Raises:
            RuntimeError: the threads were shut down.
        """
        future: Future[_T] = Future()
        job = (future, partial(fn, *args, **kwargs))
        with self._lock:
            if self._given < self._most:
                self._give(job)
                self._given += 1
            else:
                self._waiting.append(job)
        return future

    def _give(self, job: _Job) -> None:
        self._pool.submit(self._run, job).add_done_callback(partial(self._given_up, job))

    def _run(self, job: _Job) -> None:
        _carry_out(job)
        with self._lock:
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            try:
                return self._give(job)
            except RuntimeError:
                job[0].cancel()
        self._given -= 1
        return None

    def _given_up(self, job: _Job, given: "Future[None]") -> None:
        """Passes on that a shutdown has cancelled what it found in the common queue."""
        if not given.cancelled():
            return
        job[0].cancel()
        with self._lock:
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()


THREADS_A_PROVIDER = 8


class ProviderExecutors:
    """Hands out one executor a provider; agents that share a provider share its threads. Thread-safe.

    An executor starts its threads one by one, when there is something to wait for.
    """

    def __init__(self, each: int = THREADS_A_PROVIDER) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._executors: dict[EmbeddingProvider, _DaemonThreads] = {}

    def of(self, provider: EmbeddingProvider) -> Executor:
        """The threads of this provider."""
        with self._lock:
            threads = self._executors.get(provider)
            if threads is None:
                name = f"embed-{len(self._executors)}"
                threads = self._executors[provider] = _DaemonThreads(self._each, name)
            return threads

    def shutdown(self) -> None:
        """Takes no more calls; who waits for one has `EmbeddingUnavailable` at once."""
        with self._lock:
            for threads in self._executors.values():
                threads.shutdown()


GIVE_BACK_SECONDS = 10.0


class MemoryTrimmer:
    """What agents give back when nobody asks them. On the event loop's thread alone.

    The allocator keeps what is freed a page at a time, as an index's pages are, and looks through all it has to return
    it: some tens of milliseconds for a gigabyte.
    """

    def __init__(self, after_seconds: float = GIVE_BACK_SECONDS, release: Callable[[], None] = give_back) -> None:
        self.after_seconds, self.release = after_seconds, release
        self._awaited: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Says that some is being freed; what is free in `after_seconds` is returned."""
        if self._awaited is None:
            self._awaited = asyncio.get_running_loop().call_later(self.after_seconds, self._begin)

    def _begin(self) -> None:
        self._awaited = None
        asyncio.get_running_loop().run_in_executor(None, self.release)


# More would not be faster, and memory and threads would go to agents that nobody asks.
FIRST_SYNCS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SharedResources:
    """`quick` are for searches and reads, `slow` for what walks the disk, `embed` for what waits for a provider.

    `native` is the thread that hears of file events, `freed` what returns memory to the system. `first_syncs` are the
    turns of the syncs that nobody asked for but the daemon, at its start. There is one `analyzer`, as the words that it
    has met take some megabytes.
    """

    quick: SharedPool
    slow: SharedPool
    embed: ProviderExecutors
    native: SharedInotify
    analyzer: Analyzer = field(default_factory=Analyzer)
    freed: MemoryTrimmer = field(default_factory=MemoryTrimmer)
    first_syncs: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FIRST_SYNCS_AT_ONCE))
