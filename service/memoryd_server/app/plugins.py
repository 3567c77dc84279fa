"""Drivers and plug-ins: their registration in `STORES`, `DOCUMENTS`, `BACKENDS` and `EXTENSIONS`, and their settings.

Only this module names drivers and plug-ins. A store keeps the indexes; `memoryd.store.url` selects it. Documents are
memory files and transcripts; `memoryd.store.documents` selects where they are. A search backend answers an agent's
searches in place of the builtin search; `memory.backend` selects it. An extension adds a service of its own. Backends
and extensions convert an agent's settings into their own configuration.
"""

import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from memoryd_server.agent import (
    Agent,
    AgentConfig,
    AgentDocuments,
    Agents,
    AgentStorage,
    EntrySearch,
    ReaderIndex,
    ReaderProcesses,
    SearchBackend,
    SharedResources,
)
from memoryd_server.app.shared_store import SharedStore
from memoryd_server.background_tasks import TaskFailures
from memoryd_server.entries import ENTRIES_PLUGIN, DatasetLocation, EntryConfig, EntryMemories
from memoryd_server.model import Clock, Source
from memoryd_server.observe import DatabaseMetrics, Log
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
from memoryd_server.readers import IndexOptions
from memoryd_server.rpc import ExtensionService, MemoryService, make_entry_service
from memoryd_server.settings import AgentSettings, DatabaseSettings, QmdSettings, ResolvedSettings, fill
from memoryd_server.sources import FolderCorpus, ForgottenFile, Roots
from memoryd_server.sqlite import EmbeddingCache, SqliteStore, SqliteWriteHistory, VectorIndex, size_bytes
from memoryd_server.store import BuildIdentity, WriteHistory
from memoryd_server.writing import FolderWriter

_ENTRIES_PROVIDER = "openai"


class BackendFactory(Protocol):
    """Makes a search backend for each agent that is configured for it, and owns what these backends share."""

    name: ClassVar[str]
    """The value of `memory.backend`, and the key in `AgentConfig.plugins`."""

    def __init__(self, resources: SharedResources, log: Log) -> None: ...

    @staticmethod
    def config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> object:
        """Return the frozen configuration of an agent's backend."""

    @staticmethod
    def keeps_builtin_index(settings: ResolvedSettings) -> bool:
        """Return whether memoryd keeps its own index of an agent with this backend."""

    def make(self, memory: Agent) -> SearchBackend | None:
        """Return the backend of an agent; None if the agent is not configured for it."""

    def close(self) -> None:
        """Release what the backends share, after they have stopped. Blocks."""


@dataclass(frozen=True, slots=True)
class ExtensionParts:
    """The arguments of an extension.

    `select` returns the provider of a configuration, and the agents share `resources`. `background` allows work that no
    caller requested.
    """

    agents: Agents
    select: Callable[[EmbeddingConfig], ProviderSelection]
    resources: SharedResources
    log: Log
    memory_service: MemoryService
    background: bool
    failures: TaskFailures


class Extension(Protocol):
    """A service in addition to the agents' memories, until `stop`."""

    name: ClassVar[str]
    """The key in `AgentConfig.plugins`."""

    service: ExtensionService

    def __init__(self, parts: ExtensionParts) -> None: ...

    @staticmethod
    def config(agent: AgentSettings, settings: ResolvedSettings, memory: EmbeddingConfig) -> object:
        """Return the frozen configuration for one agent; `memory` is the embedding of the agent's memory."""

    def on_full_sync(self, config: AgentConfig) -> None:
        """Handle the completion of a full sync, which a caller requested."""

    async def change(self, configs: Mapping[str, AgentConfig]) -> None:
        """Apply a reload: `configs` are now in force, by agent id."""

    async def stop(self) -> None:
        """Release everything."""


@dataclass(frozen=True, slots=True)
class StorageParts:
    """What drivers need in addition to an agent's configuration.

    `on_load_error` is called on any thread with the reason why sqlite-vec does not load, and `on_unread_files` with an
    agent and the reason why the files in its workspace are not read. `shared` is the database of `memoryd.store`, and
    `readers` are the processes of `memoryd.readers`.
    """

    on_load_error: Callable[[str], None]
    on_unread_files: Callable[[str, str], None]
    shared: SharedStore
    readers: ReaderProcesses


