"""The metrics of the daemon's parts, collected for one scrape; and the address at which they are served."""

from collections import defaultdict
from collections.abc import Iterable

from memoryd_server.access import Address, RateLimiter, parse_address
from memoryd_server.agent import Agent, Agents, RerankStatus, SharedResources
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.observe import (
    AgentMetrics,
    DatabaseMetrics,
    MetricsSnapshot,
    ProviderMetrics,
    ReaderMetrics,
    RerankerMetrics,
)
from memoryd_server.providers import EmbeddingProvider, ProviderPool, ProviderState
from memoryd_server.settings import ResolvedSettings


def metrics_address(settings: ResolvedSettings) -> Address | None:
    """Return the address at which metrics are served; None if they are disabled.

    Raises:
        SettingsError: other machines can reach the address, and the settings do not allow that.
    """
    metrics = settings.service.metrics
    if not metrics.listen:
        return None
    address = parse_address(metrics.listen)
    if not address.loopback and not metrics.beyond_loopback:
        raise SettingsError(
            f"refusing to serve metrics at {metrics.listen}: any machine that reaches it can read agent ids and usage "
            "without a token; set memoryd.metrics.beyondLoopback to allow this, or listen on 127.0.0.1"
        )
    return address


def collect_metrics(
    agents: Agents,
    pool: ProviderPool,
    admission: RateLimiter,
    resources: SharedResources,
    *,
    database: DatabaseMetrics | None,
    readers: ReaderMetrics | None,
) -> MetricsSnapshot:
    """Return the current metrics. Blocks: reads the index of each agent in use once.

    `database` are the metrics of the database that the agents share, and `readers` those of the reader processes, as of
    before the call.
    """
    stage = resources.reranking.current
    found: list[AgentMetrics] = []
    unavailable: list[str] = []
    opened = agents.opened()
    for agent_id, agent in sorted(opened.items()):
        try:
            found.append(_of_agent(agent))
        except MemorydError:
            unavailable.append(agent_id)
    return MetricsSnapshot(
        found,
        _of_providers(pool.providers()),
        unavailable,
        resting=sum(agent.index.is_idle for agent in opened.values()),
        calls=admission.calls,
        streams=admission.streams,
        task_failures=[(each.task, each.agent_id, each.count) for each in resources.failures.counts()],
        reranker=None if stage is None else _of_reranker(stage.status()),
        database=database,
        readers=readers,
    )


def _of_reranker(status: RerankStatus) -> RerankerMetrics:
    usage = status.usage
    return RerankerMetrics(
        provider=status.provider,
        model=status.model,
        ready=not status.reason,
        calls=usage.calls,
        tokens=usage.tokens,
        failures=usage.failures,
        late=usage.late,
        cache_hits=usage.cache_hits,
        candidates=usage.candidates,
    )


def _of_agent(agent: Agent) -> AgentMetrics:
    index, snapshot = agent.index, agent.snapshot
    counts, sizes = index.measure()
    return AgentMetrics(
        agent_id=agent.config.agent_id,
        files=counts.files,
        chunks=counts.chunks,
        database_bytes=sizes.database_bytes,
        wal_bytes=sizes.log_bytes,
        cache_bytes=sizes.cache_bytes,
        revision=counts.revision,
        dirty=snapshot.dirty or snapshot.pending_files > 0,
        lag_seconds=index.monitor.lag_seconds,
        syncing=snapshot.syncing,
        pending_embeddings=index.embedding.pending(counts.chunks),
        resident_vector_bytes=index.store.vector_memory_bytes(),
        degradations=[degradation.kind for degradation in index.degradations()],
        cache_hits=[(*maker, usage.cache_hits) for maker, usage in sorted(index.embedding.usage.totals().items())],
    )


def _of_providers(providers: Iterable[EmbeddingProvider]) -> list[ProviderMetrics]:
    """Return the metrics by provider and model. Agents with their own API keys have their own providers."""
    by_name: dict[tuple[str, str], list[EmbeddingProvider]] = defaultdict(list)
    for provider in providers:
        provider.refresh()
        by_name[provider.spec.provider, provider.spec.model].append(provider)
    found: list[ProviderMetrics] = []
    for (name, model), same in sorted(by_name.items()):
        statuses = [provider.status() for provider in same]
        ready = all(status.state is not ProviderState.UNAVAILABLE for status in statuses)
        counts = zip(*((s.calls, s.tokens, s.retries, s.failures) for s in statuses), strict=True)
        found.append(ProviderMetrics(name, model, ready, *map(sum, counts)))
    return found
