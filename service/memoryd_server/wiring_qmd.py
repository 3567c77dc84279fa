"""qmd as a search backend: the settings of `memory.qmd` into its configuration, and what the agents share."""

import os
import tempfile
from pathlib import Path
from typing import ClassVar

from memoryd_server.backend import AgentMemory, Threads
from memoryd_server.backend.fallback import FallbackBackend, make_qmd
from memoryd_server.backend.qmd.collections import ConfiguredPath, collections_of
from memoryd_server.backend.qmd.commands import Verb
from memoryd_server.backend.qmd.config import PLUGIN, LimitsConfig, QmdConfig, SessionsConfig, UpdateConfig
from memoryd_server.backend.qmd.host import QmdHost
from memoryd_server.backend.qmd.scope import Match, Rule, Scope
from memoryd_server.observe.log import Log
from memoryd_server.settings import AgentSettings, QmdSettings, ResolvedSettings
from memoryd_server.sources import Roots


class QmdPlugin:
    """Makes the qmd backend of each agent. The agents share one host, which is made for the first of them."""

    name: ClassVar[str] = PLUGIN

    def __init__(self, threads: Threads, log: Log) -> None:
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

    def make(self, memory: AgentMemory) -> FallbackBackend | None:
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
        verb=Verb(qmd.search_mode),
        collections=collections_of(
            roots,
            [_path(path.path, path.pattern, path.name) for path in qmd.paths],
            default_memory=qmd.include_default_memory,
            sessions_folder=None if sessions is None else str(sessions.folder),
        ),
        environment=settings.child_environment,
        update=_update(qmd),
        limits=LimitsConfig(
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


def scope_of(qmd: QmdSettings) -> Scope:
    """The rules of who may search."""
    rules = [
        Rule(
            rule.action == "allow",
            Match(rule.match.channel, rule.match.chat_type, rule.match.key_prefix, rule.match.raw_key_prefix),
        )
        for rule in qmd.scope.rules
    ]
    return Scope(qmd.scope.default == "allow", tuple(rules))


def _path(path: str, pattern: str, name: str | None) -> ConfiguredPath:
    return ConfiguredPath(str(Path(path.strip()).expanduser()), pattern, name or "")


def _sessions(qmd: QmdSettings, folder: Path, state_dir: Path, agent_id: str) -> SessionsConfig | None:
    if not qmd.sessions.enabled:
        return None
    target = Path(qmd.sessions.export_dir) if qmd.sessions.export_dir else folder / "sessions"
    return SessionsConfig(state_dir / "agents" / agent_id / "sessions", target, qmd.sessions.retention_days)


def _update(qmd: QmdSettings) -> UpdateConfig:
    update = qmd.update
    return UpdateConfig(
        on_boot=update.on_boot,
        wait_for_boot=update.wait_for_boot_sync,
        interval_seconds=update.interval_ms / 1000,
        debounce_seconds=update.debounce_ms / 1000,
        embed_interval_seconds=update.embed_interval_ms / 1000,
        command_seconds=update.command_timeout_ms / 1000,
        update_seconds=update.update_timeout_ms / 1000,
        embed_seconds=update.embed_timeout_ms / 1000,
    )
