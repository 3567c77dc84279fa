"""The metrics: the events that they count, the Prometheus registry, and the listener that serves it.

A `Meter` receives the events, which contain no text of an agent except its id. `Metrics` counts them since the daemon's
start, and reads gauges at each scrape. `MetricsListener` serves the metrics over plain HTTP without a token; it is off
unless an address is set.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any, Protocol, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memoryd_server import __version__
from memoryd_server.errors import SettingsError
from memoryd_server.observe.database import DatabaseMetrics, database_families
from memoryd_server.observe.readers import ReaderMetrics, reader_families

_M = TypeVar("_M")

_CALL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SYNC_SECONDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)


@dataclass(frozen=True, slots=True)
class SearchFinished:
    """An answered search: seconds by retriever that ran (`retriever_seconds`), and the kinds of its degradations.

    `empty_reason` is empty if the search found something.
    """

    agent_id: str
    served_mode: str
    seconds: float
    degradations: Sequence[str] = ()
    retriever_seconds: Mapping[str, float] | None = None
    empty_reason: str = ""


@dataclass(frozen=True, slots=True)
class SyncFinished:
    """A sync run that ended. `result` is `completed` or the reason of its error; `files` are counts by outcome."""

    agent_id: str
    trigger: str
    result: str
    seconds: float
    files: Mapping[str, int] | None = None
    chunks: int = 0


class Meter(Protocol):
    """Receives the events. Its methods are called on the event loop's thread and must not block."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Count an RPC that ended with the status `code`; `method` is `package.Service/Method`."""
        ...

    def search_ended(self, search: SearchFinished) -> None:
        """Count an answered search."""
        ...

    def sync_ended(self, sync: SyncFinished) -> None:
        """Count a sync run that ended."""
        ...


class NoMeter:
    """A `Meter` that counts nothing."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Ignored."""

    def search_ended(self, search: SearchFinished) -> None:
        """Ignored."""

    def sync_ended(self, sync: SyncFinished) -> None:
        """Ignored."""


@dataclass(frozen=True, slots=True)
class AgentMetrics:
    """One agent at one moment. `cache_hits` are counted across restarts, as (provider, model, hits).

    `lag_seconds` is the time since the index is known to be out of date, 0 if it is not.
    """

    agent_id: str
    files: int
    chunks: int
    database_bytes: int
    wal_bytes: int
    cache_bytes: int
    revision: int
    dirty: bool
    lag_seconds: float
    syncing: bool
    pending_embeddings: int
    resident_vector_bytes: int
    degradations: Sequence[str]
    cache_hits: Sequence[tuple[str, str, int]] = ()


@dataclass(frozen=True, slots=True)
class ProviderMetrics:
    """One provider and model, counted since the daemon's start."""

    provider: str
    model: str
    ready: bool
    calls: int
    tokens: int
    retries: int
    failures: int


