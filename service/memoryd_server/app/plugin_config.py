"""The settings of the plug-ins into their configurations: qmd and entries."""

import os
import tempfile
from pathlib import Path

from memoryd_server.entries import DatasetLocation, EntryConfig
from memoryd_server.providers import EmbeddingConfig, RemoteConfig, ThrottleConfig
from memoryd_server.qmd import (
    ConfiguredPath,
    QmdConfig,
    QmdLimitsConfig,
    QmdSearchMode,
    QmdSessionsConfig,
    QmdUpdateConfig,
    SessionMatch,
    SessionRule,
    SessionScope,
    collections_of,
)
from memoryd_server.settings import AgentSettings, QmdSettings, ResolvedSettings, fill
from memoryd_server.sources import Roots

_ENTRIES_PROVIDER = "openai"


def qmd_config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> QmdConfig:
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
        fallback=falls_back_to_builtin(settings),
        # A file of the host rather than of the state directory: the models of another daemon use the same processors.
        embed_lock=Path(tempfile.gettempdir()) / f"memoryd-{os.getuid()}-qmd-embed.lock",
    )


def falls_back_to_builtin(settings: ResolvedSettings) -> bool:
    """Return whether the builtin search answers when qmd cannot, so that memoryd keeps an index of its own."""
    return settings.service.qmd_fallback == "builtin"


def session_scope(qmd: QmdSettings) -> SessionScope:
    """Return the rules that decide which sessions may search."""
    rules = [SessionRule(rule.action == "allow", fill(SessionMatch, rule.match)) for rule in qmd.scope.rules]
    return SessionScope(qmd.scope.default == "allow", tuple(rules))


def _qmd_sessions(qmd: QmdSettings, agent_folder: Path) -> QmdSessionsConfig | None:
    if not qmd.sessions.enabled:
        return None
    folder = Path(qmd.sessions.export_dir) if qmd.sessions.export_dir else agent_folder / "qmd" / "sessions"
    return QmdSessionsConfig(agent_folder / "sessions", folder, qmd.sessions.retention_days)


def entry_config(agent: AgentSettings, settings: ResolvedSettings, memory: EmbeddingConfig) -> EntryConfig:
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