def sqlite_storage(config: AgentConfig, identity: BuildIdentity, parts: StorageParts) -> AgentStorage:
    """Keep an agent's index in a SQLite file, and its vector cache in another file next to it."""
    vectors = VectorIndex(
        sqlite_vec=config.vector_enabled,
        extension_path=config.vector_extension_path,
        memory_budget_bytes=config.vector_memory_bytes,
        on_load_error=parts.on_load_error,
    )
    readers = _reader_index(config, parts.readers)
    store = SqliteStore(config.index_path, identity, vectors, outside=readers)

    def cache_path() -> Path:
        return store.path.with_name(store.path.name.removesuffix(".sqlite") + ".embeddings.sqlite")

    def open_cache(now_ms: Callable[[], int]) -> EmbeddingCache:
        # A disabled cache holds no vectors, and remembers refused texts until the daemon stops.
        enabled = config.cache_enabled
        path, max_entries = (cache_path(), config.cache_max_entries) if enabled else (None, 0)
        return EmbeddingCache(path, max_entries, now_ms, store.journal)

    return AgentStorage(store, open_cache, lambda: sum(size_bytes(cache_path())), readers=readers)


def _reader_index(config: AgentConfig, processes: ReaderProcesses) -> ReaderIndex | None:
    if not processes.count:
        return None
    options = IndexOptions(
        path=config.index_path,
        file_ids=None,
        corpus=_folder_corpus(config),
        sources=tuple(config.sources),
        ranking=config.ranking,
        sqlite_vec=config.vector_enabled,
        extension_path=config.vector_extension_path,
        memory_budget_bytes=config.vector_memory_bytes,
    )
    return ReaderIndex(processes, str(config.index_path), options)


def postgres_storage(config: AgentConfig, identity: BuildIdentity, parts: StorageParts) -> AgentStorage:
    """Keep an agent's index and its vector cache in the database of `memoryd.store`."""
    return parts.shared.storage(config, identity)


def postgres_history(config: AgentConfig, now_ms: Callable[[], int], parts: StorageParts) -> WriteHistory:
    """Keep the history of an agent's writes in the database of `memoryd.store`."""
    return parts.shared.history(config, now_ms)


def sqlite_history(config: AgentConfig, now_ms: Callable[[], int], _parts: StorageParts) -> SqliteWriteHistory:
    """Keep the history of an agent's writes in a SQLite file next to the ledger of its appends."""
    return SqliteWriteHistory(
        config.history_path,
        max_age_seconds=config.history_seconds,
        max_bytes=config.history_bytes,
        now_ms=now_ms,
    )


def folder_documents(config: AgentConfig, clock: Clock, parts: StorageParts) -> AgentDocuments:
    """Keep an agent's memory files in its workspace, and read the transcripts that OpenClaw writes."""
    now_ms = lambda: clock.now_ns() // 1_000_000  # noqa: E731 -- shorter than a function
    history = HISTORIES[config.store_driver](config, now_ms, parts)
    writer = FolderWriter(
        config.agent_id,
        config.roots,
        history,
        ledger_path=str(config.ledger_path),
        max_file_bytes=config.sync.max_file_bytes,
        now_ms=now_ms,
        new_id=lambda: uuid.uuid4().hex,
    )
    forgotten = ForgottenFile(config.forgotten_path)
    return AgentDocuments(_folder_corpus(config), writer, history, forgotten)


def _folder_corpus(config: AgentConfig) -> FolderCorpus:
    return FolderCorpus(
        config.roots,
        str(config.sessions_folder),
        Source.MEMORY in config.sources,
        str(config.session_database),
        config.agent_id,
        Source.SESSIONS in config.sources,
    )


def postgres_documents(config: AgentConfig, clock: Clock, parts: StorageParts) -> AgentDocuments:
    """Keep an agent's memory files and transcripts in the database of `memoryd.store`."""
    return parts.shared.documents(config, clock, parts.on_unread_files)


