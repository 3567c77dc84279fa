"""All configured agents: which exist, which may be used, and their memories."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from memoryd_server.backend.agent_memory import AgentMemory
from memoryd_server.backend.config import AgentConfig
from memoryd_server.errors import AgentNotFound, IndexBusy, MemorydError, MemoryDisabled

DEFAULT_AGENT = "main"


class AgentDirectory:
    """The agents by id. `make_memory` builds the memory of an enabled one."""

    def __init__(self, configs: Sequence[AgentConfig], make_memory: Callable[[AgentConfig], AgentMemory]) -> None:
        self._configs = {config.agent_id: config for config in configs}
        self._memories = {c.agent_id: make_memory(c) for c in configs if c.enabled}
        self._unopened: dict[str, MemorydError] = {}

    async def start(self, *, background: bool) -> None:
        """Opens every enabled agent's index.

        An index that cannot be opened leaves the other agents alone, and its own calls fail with the reason.

        Raises:
            IndexBusy: another process holds one of the indexes.
            MemorydError: no index could be opened at all.
        """
        try:
            for agent_id, memory in self._memories.items():
                await self._start(agent_id, memory, background=background)
            if self._unopened and len(self._unopened) == len(self._memories):
                raise next(iter(self._unopened.values()))  # noqa: TRY301 -- what was opened is closed below
        except BaseException:
            await self.stop()
            raise

    async def _start(self, agent_id: str, memory: AgentMemory, *, background: bool) -> None:
        try:
            await memory.start(background=background)
        except IndexBusy as error:
            self._unopened[agent_id] = error
            raise
        except MemorydError as error:
            self._unopened[agent_id] = error

    async def interrupt_syncs(self) -> None:
        """Ends every sync run at its next file boundary, and starts no other."""
        await asyncio.gather(*(memory.coordinator.stop() for memory in self._open()))

    def _open(self) -> list[AgentMemory]:
        return [m for agent_id, m in self._memories.items() if agent_id not in self._unopened and m.started]

    async def stop(self) -> None:
        """Closes every index that is open."""
        await asyncio.gather(*(memory.stop() for memory in self._open()))

    def memory(self, agent_id: str) -> AgentMemory:
        """The memory of an agent; an empty id means `main`, or the default agent where there is no `main`.

        Raises:
            AgentNotFound: no such agent; the message lists those that are.
            MemoryDisabled: its memory is switched off.
            MemorydError: why its index could not be opened.
        """
        config = self.enabled_config(agent_id)
        if config.agent_id in self._unopened:
            raise self._unopened[config.agent_id]
        return self._memories[config.agent_id]

    def enabled_config(self, agent_id: str) -> AgentConfig:
        """The configuration of an agent whose memory is switched on, for what needs no index.

        Raises:
            AgentNotFound: no such agent; the message lists those that are.
            MemoryDisabled: its memory is switched off.
        """
        config = self.config(agent_id)
        if not config.enabled:
            raise MemoryDisabled(f"memory is disabled for agent {config.agent_id!r}: {config.disabled_reason}")
        return config

    def config(self, agent_id: str) -> AgentConfig:
        """The configuration of an agent, enabled or not."""
        wanted = agent_id.strip().lower() or self._default()
        try:
            return self._configs[wanted]
        except KeyError:
            known = ", ".join(sorted(self._configs))
            raise AgentNotFound(f"there is no agent {agent_id[:64]!r}; configured are: {known}") from None

    def _default(self) -> str:
        if DEFAULT_AGENT in self._configs:
            return DEFAULT_AGENT
        return next((c.agent_id for c in self._configs.values() if c.default), DEFAULT_AGENT)

    def configs(self) -> Mapping[str, AgentConfig]:
        """Every agent by id, in order of ids."""
        return dict(sorted(self._configs.items()))

    def opened(self) -> Mapping[str, AgentMemory]:
        """The memories whose index is open, by agent id."""
        return {agent_id: m for agent_id, m in self._memories.items() if agent_id not in self._unopened}
