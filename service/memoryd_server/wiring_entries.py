"""Entries as an extension: settings into the configuration of one agent's entries, and the service of all agents."""

from collections.abc import Mapping
from typing import ClassVar

from memoryd_server.backend import AgentConfig
from memoryd_server.backend.entry_directory import EntryDirectory
from memoryd_server.embed import EmbeddingConfig, Pace, RemoteConfig
from memoryd_server.entries.config import PLUGIN, EntryConfig
from memoryd_server.entries.model import Place
from memoryd_server.rpc.entry_service import entry_service
from memoryd_server.settings import AgentSettings, ResolvedSettings
from memoryd_server.wiring_parts import ExtensionParts

_PROVIDER = "openai"


class EntryExtension:
    """The entries of all agents, with the EntryService."""

    name: ClassVar[str] = PLUGIN

    def __init__(self, parts: ExtensionParts) -> None:
        self._log = parts.log
        self.directory = EntryDirectory(parts.select, parts.embed_threads, self._report)
        self.service = entry_service(parts.agents, self.directory, parts.memory_service, checked=parts.background)

    @staticmethod
    def config(agent: AgentSettings, settings: ResolvedSettings, own: EmbeddingConfig) -> EntryConfig:
        """Return what the agent's entries are made with; `own` is the embedding of its memory."""
        return entry_config(agent, settings, own)

    def _report(self, event: str, **fields: object) -> None:
        (self._log.warning if "error" in fields else self._log.info)(event, **fields)

    def on_full_sync(self, config: AgentConfig) -> None:
        """Approve the cost of missing vectors: a full sync approves that of the agent's entries too."""
        self.directory.confirm(config)

    async def change(self, configs: Mapping[str, AgentConfig]) -> None:
        """Close the entries that have another configuration now."""
        await self.directory.change(configs)

    async def stop(self) -> None:
        """Close every dataset."""
        await self.directory.stop()


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
