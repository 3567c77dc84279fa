"""The registration of plug-ins: search backends and extensions. Only this module names them."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from memoryd_server.backend import AgentConfig, AgentMemory, Threads
from memoryd_server.backend.protocol import SearchBackend
from memoryd_server.embed import EmbeddingConfig
from memoryd_server.observe.log import Log
from memoryd_server.rpc.extension import ExtensionService
from memoryd_server.settings import AgentSettings, ResolvedSettings
from memoryd_server.sources import Roots
from memoryd_server.wiring_entries import EntryExtension
from memoryd_server.wiring_parts import ExtensionParts
from memoryd_server.wiring_qmd import QmdPlugin


class BackendFactory(Protocol):
    """Makes a search backend for each agent that is configured for it, and owns what these backends share."""

    name: ClassVar[str]
    """The value of `memory.backend`, and the key in `AgentConfig.plugins`."""

    def __init__(self, threads: Threads, log: Log) -> None: ...

    @staticmethod
    def config(agent: AgentSettings, roots: Roots, settings: ResolvedSettings) -> object:
        """Return the frozen configuration of an agent's backend."""

    @staticmethod
    def keeps_builtin_index(settings: ResolvedSettings) -> bool:
        """Return whether memoryd keeps its own index of an agent with this backend."""

    def make(self, memory: AgentMemory) -> SearchBackend | None:
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

    def __init__(self, threads: Threads, log: Log) -> None:
        self._threads = threads
        self._log = log
        self._factories: dict[str, BackendFactory] = {}

    def make(self, memory: AgentMemory) -> SearchBackend | None:
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
