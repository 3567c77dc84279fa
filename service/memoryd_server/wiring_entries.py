"""Settings into what one agent's entries are made with."""

from memoryd_server.embed import EmbeddingConfig, Pace, RemoteConfig
from memoryd_server.entries.config import EntryConfig
from memoryd_server.entries.model import Place
from memoryd_server.settings import AgentSettings, ResolvedSettings

_PROVIDER = "openai"


def entry_config(agent: AgentSettings, settings: ResolvedSettings, own: EmbeddingConfig) -> EntryConfig:
    """What the entries of an agent are made with; `own` is what its memory is embedded with."""
    entries = agent.entries
    return EntryConfig(
        enabled=agent.entries_enabled,
        place=Place(
            f"{entries.db_path.rstrip('/')}/{agent.agent_id}",
            {name: value.get_secret_value() for name, value in (entries.storage_options or {}).items()},
        ),
        embedding=_embedding(agent, settings) or own,
        dimensions=entries.embedding.vector_length if entries.embedding else 0,
        auto_capture=entries.auto_capture,
        auto_recall=entries.auto_recall,
        capture_max_chars=entries.capture_max_chars,
        confirm_above_tokens=settings.service.confirm_above_tokens,
    )


def _embedding(agent: AgentSettings, settings: ResolvedSettings) -> EmbeddingConfig | None:
    embedding, access = agent.entries.embedding, agent.entry_access
    if embedding is None or access is None:
        return None
    remote = RemoteConfig(
        provider=_PROVIDER,
        model=embedding.model,
        base_url=access.base_url,
        keys=tuple(key.get_secret_value() for key in access.keys),
        dimensions=embedding.dimensions if embedding.takes_dimensions else None,
        problem=access.problem,
        pace=Pace(requests_per_minute=settings.service.embedding.requests_per_minute),
    )
    return EmbeddingConfig(_PROVIDER, (remote,), blocked_by=settings.blocked_by(agent.agent_id))
