"""What the daemon gives to its plug-ins."""

from collections.abc import Callable
from dataclasses import dataclass

from memoryd_server.backend import AgentDirectory, EmbedThreads
from memoryd_server.embed import EmbeddingConfig, Selection
from memoryd_server.observe.log import Log
from memoryd_server.rpc.service import MemoryService


@dataclass(frozen=True, slots=True)
class ExtensionParts:
    """What an extension is made with. `select` finds a provider; `background` allows work that no caller asked for."""

    agents: AgentDirectory
    select: Callable[[EmbeddingConfig], Selection]
    embed_threads: EmbedThreads
    log: Log
    memory_service: MemoryService
    background: bool
