"""What the daemon's parts tell, put together for whoever fetches figures. With `app.py`, part of the composition."""

from collections import defaultdict
from collections.abc import Iterable

from memoryd_server.access import Address, RateLimiter, parse_address
from memoryd_server.agent import Agent, Agents
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.observe import AgentMetrics, MetricsSnapshot, ProviderMetrics
from memoryd_server.providers import EmbeddingProvider, ProviderPool, ProviderState
from memoryd_server.settings import ResolvedSettings


def metrics_address(settings: ResolvedSettings) -> Address | None:
    """Where figures are to be fetched; None where nobody wants any.

    Raises:
        SettingsError: others could fetch them, and the settings do not say that they may.
    """
    metrics = settings.service.metrics
    if not metrics.listen:
        return None
    address = parse_address(metrics.listen)
    if not address.loopback and not metrics.beyond_loopback:
        raise SettingsError(
            f"refusing to serve metrics at {metrics.listen}: whoever reaches it reads the agents' ids and how they are "
            "used, without a token; set memoryd.metrics.beyondLoopback to allow it, or listen at 127.0.0.1"
        )
    return address


def figures(agents: Agents, pool: ProviderPool, admission: RateLimiter) -> MetricsSnapshot:
    """How things are now. Blocks: reads the index of each agent that is in use once."""
    found: list[AgentMetrics] = []
    unavailable: list[str] = []
    opened = agents.opened()
    for agent_id, memory in sorted(opened.items()):
        try:
            found.append(_of_agent(memory))
        except MemorydError:
            unavailable.append(agent_id)
    return MetricsSnapshot(
        found,
        _of_providers(pool.providers()),
        unavailable,
        resting=sum(memory.at_rest for memory in opened.values()),
        calls=admission.calls,
        streams=admission.streams,
    )


def _of_agent(memory: Agent) -> AgentMetrics:
    counts, sizes = memory.measure()
    board, vectors = memory.board.current, memory.vectors
    return AgentMetrics(
        agent_id=memory.config.agent_id,
        files=counts.files,
        chunks=counts.chunks,
        database_bytes=sizes.database_bytes,
        wal_bytes=sizes.wal_bytes,
        cache_bytes=sizes.cache_bytes,
        revision=counts.revision,
        dirty=board.dirty or board.pending_files > 0,
        lag_seconds=memory.board.lag_seconds,
        syncing=board.syncing,
        pending_embeddings=vectors.pending(counts.chunks),
        resident_vector_bytes=vectors.store.vector_memory_bytes(),
        degradations=[degradation.kind for degradation in memory.degradations()],
        cache_hits=[(*maker, usage.cache_hits) for maker, usage in sorted(vectors.usage.totals().items())],
    )


def _of_providers(providers: Iterable[EmbeddingProvider]) -> list[ProviderMetrics]:
    """One a provider and model: agents with keys of their own have providers of their own."""
    by_name: dict[tuple[str, str], list[EmbeddingProvider]] = defaultdict(list)
    for provider in providers:
        provider.refresh()
        by_name[provider.spec.provider, provider.spec.model].append(provider)
    found: list[ProviderMetrics] = []
    for (name, model), same in sorted(by_name.items()):
        told = [provider.status() for provider in same]
        ready = all(status.state is not ProviderState.UNAVAILABLE for status in told)
        counts = zip(*((s.calls, s.tokens, s.retries, s.failures) for s in told), strict=True)
        found.append(ProviderMetrics(name, model, ready, *map(sum, counts)))
    return found
