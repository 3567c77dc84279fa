"""ConfiguredAgents: the configurations of all agents, by their ids."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.state import IndexState
from memoryd_server.errors import AgentNotFound, FieldViolation, InvalidRequest, MemoryDisabled

DEFAULT_AGENT = "main"

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One configured agent. `state` is None for a disabled one, and UNAVAILABLE if its index could not be opened.

    That of an agent that is closed until a call uses it is the state when it was closed, or None before.
    """

    config: AgentConfig
    state: IndexState | None


class ConfiguredAgents:
    """The configurations of the agents, each found by the id of a request."""

    def __init__(self, configs: Iterable[AgentConfig]) -> None:
        # In the order of ids.
        self._configs = by_id(configs)

    def enabled_config(self, agent_id: str) -> AgentConfig:
        """Return the configuration of an agent whose memory search is enabled. Needs no open index.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            MemoryDisabled: its memory, or only its memory search, is disabled.
        """
        config = self.memory_config(agent_id)
        if not config.enabled:
            raise MemoryDisabled(f"memory search is disabled for agent {config.agent_id!r}: {config.disabled_reason}")
        return config

    def memory_config(self, agent_id: str) -> AgentConfig:
        """Return the configuration of an agent whose memory is enabled, with or without memory search.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            MemoryDisabled: its memory is disabled.
        """
        config = self.config(agent_id)
        if not config.memory_enabled:
            raise MemoryDisabled(f"memory is disabled for agent {config.agent_id!r}: {config.disabled_reason}")
        return config

    def config(self, agent_id: str) -> AgentConfig:
        """Return the configuration of an agent, enabled or not.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            InvalidRequest: the id is empty, and there is no default agent.
        """
        wanted = agent_id.strip().lower() or self._default()
        if not wanted:
            named = _named(self._configs)
            raise InvalidRequest([FieldViolation("agent_id", f"must name one of {named}: no agent is the default")])
        try:
            return self._configs[wanted]
        except KeyError:
            known = _named(self._configs)
            raise AgentNotFound(f"there is no agent {agent_id[:64]!r}; configured are: {known}") from None

    def _default(self) -> str:
        """Return the id that an empty id means; empty if no agent is the default."""
        default = next((c.agent_id for c in self._configs.values() if c.default), "")
        return DEFAULT_AGENT if default and DEFAULT_AGENT in self._configs else default

    def configs(self) -> Mapping[str, AgentConfig]:
        """Return every agent's configuration by id, in the order of ids."""
        return MappingProxyType(self._configs)


def by_id(configs: Iterable[AgentConfig]) -> dict[str, AgentConfig]:
    """Return the configurations by id, in the order of ids."""
    return {config.agent_id: config for config in sorted(configs, key=lambda config: config.agent_id)}


def in_database(config: AgentConfig) -> bool:
    """Return whether the memory files of an agent are in a database."""
    return config.documents_driver != "folder"


def opened_in_database(configs: Mapping[str, AgentConfig]) -> int:
    """Return how many agents can be opened whose memory files are in a database."""
    return sum(config.enabled and in_database(config) for config in configs.values())


def _named(agent_ids: Collection[str]) -> str:
    """Return the first ids, and how many others there are."""
    named = ", ".join(list(agent_ids)[:_MOST_NAMED])
    return f"{named} and {len(agent_ids) - _MOST_NAMED} others" if len(agent_ids) > _MOST_NAMED else named
