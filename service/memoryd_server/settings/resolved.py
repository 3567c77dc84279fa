"""The settings as the rest of memoryd sees them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.errors import AgentNotFound

from .compaction import CompactionSettings
from .describing import flattened, masked
from .entries import CONFIG as ENTRIES
from .entries import LanceDbSettings
from .memory_block import MemoryBlock
from .memory_search import MemorySearchSettings
from .provider_access import ProviderAccess
from .report import Blocker
from .service import ServiceSettings
from .tree import DEFAULT
from .words import dotted

MAIN = "main"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent: where its memory is, and how it is indexed and searched. Paths are absolute.

    `disabled_reason` names the key that switches memory off; it is empty when `enabled`. `provider_access` has the
    embedding providers that the agent may use, `fallback_access` is that of `memory_search.fallback`, `entry_access`
    that of entries where they have a provider of their own.
    """

    agent_id: str
    workspace: Path
    enabled: bool
    disabled_reason: str
    memory_search: MemorySearchSettings
    memory: MemoryBlock
    compaction: CompactionSettings
    user_timezone: str | None
    index_path: Path
    default: bool
    provider_access: Mapping[str, ProviderAccess]
    fallback_access: ProviderAccess
    entries_enabled: bool
    entries: LanceDbSettings
    entry_access: ProviderAccess | None

    def accesses(self) -> Iterator[tuple[tuple[str, str], ProviderAccess]]:
        """What is known of how providers are reached, each with the path that it is shown at."""
        for name, access in self.provider_access.items():
            if access.parts():
                yield ("access", name), access
        if self.fallback_access.parts():
            yield ("fallbackAccess", self.memory_search.fallback), self.fallback_access


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """Everything that was configured, and who said so.

    `origins` has every key of `describe`: "default", a file's path, "env NAME" or "flag --name", and of a provider's
    access the place of its key. `child_environment` are the variables that commands get which memoryd runs.
    `remote_embeddings_blocked_by` has the settings that are not understood: with any, no agent uses a provider that is
    reached over HTTP.
    """

    state_dir: Path
    service: ServiceSettings
    agents: Mapping[str, AgentSettings]
    default_agent: str
    warnings: tuple[str, ...]
    origins: Mapping[str, str]
    child_environment: Mapping[str, str] = field(default_factory=dict)
    remote_embeddings_blocked_by: tuple[Blocker, ...] = ()

    def agent(self, agent_id: str) -> AgentSettings:
        """The agent of that id, in any case. An empty id means `main` where it is configured, else the default agent.

        Raises:
            AgentNotFound: none of that id is configured.
        """
        wanted = agent_id.strip().lower() or (MAIN if MAIN in self.agents else self.default_agent)
        if wanted not in self.agents:
            shown = agent_id[:64]
            raise AgentNotFound(
                f"no agent {shown!r} is configured; there are: {', '.join(self.agents)}", metadata={"agent_id": shown}
            )
        return self.agents[wanted]

    def blocked_by(self, agent_id: str) -> tuple[str, ...]:
        """Return what disables remote embeddings, as the callers of an agent may read it."""
        return tuple(dict.fromkeys(blocker.shown_to(agent_id) for blocker in self.remote_embeddings_blocked_by))

    def describe(self) -> list[dict[str, object]]:
        """`key`, `value` and `origin` of every effective value, ready for JSON, secrets as `***`."""
        return [
            {"key": key, "value": masked(value), "origin": self.origins.get(key, DEFAULT)}
            for key, value in (
                (dotted(path), value)
                for path, value in effective(
                    self.state_dir, self.service, self.agents, self.remote_embeddings_blocked_by
                )
            )
        ]


def effective(
    state_dir: Path,
    service: ServiceSettings,
    agents: Mapping[str, AgentSettings],
    blocked_by: Sequence[Blocker] = (),
) -> list[tuple[tuple[str, ...], object]]:
    """The path and value of every effective setting, in the order to show them."""
    shared = next(iter(agents.values()))
    blocked = [(("remoteEmbeddingsBlockedBy",), [blocker.where for blocker in blocked_by])] if blocked_by else []
    return [
        (("stateDir",), state_dir),
        *blocked,
        *flattened(service, ("memoryd",)),
        *flattened(shared.memory, ("memory",)),
        *flattened(shared.entries, ENTRIES),
        *flattened(shared.compaction, ("agents", "defaults", "compaction")),
        (("agents", "defaults", "userTimezone"), shared.user_timezone),
        *(entry for agent in agents.values() for entry in _of_agent(agent)),
    ]


def _of_agent(agent: AgentSettings) -> list[tuple[tuple[str, ...], object]]:
    around = ("agents", "list", f"[{agent.agent_id}]")
    return [
        ((*around, "default"), agent.default),
        ((*around, "workspace"), agent.workspace),
        ((*around, "enabled"), agent.enabled),
        *flattened(agent.memory_search, (*around, "memorySearch")),
        *(((*around, *path), access.parts()) for path, access in agent.accesses()),
    ]
