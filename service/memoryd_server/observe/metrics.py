"""Prometheus figures and their listener.

The figures that Prometheus fetches: what happened since the start, and how things are at the moment of asking.

Where Prometheus fetches figures: plain HTTP, without a token, off unless an address is set.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memoryd_server import __version__
from memoryd_server.errors import SettingsError
from memoryd_server.observe.meter import SearchFinished, SyncFinished

_CALL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SYNC_SECONDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)


@dataclass(frozen=True, slots=True)
class AgentMetrics:
    """One agent at one moment. `cache_hits` are counted over restarts, by provider and model.

    `lag_seconds` is for how long the index has been known to be behind its files, 0 where it is not.
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
    """One provider with one model, since the daemon's start."""

    provider: str
    model: str
    ready: bool
    calls: int
    tokens: int
    retries: int
    failures: int


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """How things are at one moment. `unavailable` are the agents whose index could not be looked at.

    `resting` is how many agents have given back what they hold.
    """

    agents: Sequence[AgentMetrics] = ()
    providers: Sequence[ProviderMetrics] = ()
    unavailable: Sequence[str] = ()
    resting: int = 0
    calls: int = 0
    streams: int = 0


class Metrics:
    """A `Meter` that counts. `look` is asked at each fetch, on a thread of the listener's."""

    def __init__(self, look: Callable[[], MetricsSnapshot]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Gauges(look))
        self._calls = self._counter("rpc_calls", "Calls that ended, by status code.", "method", "code")
        self._call_seconds = self._histogram(
            "rpc_duration_seconds", "Time from a call's start to its end.", _CALL_SECONDS, "method"
        )
        self._search_seconds = self._histogram(
            "search_duration_seconds", "Time of answered searches, by the legs that ran.", _CALL_SECONDS, "served_mode"
        )
        self._searches = self._counter("searches", "Answered searches, by the legs that ran.", "agent", "served_mode")
        self._degraded = self._counter(
            "search_degradations", "Ways in which answered searches were degraded.", "agent", "kind"
        )
        self._leg_seconds = self._histogram(
            "search_leg_duration_seconds", "Time of each leg of answered searches.", _CALL_SECONDS, "leg"
        )
        self._empty = self._counter(
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

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(f"memoryd_{name}", told, labels, registry=self.registry)

    def _histogram(self, name: str, told: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"memoryd_{name}", told, labels, registry=self.registry, buckets=buckets)

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """See `Meter`."""
        self._calls.labels(method, code).inc()
        self._call_seconds.labels(method).observe(seconds)

    def search_ended(self, search: SearchFinished) -> None:
        """See `Meter`."""
        self._searches.labels(search.agent_id, search.served_mode).inc()
        self._search_seconds.labels(search.served_mode).observe(search.seconds)
        for leg, seconds in (search.legs or {}).items():
            self._leg_seconds.labels(leg).observe(seconds)
        if search.empty_reason:
            self._empty.labels(search.agent_id, search.empty_reason).inc()
        for kind in set(search.degradations):
            self._degraded.labels(search.agent_id, kind).inc()

    def sync_ended(self, sync: SyncFinished) -> None:
        """See `Meter`."""
        self._syncs.labels(sync.agent_id, sync.trigger, sync.result).inc()
        self._sync_seconds.labels(sync.agent_id).observe(sync.seconds)
        if sync.files is None:
            return
        for outcome, count in sync.files.items():
            self._sync_files.labels(sync.agent_id, outcome).inc(count)
        self._sync_chunks.labels(sync.agent_id).inc(sync.chunks)
        self._synced_at.labels(sync.agent_id).set_to_current_time()


class _Gauges(Collector):
    """What is found out at each fetch."""

    def __init__(self, look: Callable[[], MetricsSnapshot]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering would otherwise look at everything."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Every family, in a fixed order."""
        figures = self._look()
        build = GaugeMetricFamily("memoryd_build_info", "The daemon's version.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
        for name, told, value in _DAEMON_GAUGES:
            gauge = GaugeMetricFamily(f"memoryd_{name}", told)
            gauge.add_metric((), value(figures))
            yield gauge
        yield from self._of_agents(figures)
        yield from self._of_providers(figures)

    def _of_agents(self, figures: MetricsSnapshot) -> Iterable[Metric]:
        known = [*((a.agent_id, 1) for a in figures.agents), *((agent_id, 0) for agent_id in figures.unavailable)]
        yield _gauge("index_up", "Whether the index can be read.", [((agent_id,), up) for agent_id, up in known])
        for name, told, value in _AGENT_GAUGES:
            yield _gauge(name, told, [((a.agent_id,), value(a)) for a in figures.agents])
        kinds = [((a.agent_id, kind), 1) for a in figures.agents for kind in sorted(set(a.degradations))]
        yield _gauge("degraded", "Degradations that last, one each.", kinds, "agent", "kind")
        hits = CounterMetricFamily(
            "memoryd_embedding_cache_hits",
            "Vectors that came from an agent's cache, counted over restarts.",
            labels=("agent", "provider", "model"),
        )
        for agent in figures.agents:
            for provider, model, count in agent.cache_hits:
                hits.add_metric((agent.agent_id, provider, model), count)
        yield hits

    def _of_providers(self, figures: MetricsSnapshot) -> Iterable[Metric]:
        labels = ("provider", "model")
        ready = [((p.provider, p.model), int(p.ready)) for p in figures.providers]
        yield _gauge("embedding_provider_ready", "Whether the provider's last call succeeded.", ready, *labels)
        for name, told, value in _PROVIDER_COUNTERS:
            family = CounterMetricFamily(f"memoryd_embedding_{name}", told, labels=labels)
            for figure in figures.providers:
                family.add_metric((figure.provider, figure.model), value(figure))
            yield family


_AGENT_GAUGES: Sequence[tuple[str, str, Callable[[AgentMetrics], float]]] = (
    ("index_files", "Files in the index.", lambda a: a.files),
    ("index_chunks", "Chunks in the index.", lambda a: a.chunks),
    ("index_bytes", "Size of the index on disk, with its log.", lambda a: a.database_bytes + a.wal_bytes),
    ("index_database_bytes", "Size of the index on disk, without its log.", lambda a: a.database_bytes),
    ("index_wal_bytes", "Size of the index's write-ahead log.", lambda a: a.wal_bytes),
    ("embedding_cache_bytes", "Size of the cache of embeddings on disk, with its log.", lambda a: a.cache_bytes),
    ("index_revision", "Rises whenever a sync changed the index.", lambda a: a.revision),
    ("index_dirty", "Whether files are known to have changed since.", lambda a: int(a.dirty)),
    ("index_lag_seconds", "For how long files are known to be ahead of the index.", lambda a: a.lag_seconds),
    ("sync_running", "Whether a sync run is under way.", lambda a: int(a.syncing)),
    ("pending_embeddings", "Chunks that wait for a vector.", lambda a: a.pending_embeddings),
    ("resident_vector_bytes", "Memory that the vectors take.", lambda a: a.resident_vector_bytes),
)

_DAEMON_GAUGES: Sequence[tuple[str, str, Callable[[MetricsSnapshot], float]]] = (
    ("rpc_calls_running", "Calls under way, streams aside.", lambda f: f.calls),
    ("rpc_streams_running", "Streams under way.", lambda f: f.streams),
    ("agents_open", "Agents whose index is open.", lambda f: len(f.agents)),
    ("agents_resting", "Agents that have given back what they hold, as nobody asks.", lambda f: f.resting),
)

_PROVIDER_COUNTERS: Sequence[tuple[str, str, Callable[[ProviderMetrics], float]]] = (
    ("calls", "Calls of providers of embeddings.", lambda p: p.calls),
    ("tokens", "Tokens sent in them, as counted or estimated.", lambda p: p.tokens),
    ("retries", "Calls that were made again after a failure.", lambda p: p.retries),
    ("failures", "Calls that failed, also those that were made again.", lambda p: p.failures),
)


def _gauge(name: str, told: str, samples: Iterable[tuple[Sequence[str], float]], *labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"memoryd_{name}", told, labels=labels or ("agent",))
    for values, value in samples:
        family.add_metric(values, value)
    return family


# Whoever comes while so many are served is turned away at once.
MOST_AT_ONCE = 8

# A caller that says nothing for so long is left.
PATIENCE_SECONDS = 10.0


class MetricsListener:
    """Serves `metrics` at `host` and `port` from `start` to `stop`; port 0 is any free one."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self.metrics = metrics
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where figures are fetched; empty while it does not serve."""
        if self._server is None:
            return ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def start(self) -> None:
        """Begins to serve, on a thread of its own.

        Raises:
            SettingsError: the address cannot be used.
        """
        try:
            self._server = _server(self._host, self._port)
        except OSError as error:
            why = error.strerror or str(error)
            raise SettingsError(
                f"cannot serve metrics at {self._host}:{self._port}: {why}; choose another memoryd.metrics.listen"
            ) from error
        self._server.set_app(make_wsgi_app(self.metrics.registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Serves no more. Stopping twice is fine; blocks for a moment."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a caller, of whom there are few."""

    daemon_threads = True
    # Ending must not wait for a caller that says nothing.
    block_on_close = False

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # WSGIServer's own asks the name server for the machine's name, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "memoryd", self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # The system has no thread left: the place must not stay taken.
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a caller that left or said nothing is no news."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Nothing: the daemon's log has events of its own."""


def _server(host: str, port: int) -> _Server:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return _Server(family, (str(address[0]), int(address[1])))