@dataclass(frozen=True, slots=True)
class RerankerMetrics:
    """The reranker, counted since it was configured. `late` are the searches that did not get its scores in time.

    `candidates` are the scores that searches used, `cache_hits` those of them that needed no call.
    """

    provider: str
    model: str
    ready: bool
    calls: int
    tokens: int
    failures: int
    late: int
    cache_hits: int
    candidates: int


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The gauges at one moment. `unavailable` are the agents whose index could not be read.

    `resting` is the number of idle agents that have released their memory. `task_failures` are the unexpected
    exceptions of background tasks since the daemon's start, as (task, agent, count); the agent is empty for the
    daemon's own tasks. `reranker` and `readers` are None if none are configured, and `database` if no agent uses one.
    """

    agents: Sequence[AgentMetrics] = ()
    providers: Sequence[ProviderMetrics] = ()
    unavailable: Sequence[str] = ()
    resting: int = 0
    calls: int = 0
    streams: int = 0
    task_failures: Sequence[tuple[str, str, int]] = ()
    reranker: RerankerMetrics | None = None
    database: DatabaseMetrics | None = None
    readers: ReaderMetrics | None = None


class _Series(dict[tuple[str, ...], _M]):
    """The series of a metric by the values of its labels. `find` of the library takes six times as long to find one."""

    def __init__(self, find: Callable[..., _M]) -> None:
        self._find = find

    def __missing__(self, values: tuple[str, ...]) -> _M:
        series = self[values] = self._find(*values)
        return series


class Metrics:
    """A `Meter` that counts. `take_snapshot` is called at each scrape, on a thread of the listener."""

    def __init__(self, take_snapshot: Callable[[], MetricsSnapshot]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Gauges(take_snapshot))
        self._calls = self._counters("rpc_calls", "RPCs that ended, by status code.", "method", "code")
        self._call_seconds = self._histograms(
            "rpc_duration_seconds", "Time from a call's start to its end.", _CALL_SECONDS, "method"
        )
        self._search_seconds = self._histograms(
            "search_duration_seconds", "Time of answered searches, by the legs that ran.", _CALL_SECONDS, "served_mode"
        )
        self._searches = self._counters("searches", "Answered searches, by the legs that ran.", "agent", "served_mode")
        self._degraded = self._counters(
            "search_degradations", "Degradations of answered searches, by kind.", "agent", "kind"
        )
        self._leg_seconds = self._histograms(
            "search_leg_duration_seconds", "Time of each leg of answered searches.", _CALL_SECONDS, "leg"
        )
        self._empty = self._counters(
            "searches_empty", "Answered searches that found nothing, by the reason.", "agent", "reason"
        )
        self._syncs = self._counter(
            "syncs", "Sync runs that ended: completed, or with an error's reason.", "agent", "trigger", "result"
        )
        self._sync_seconds = self._histogram("sync_duration_seconds", "Time of sync runs.", _SYNC_SECONDS, "agent")
        self._sync_files = self._counter(
            "sync_files", "Files of completed sync runs: indexed, removed or failed.", "agent", "outcome"
        )
        self._sync_chunks = self._counter("sync_chunks", "Chunks written by completed sync runs.", "agent")
        self._synced_at = Gauge(
            "memoryd_sync_last_completed_timestamp_seconds",
            "When a sync run last completed, since the start.",
            ["agent"],
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus's text format. Blocks: reads the index of each agent in use."""
        return generate_latest(self.registry)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"memoryd_{name}", description, labels, registry=self.registry)

    def _histogram(self, name: str, description: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"memoryd_{name}", description, labels, registry=self.registry, buckets=buckets)

    def _counters(self, name: str, description: str, *labels: str) -> "_Series[Counter]":
        return _Series(self._counter(name, description, *labels).labels)

    def _histograms(self, name: str, description: str, buckets: Sequence[float], *labels: str) -> "_Series[Histogram]":
        return _Series(self._histogram(name, description, buckets, *labels).labels)

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Implement `Meter`."""
        self._calls[method, code].inc()
        self._call_seconds[method,].observe(seconds)

    def search_ended(self, search: SearchFinished) -> None:
        """Implement `Meter`."""
        self._searches[search.agent_id, search.served_mode].inc()
        self._search_seconds[search.served_mode,].observe(search.seconds)
        for retriever, seconds in (search.retriever_seconds or {}).items():
            self._leg_seconds[retriever,].observe(seconds)
        if search.empty_reason:
            self._empty[search.agent_id, search.empty_reason].inc()
        for kind in set(search.degradations):
            self._degraded[search.agent_id, kind].inc()

    def sync_ended(self, sync: SyncFinished) -> None:
        """Implement `Meter`."""
        self._syncs.labels(sync.agent_id, sync.trigger, sync.result).inc()
        self._sync_seconds.labels(sync.agent_id).observe(sync.seconds)
        if sync.files is None:
            return
        for outcome, count in sync.files.items():
            self._sync_files.labels(sync.agent_id, outcome).inc(count)
        self._sync_chunks.labels(sync.agent_id).inc(sync.chunks)
        self._synced_at.labels(sync.agent_id).set_to_current_time()


class _Gauges(Collector):
    """The metrics that are read at each scrape."""

    def __init__(self, take_snapshot: Callable[[], MetricsSnapshot]) -> None:
        self._take_snapshot = take_snapshot

    def describe(self) -> Iterable[Metric]:
        """Return nothing. Otherwise registering would take a snapshot."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield every metric family, in a fixed order."""
        snapshot = self._take_snapshot()
        build = GaugeMetricFamily("memoryd_build_info", "The daemon's version.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
        for name, description, value in _DAEMON_GAUGES:
            gauge = GaugeMetricFamily(f"memoryd_{name}", description)
            gauge.add_metric((), value(snapshot))
            yield gauge
        failures = CounterMetricFamily(
            "memoryd_background_task_failures",
            "Unexpected exceptions of background tasks, which continue after them.",
            labels=("task", "agent"),
        )
        for task, agent_id, count in snapshot.task_failures:
            failures.add_metric((task, agent_id), count)
        yield failures
        yield from self._agent_metrics(snapshot)
        yield from self._provider_metrics(snapshot)
        if snapshot.reranker is not None:
            yield from _reranker_metrics(snapshot.reranker)
        if snapshot.database is not None:
            yield from database_families(snapshot.database)
        if snapshot.readers is not None:
            yield from reader_families(snapshot.readers)

    def _agent_metrics(self, snapshot: MetricsSnapshot) -> Iterable[Metric]:
        known = [*((a.agent_id, 1) for a in snapshot.agents), *((agent_id, 0) for agent_id in snapshot.unavailable)]
        yield _gauge("index_up", "Whether the index can be read.", [((agent_id,), up) for agent_id, up in known])
        for name, description, value in _AGENT_GAUGES:
            yield _gauge(name, description, [((a.agent_id,), value(a)) for a in snapshot.agents])
        kinds = [((a.agent_id, kind), 1) for a in snapshot.agents for kind in sorted(set(a.degradations))]
        yield _gauge("degraded", "Current degradations, one series each.", kinds, "agent", "kind")
        hits = CounterMetricFamily(
            "memoryd_embedding_cache_hits",
            "Vectors read from an agent's cache, counted across restarts.",
            labels=("agent", "provider", "model"),
        )
        for agent in snapshot.agents:
            for provider, model, count in agent.cache_hits:
                hits.add_metric((agent.agent_id, provider, model), count)
        yield hits

    def _provider_metrics(self, snapshot: MetricsSnapshot) -> Iterable[Metric]:
        labels = ("provider", "model")
        ready = [((p.provider, p.model), int(p.ready)) for p in snapshot.providers]
        yield _gauge("embedding_provider_ready", "Whether the provider's last call succeeded.", ready, *labels)
        for name, description, value in _PROVIDER_COUNTERS:
            family = CounterMetricFamily(f"memoryd_embedding_{name}", description, labels=labels)
            for provider in snapshot.providers:
                family.add_metric((provider.provider, provider.model), value(provider))
            yield family


def _reranker_metrics(reranker: RerankerMetrics) -> Iterable[Metric]:
    labels = (reranker.provider, reranker.model)
    ready = [(labels, int(reranker.ready))]
    yield _gauge("reranker_ready", "Whether the reranker is expected to answer.", ready, "provider", "model")
    for name, description, value in _RERANKER_COUNTERS:
        family = CounterMetricFamily(f"memoryd_reranker_{name}", description, labels=("provider", "model"))
        family.add_metric(labels, value(reranker))
        yield family


_AGENT_GAUGES: Sequence[tuple[str, str, Callable[[AgentMetrics], float]]] = (
    ("index_files", "Files in the index.", lambda a: a.files),
    ("index_chunks", "Chunks in the index.", lambda a: a.chunks),
    ("index_bytes", "Size of the index on disk, with its log.", lambda a: a.database_bytes + a.wal_bytes),
    ("index_database_bytes", "Size of the index on disk, without its log.", lambda a: a.database_bytes),
    ("index_wal_bytes", "Size of the index's write-ahead log.", lambda a: a.wal_bytes),
    ("embedding_cache_bytes", "Size of the cache of embeddings on disk, with its log.", lambda a: a.cache_bytes),
    ("index_revision", "Revision of the index; increases when a sync changes it.", lambda a: a.revision),
    ("index_dirty", "Whether files are known to have changed since the last sync.", lambda a: int(a.dirty)),
    ("index_lag_seconds", "Seconds since the index is known to be out of date.", lambda a: a.lag_seconds),
    ("sync_running", "Whether a sync is running.", lambda a: int(a.syncing)),
    ("pending_embeddings", "Chunks without a vector.", lambda a: a.pending_embeddings),
    ("resident_vector_bytes", "Memory of the vectors in bytes.", lambda a: a.resident_vector_bytes),
)

_DAEMON_GAUGES: Sequence[tuple[str, str, Callable[[MetricsSnapshot], float]]] = (
    ("rpc_calls_running", "Calls in progress, without streams.", lambda s: s.calls),
    ("rpc_streams_running", "Streams in progress.", lambda s: s.streams),
    ("agents_open", "Agents whose index is open.", lambda s: len(s.agents)),
    ("agents_resting", "Idle agents that have released their memory.", lambda s: s.resting),
)

_PROVIDER_COUNTERS: Sequence[tuple[str, str, Callable[[ProviderMetrics], float]]] = (
    ("calls", "Calls of embedding providers.", lambda p: p.calls),
    ("tokens", "Tokens sent to embedding providers, counted or estimated.", lambda p: p.tokens),
    ("retries", "Calls repeated after a failure.", lambda p: p.retries),
    ("failures", "Calls that failed, including those that were repeated.", lambda p: p.failures),
)

_RERANKER_COUNTERS: Sequence[tuple[str, str, Callable[[RerankerMetrics], float]]] = (
    ("calls", "Calls of the reranker.", lambda r: r.calls),
    ("tokens", "Tokens of the calls, counted or estimated.", lambda r: r.tokens),
    ("failures", "Calls that failed.", lambda r: r.failures),
    ("late", "Searches that did not get the scores in time.", lambda r: r.late),
    ("cache_hits", "Scores that needed no call.", lambda r: r.cache_hits),
    ("candidates", "Scores that searches used.", lambda r: r.candidates),
)


def _gauge(
    name: str, description: str, samples: Iterable[tuple[Sequence[str], float]], *labels: str
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"memoryd_{name}", description, labels=labels or ("agent",))
    for values, value in samples:
        family.add_metric(values, value)
    return family


MAX_CONNECTIONS = 8
"""Further connections are closed immediately."""

TIMEOUT_SECONDS = 10.0
"""A connection that sends nothing for this time is closed."""


class MetricsListener:
    """Serve `metrics` at `host` and `port` from `start` to `stop`; port 0 selects a free one."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self.metrics = metrics
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the metrics; empty while the listener is stopped."""
        if self._server is None:
            return ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def start(self) -> None:
        """Start serving on a new thread.

        Raises:
            SettingsError: the address cannot be used.
        """
        try:
            self._server = _make_server(self._host, self._port)
        except OSError as error:
            detail = error.strerror or str(error)
            raise SettingsError(
                f"cannot serve metrics at {self._host}:{self._port}: {detail}; choose another memoryd.metrics.listen"
            ) from error
        self._server.set_app(make_wsgi_app(self.metrics.registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving. Can be called twice; blocks briefly."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class _Server(ThreadingMixIn, WSGIServer):
    """An HTTP server with one thread per connection."""

    daemon_threads = True
    # Closing must not wait for a connection that sends nothing.
    block_on_close = False

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # WSGIServer's method looks up the machine's name in DNS, which can take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "memoryd", self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # The system has no thread left: release the slot.
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that were closed or timed out."""


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_SECONDS

    def log_message(self, *_: Any) -> None:
        """Write nothing: the daemon's log has its own events."""


def _make_server(host: str, port: int) -> _Server:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return _Server(family, (str(address[0]), int(address[1])))
