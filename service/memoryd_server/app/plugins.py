"""STORES, BACKENDS, EXTENSIONS: the registration points.

qmd as a search backend: the settings of `memory.qmd` into its configuration, and what the agents share.

Entries as an extension: settings into the configuration of one agent's entries, and the service of all agents.

The registration of plug-ins: search backends and extensions. Only this module names them.

What the daemon gives to its plug-ins.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from memoryd_server.agent import Agent, AgentConfig, Agents, ProviderExecutors, SearchBackend, SharedResources
from memoryd_server.entries import ENTRIES_PLUGIN, DatasetLocation, EntryConfig, EntryMemories
from memoryd_server.observe import Log
from memoryd_server.providers import EmbeddingConfig, ProviderSelection, RemoteConfig, ThrottleConfig
from memoryd_server.qmd import (
    QMD_PLUGIN,
    ConfiguredPath,
    FallbackBackend,
    QmdConfig,
    QmdHost,
    QmdLimitsConfig,
    QmdSearchMode,
    QmdSessionsConfig,
    QmdUpdateConfig,
    SessionMatch,
    SessionRule,
    SessionScope,
    collections_of,
    make_qmd,
)
from memoryd_server.rpc import ExtensionService, MemoryService, make_entry_service
from memoryd_server.settings import AgentSettings, QmdSettings, ResolvedSettings
from memoryd_server.sources import Roots


class QmdPlugin:
    """Makes the qmd backend of each agent. The agents share one host, which is made for the first of them."""

    name: ClassVar[str] = QMD_PLUGIN

    def __init__(self, threads: SharedResources, log: Log) -> None:
        self._threads = threads
        self._log = log
        self._host: QmdHost | None = None

    @staticmethod
    def config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> QmdConfig:
        """Return what the agent's qmd is made with."""
        return qmd_config(agent, roots, settings)

    @staticmethod
    def keeps_builtin_index(settings: ResolvedSettings) -> bool:
        """Return whether the builtin search answers when qmd cannot."""
        return settings.service.qmd_fallback == "builtin"

    def make(self, memory: Agent) -> FallbackBackend | None:
        """Return the qmd backend of an agent; None if the agent has no configuration of qmd."""
        config = QmdConfig.of(memory.config.plugins)
        if config is None:
            return None
        self._host = self._host or QmdHost()
        agent_id = memory.config.agent_id
        return make_qmd(
            memory,
            config,
            self._host,
            threads=self._threads.quick.share(),
            on_change=lambda answers, reason: self._log_change(agent_id, answers=answers, reason=reason),
        )

    def _log_change(self, agent_id: str, *, answers: bool, reason: str) -> None:
        if answers:
            self._log.info("return-to-qmd", agent=agent_id)
        else:
            self._log.warning("leave-qmd", agent=agent_id, reason=reason)

    def close(self) -> None:
        """End every command of qmd. Blocks."""
        if self._host is not None:
            self._host.close()


def qmd_config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> QmdConfig:
    """Return what the agent's qmd is made with."""
    qmd = agent.memory.qmd
    folder = qmd_folder(settings.state_dir, agent.agent_id)
    sessions = _sessions(qmd, folder, settings.state_dir, agent.agent_id)
    return QmdConfig(
        folder=folder,
        command=qmd.command,
        search_mode=QmdSearchMode(qmd.search_mode),
        collections=collections_of(
            roots,
            [_path(path.path, path.pattern, path.name) for path in qmd.paths],
            default_memory=qmd.include_default_memory,
            sessions_folder=None if sessions is None else str(sessions.folder),
        ),
        environment=settings.child_environment,
        update=_update(qmd),
        limits=QmdLimitsConfig(
            max_results=qmd.limits.max_results,
            max_snippet_chars=qmd.limits.max_snippet_chars,
            max_injected_chars=qmd.limits.max_injected_chars,
            seconds=qmd.limits.timeout_ms / 1000,
        ),
        scope=scope_of(qmd),
        sessions=sessions,
        fallback=QmdPlugin.keeps_builtin_index(settings),
        # Of the host, not of the state directory: another daemon's models use the same processors.
        embed_lock=Path(tempfile.gettempdir()) / f"memoryd-{os.getuid()}-qmd-embed.lock",
    )


def qmd_folder(state_dir: Path, agent_id: str) -> Path:
    """Where an agent's qmd keeps its configuration, its index and its models."""
    return state_dir / "agents" / agent_id / "qmd"


def scope_of(qmd: QmdSettings) -> SessionScope:
    """The rules of who may search."""
    rules = [
        SessionRule(
            rule.action == "allow",
            SessionMatch(rule.match.channel, rule.match.chat_type, rule.match.key_prefix, rule.match.raw_key_prefix),
        )
        for rule in qmd.scope.rules
    ]
    return SessionScope(qmd.scope.default == "allow", tuple(rules))


def _path(path: str, pattern: str, name: str | None) -> ConfiguredPath:
    return ConfiguredPath(str(Path(path.strip()).expanduser()), pattern, name or "")


def _sessions(qmd: QmdSettings, folder: Path, state_dir: Path, agent_id: str) -> QmdSessionsConfig | None:
    if not qmd.sessions.enabled:
        return None
    target = Path(qmd.sessions.export_dir) if qmd.sessions.export_dir else folder / "sessions"
    return QmdSessionsConfig(state_dir / "agents" / agent_id / "sessions", target, qmd.sessions.retention_days)


