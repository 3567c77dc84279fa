"""What the agents of one daemon share: storage, threads, the analyzer, and the return of freed memory to the system."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.entry_search import SharedEntrySearch
from memoryd_server.agent.reader_index import ReaderIndex
from memoryd_server.agent.reranking import SharedReranking
from memoryd_server.background_tasks import TaskFailures
from memoryd_server.model import Clock
from memoryd_server.providers import EmbeddingProvider
from memoryd_server.sources import Corpus, ForgottenStorage, SharedInotify
from memoryd_server.store import AgentStandby, BuildIdentity, Store, VectorCache, WriteHistory
from memoryd_server.system import release_free_memory
from memoryd_server.text import Analyzer
from memoryd_server.threads import DaemonExecutor, SharedPool
from memoryd_server.writing import MemoryWriter, TranscriptWriter


@dataclass(frozen=True, slots=True)
class AgentStorage:
    """The index of one agent and the cache of its vectors, of one driver.

    `open_cache` is called after `store.open` and receives the wall clock in Unix milliseconds. `cache_bytes` returns
    the size of the cache. Both block. `standby` may answer in place of `store`; None if there is no standby. `readers`
    is the same index for reader processes; None if there are none.
    """

    store: Store
    open_cache: Callable[[Callable[[], int]], VectorCache]
    cache_bytes: Callable[[], int]
    standby: AgentStandby | None = None
    readers: ReaderIndex | None = None


StoreFactory = Callable[[AgentConfig, BuildIdentity], AgentStorage]
"""Create the storage of one agent, without opening it."""


@dataclass(frozen=True, slots=True)
class AgentDocuments:
    """The memory files and transcripts of one agent, of one driver.

    `corpus` reads them, `writer` writes the memory files, `history` has what that replaced, and `forgotten` keeps what
    stays out of every index. `transcripts` is None if callers cannot append to transcripts, because another program
    writes them.
    """

    corpus: Corpus
    writer: MemoryWriter
    history: WriteHistory
    forgotten: ForgottenStorage
    transcripts: TranscriptWriter | None = None


DocumentsFactory = Callable[[AgentConfig, Clock], AgentDocuments]
"""Create the documents of one agent, without opening them."""

THREADS_A_PROVIDER = 8


class ProviderExecutors:
    """One `DaemonExecutor` for each embedding provider, so that a provider that hangs delays no calls to another one.

    Agents that share a provider share its executor. The executor of a provider that is not used any more is freed.
    Thread-safe.
    """

    def __init__(self, each: int = THREADS_A_PROVIDER) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._executors: WeakKeyDictionary[EmbeddingProvider, DaemonExecutor] = WeakKeyDictionary()
        self._numbers = itertools.count()

    def of(self, provider: EmbeddingProvider) -> Executor:
        """Return the executor of this provider."""
        with self._lock:
            if provider not in self._executors:
                self._executors[provider] = DaemonExecutor(self._each, f"embed-{next(self._numbers)}")
            return self._executors[provider]

    def shutdown(self) -> None:
        """Accept no more calls. All pending calls immediately fail with `EmbeddingUnavailable`."""
        with self._lock:
            for executor in self._executors.values():
                executor.shutdown()


GIVE_BACK_SECONDS = 10.0


class MemoryTrimmer:
    """Returns freed memory to the system. Use it only on the event loop's thread.

    Memory is freed in small pieces, such as the pages of an index, which the allocator keeps. To return them it scans
    the whole heap, which takes some tens of milliseconds per gigabyte. One scan therefore serves all agents that free
    memory within `after_seconds`.
    """

    def __init__(
        self, after_seconds: float = GIVE_BACK_SECONDS, release: Callable[[], None] = release_free_memory
    ) -> None:
        self.after_seconds, self.release = after_seconds, release
        self._scheduled: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Record that memory is being freed, and return it to the system after `after_seconds`."""
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_later(self.after_seconds, self._begin)

    def _begin(self) -> None:
        self._scheduled = None
        asyncio.get_running_loop().run_in_executor(None, self.release)


# More would not be faster, and would take memory and threads for idle agents.
CONCURRENT_FIRST_SYNCS = 4

STANDBY_THREADS = 3
"""Those of reads from a standby, so that they do not wait for reads from a primary that hangs."""

CONCURRENT_RELOADS = 1
"""How many agents load what other replicas have changed at the same time. A search that waits for a change does not
wait for its turn.
"""


@dataclass(frozen=True, slots=True)
class SharedResources:
    """What all agents share.

    `quick` runs searches and reads, `slow` runs work that walks the disk, `standby` runs searches and reads that a
    standby may answer, and `embed` runs calls to embedding providers. `native` delivers file events, `make_storage`
    creates the index and the cache of an agent, `make_documents` its memory files and transcripts, and `freed` returns
    memory to the system. `first_syncs` limits the concurrent syncs that the daemon starts by itself at its start, and
    `reloads` those of indexes that other replicas have changed. There is one `analyzer`, because its cache of words
    takes some megabytes. `failures` counts the unexpected exceptions of background tasks. `reranking` has the reranker,
    if the settings configure one. `entries` searches the agents' entries.
    """

    quick: SharedPool
    slow: SharedPool
    embed: ProviderExecutors
    native: SharedInotify
    make_storage: StoreFactory
    make_documents: DocumentsFactory
    analyzer: Analyzer = field(default_factory=Analyzer)
    freed: MemoryTrimmer = field(default_factory=MemoryTrimmer)
    first_syncs: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_FIRST_SYNCS))
    reloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_RELOADS))
    standby: SharedPool = field(default_factory=lambda: SharedPool(STANDBY_THREADS, STANDBY_THREADS - 1, "standby"))
    failures: TaskFailures = field(default_factory=TaskFailures)
    reranking: SharedReranking = field(default_factory=SharedReranking)
    entries: SharedEntrySearch = field(default_factory=SharedEntrySearch)