class QmdPlugin:
    """Makes the qmd backend of each agent. The agents share one host, which is created for the first of them."""

    name: ClassVar[str] = QMD_PLUGIN

    def __init__(self, resources: SharedResources, log: Log) -> None:
        self._resources = resources
        self._log = log
        self._host: QmdHost | None = None

    @staticmethod
    def config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> QmdConfig:
        """Return the configuration of an agent's qmd."""
        qmd = agent.memory.qmd
        agent_folder = settings.state_dir / "agents" / agent.agent_id
        sessions = _qmd_sessions(qmd, agent_folder)
        return fill(
            QmdConfig,
            qmd,
            folder=agent_folder / "qmd",
            search_mode=QmdSearchMode(qmd.search_mode),
            collections=collections_of(
                roots,
                [ConfiguredPath(str(Path(p.path.strip()).expanduser()), p.pattern, p.name or "") for p in qmd.paths],
                default_memory=qmd.include_default_memory,
                sessions_folder=None if sessions is None else str(sessions.folder),
            ),
            environment=settings.child_environment,
            update=fill(QmdUpdateConfig, qmd.update),
            limits=fill(QmdLimitsConfig, qmd.limits),
            scope=session_scope(qmd),
            sessions=sessions,
            fallback=QmdPlugin.keeps_builtin_index(settings),
            # A file of the host rather than of the state directory: the models of another daemon use the same
            # processors.
            embed_lock=(settings.runtime_folder or _temporary_runtime_folder()) / "qmd-embed.lock",
        )

    @staticmethod
    def keeps_builtin_index(settings: ResolvedSettings) -> bool:
        """Return whether the builtin search answers when qmd cannot."""
        return settings.service.qmd_fallback == "builtin"

    def make(self, memory: Agent) -> FallbackBackend | None:
        """Return the qmd backend of an agent; None if qmd is not configured for it."""
        config = QmdConfig.of(memory.config.plugins)
        if config is None:
            return None
        self._host = self._host or QmdHost()
        agent_id = memory.config.agent_id
        return make_qmd(
            memory,
            config,
            self._host,
            threads=self._resources.quick.share(),
            on_change=lambda answers, reason: self._log_change(agent_id, answers=answers, reason=reason),
            failures=self._resources.failures,
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


def session_scope(qmd: QmdSettings) -> SessionScope:
    """Return the rules that decide which sessions may search."""
    rules = [SessionRule(rule.action == "allow", fill(SessionMatch, rule.match)) for rule in qmd.scope.rules]
    return SessionScope(qmd.scope.default == "allow", tuple(rules))


def _temporary_runtime_folder() -> Path:
    """Return a folder for this user in the shared temporary folder. Other users can create it before memoryd does."""
    return Path(tempfile.gettempdir()) / f"memoryd-{os.getuid()}"


def _qmd_sessions(qmd: QmdSettings, agent_folder: Path) -> QmdSessionsConfig | None:
    if not qmd.sessions.enabled:
        return None
    folder = Path(qmd.sessions.export_dir) if qmd.sessions.export_dir else agent_folder / "qmd" / "sessions"
    return QmdSessionsConfig(agent_folder / "sessions", folder, qmd.sessions.retention_days)


class EntryExtension:
    """The entries of all agents, with the EntryService."""

    name: ClassVar[str] = ENTRIES_PLUGIN

    def __init__(self, parts: ExtensionParts) -> None:
        self._log = parts.log
        self.directory = EntryMemories(
            parts.select, parts.resources.embed, self._report, parts.failures, parts.agents.stopping
        )
        parts.resources.entries.current = EntrySearch(self.directory.search, self.directory.recalls)
        self.service = make_entry_service(parts.agents, self.directory, parts.memory_service, checked=parts.background)

    @staticmethod
    def config(agent: AgentSettings, settings: ResolvedSettings, memory: EmbeddingConfig) -> EntryConfig:
        """Return the configuration of an agent's entries.

        `memory` is the embedding of the agent's memory, which entries without a provider of their own share.
        """
        entries = agent.entries
        return fill(
            EntryConfig,
            entries,
            settings.service,
            enabled=agent.entries_enabled,
            location=DatasetLocation(
                f"{entries.db_path.rstrip('/')}/{agent.agent_id}",
                {name: value.get_secret_value() for name, value in (entries.storage_options or {}).items()},
            ),
            embedding=_entry_embedding(agent, settings) or memory,
            dimensions=entries.embedding.vector_length if entries.embedding else 0,
        )

    def _report(self, event: str, **fields: object) -> None:
        (self._log.warning if "error" in fields else self._log.info)(event, **fields)

    def on_full_sync(self, config: AgentConfig) -> None:
        """Approve the cost of missing vectors: a full sync approves that of the agent's entries too."""
        self.directory.approve_cost(config)

    async def change(self, configs: Mapping[str, AgentConfig]) -> None:
        """Close the entries whose configuration has changed."""
        await self.directory.change(configs)

    async def stop(self) -> None:
        """Close every dataset."""
        await self.directory.stop()


def _entry_embedding(agent: AgentSettings, settings: ResolvedSettings) -> EmbeddingConfig | None:
    embedding, access = agent.entries.embedding, agent.entry_access
    if embedding is None or access is None:
        return None
    remote = RemoteConfig(
        provider=_ENTRIES_PROVIDER,
        model=embedding.model,
        base_url=access.base_url,
        keys=tuple(key.get_secret_value() for key in access.keys),
        dimensions=embedding.dimensions if embedding.accepts_dimensions else None,
        problem=access.problem,
        pace=ThrottleConfig(requests_per_minute=settings.service.embedding.requests_per_minute),
    )
    return EmbeddingConfig(_ENTRIES_PROVIDER, (remote,), blocked_by=settings.blocked_by(agent.agent_id))


STORES: Mapping[str, Callable[[AgentConfig, BuildIdentity, StorageParts], AgentStorage]] = {
    "sqlite": sqlite_storage,
    "postgres": postgres_storage,
}
HISTORIES: Mapping[str, Callable[[AgentConfig, Callable[[], int], StorageParts], WriteHistory]] = {
    "sqlite": sqlite_history,
    "postgres": postgres_history,
}
DOCUMENTS: Mapping[str, Callable[[AgentConfig, Clock, StorageParts], AgentDocuments]] = {
    "folder": folder_documents,
    "postgres": postgres_documents,
}
BACKENDS: Mapping[str, type[BackendFactory]] = {QmdPlugin.name: QmdPlugin}
EXTENSIONS: tuple[type[Extension], ...] = (EntryExtension,)


class StorageFactory:
    """Creates the storage of agents with the configured drivers.

    The log gets one warning for each reason why sqlite-vec does not load, because all agents load the same library, one
    for each agent whose files are not read, and one each time when the standby of the database begins to fail.
    """

    def __init__(self, log: Log, database: DatabaseSettings, readers: ReaderProcesses | None = None) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        shared = SharedStore(database, self._warn_standby)
        readers = readers or ReaderProcesses(0, log)
        self._parts = StorageParts(self._warn_load_error, self._warn_unread_files, shared, readers)

    def make(self, config: AgentConfig, identity: BuildIdentity) -> AgentStorage:
        """Create the storage of an agent."""
        return STORES[config.store_driver](config, identity, self._parts)

    def make_documents(self, config: AgentConfig, clock: Clock) -> AgentDocuments:
        """Create the memory files and transcripts of an agent."""
        return DOCUMENTS[config.documents_driver](config, clock, self._parts)

    def database_metrics(self) -> DatabaseMetrics | None:
        """Return the metrics of the database of `memoryd.store`; None if it is not used."""
        return self._parts.shared.metrics()

    def on_abandoned(self, callback: Callable[[str], None]) -> None:
        """Call `callback`, on any thread, with each agent whose index another daemon has left unfinished."""
        self._parts.shared.on_abandoned(callback)

    def _is_new(self, reason: str) -> bool:
        with self._lock:
            is_new = reason not in self._warned
            self._warned.add(reason)
            return is_new

    def _warn_load_error(self, reason: str) -> None:
        if self._is_new(reason):
            self._log.warning("skip-sqlite-vec", error=reason, used="exact")

    def _warn_unread_files(self, agent_id: str, reason: str) -> None:
        if self._is_new(reason):
            self._log.warning("warn-workspace", agent=agent_id, problem=reason)

    def _warn_standby(self, reason: str) -> None:
        self._log.warning("skip-standby", error=reason, used="primary")


def plugin_configs(
    agent: AgentSettings, roots: Roots, settings: ResolvedSettings, memory: EmbeddingConfig
) -> Mapping[str, object]:
    """Return the configurations of an agent's plug-ins, by name; `memory` is the embedding of its memory."""
    configs = {extension.name: extension.config(agent, settings, memory) for extension in EXTENSIONS}
    backend = BACKENDS.get(agent.memory.backend)
    return configs if backend is None else {**configs, backend.name: backend.config(agent, roots, settings)}


def keeps_builtin_index(agent: AgentSettings, settings: ResolvedSettings) -> bool:
    """Return whether memoryd keeps its own index of an agent."""
    backend = BACKENDS.get(agent.memory.backend)
    return backend is None or backend.keeps_builtin_index(settings)


def needs_workspace(agent: AgentSettings) -> bool:
    """Return whether the search backend of an agent searches files, so that its memory files must be in a workspace."""
    return agent.memory.backend in BACKENDS


class Backends:
    """The search backends of one daemon. A factory is created for the first agent that is configured for it."""

    def __init__(self, resources: SharedResources, log: Log) -> None:
        self._resources = resources
        self._log = log
        self._factories: dict[str, BackendFactory] = {}

    def make(self, memory: Agent) -> SearchBackend | None:
        """Return the search backend of an agent; None if the builtin search answers."""
        name = memory.config.configured_backend
        if name not in BACKENDS:
            return None
        if name not in self._factories:
            self._factories[name] = BACKENDS[name](self._resources, self._log)
        return self._factories[name].make(memory)

    def close(self) -> None:
        """Release what the backends share. Blocks."""
        for factory in self._factories.values():
            factory.close()