def _update(qmd: QmdSettings) -> QmdUpdateConfig:
    update = qmd.update
    return QmdUpdateConfig(
        on_boot=update.on_boot,
        wait_for_boot=update.wait_for_boot_sync,
        interval_seconds=update.interval_ms / 1000,
        debounce_seconds=update.debounce_ms / 1000,
        embed_interval_seconds=update.embed_interval_ms / 1000,
        command_seconds=update.command_timeout_ms / 1000,
        update_seconds=update.update_timeout_ms / 1000,
        embed_seconds=update.embed_timeout_ms / 1000,
    )


@dataclass(frozen=True, slots=True)
class ExtensionParts:
    """What an extension is made with. `select` finds a provider; `background` allows work that no caller asked for."""

    agents: Agents
    select: Callable[[EmbeddingConfig], ProviderSelection]
    embed_threads: ProviderExecutors
    log: Log
    memory_service: MemoryService
    background: bool


_PROVIDER = "openai"


class EntryExtension:
    """The entries of all agents, with the EntryService."""

    name: ClassVar[str] = ENTRIES_PLUGIN

    def __init__(self, parts: ExtensionParts) -> None:
        self._log = parts.log
        self.directory = EntryMemories(parts.select, parts.embed_threads, self._report)
        self.service = make_entry_service(parts.agents, self.directory, parts.memory_service, checked=parts.background)

    @staticmethod
    def config(agent: AgentSettings, settings: ResolvedSettings, own: EmbeddingConfig) -> EntryConfig:
        """Return what the agent's entries are made with; `own` is the embedding of its memory."""
        return entry_config(agent, settings, own)

    def _report(self, event: str, **fields: object) -> None:
        (self._log.warning if "error" in fields else self._log.info)(event, **fields)

    def on_full_sync(self, config: AgentConfig) -> None:
        """Approve the cost of missing vectors: a full sync approves that of the agent's entries too."""
        self.directory.approve_cost(config)

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
        location=DatasetLocation(
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
        pace=ThrottleConfig(requests_per_minute=settings.service.embedding.requests_per_minute),
    )
    return EmbeddingConfig(_PROVIDER, (remote,), blocked_by=settings.blocked_by(agent.agent_id))


class BackendFactory(Protocol):
    """Makes a search backend for each agent that is configured for it, and owns what these backends share."""

    name: ClassVar[str]
    """The value of `memory.backend`, and the key in `AgentConfig.plugins`."""

    def __init__(self, threads: SharedResources, log: Log) -> None: ...

    @staticmethod
    def config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> object:
        """Return the frozen configuration of an agent's backend."""

    @staticmethod
    def keeps_builtin_index(settings: ResolvedSettings) -> bool:
        """Return whether memoryd keeps its own index of an agent with this backend."""

    def make(self, memory: Agent) -> SearchBackend | None:
        """Return the backend of an agent; None if it is not configured for this one."""

    def close(self) -> None:
        """Release what the backends share, after they have stopped. Blocks."""


class Extension(Protocol):
    """A service of its own in addition to the agents' memories, until `stop`."""

    name: ClassVar[str]
    """The key in `AgentConfig.plugins`."""

    service: ExtensionService

    def __init__(self, parts: ExtensionParts) -> None: ...

    @staticmethod
    def config(agent: AgentSettings, settings: ResolvedSettings, own: EmbeddingConfig) -> object:
        """Return the frozen configuration of one agent; `own` is the embedding of the agent's memory."""

    def on_full_sync(self, config: AgentConfig) -> None:
        """Follow a sync of everything that a caller asked for and that completed."""

    async def change(self, configs: Mapping[str, AgentConfig]) -> None:
        """Follow a reload: `configs` are in force now, by agent id."""

    async def stop(self) -> None:
        """Release everything."""


BACKENDS: Mapping[str, type[BackendFactory]] = {QmdPlugin.name: QmdPlugin}
EXTENSIONS: tuple[type[Extension], ...] = (EntryExtension,)


def plugin_configs(
    agent: AgentSettings, roots: Roots, settings: ResolvedSettings, own: EmbeddingConfig
) -> Mapping[str, object]:
    """Return the configurations of an agent's plug-ins by name; `own` is the embedding of its memory."""
    configs = {extension.name: extension.config(agent, settings, own) for extension in EXTENSIONS}
    backend = BACKENDS.get(agent.memory.backend)
    return configs if backend is None else {**configs, backend.name: backend.config(agent, roots, settings)}


def keeps_builtin_index(agent: AgentSettings, settings: ResolvedSettings) -> bool:
    """Return whether memoryd keeps an index of its own for an agent."""
    backend = BACKENDS.get(agent.memory.backend)
    return backend is None or backend.keeps_builtin_index(settings)


class Backends:
    """The search backends of one daemon. A factory is made for the first agent that is configured for it."""

    def __init__(self, threads: SharedResources, log: Log) -> None:
        self._threads = threads
        self._log = log
        self._factories: dict[str, BackendFactory] = {}

    def make(self, memory: Agent) -> SearchBackend | None:
        """Return the search backend of an agent; None if the builtin search answers."""
        name = memory.config.configured_backend
        if name not in BACKENDS:
            return None
        if name not in self._factories:
            self._factories[name] = BACKENDS[name](self._threads, self._log)
        return self._factories[name].make(memory)

    def close(self) -> None:
        """Release what the backends share. Blocks."""
        for factory in self._factories.values():
            factory.close()
