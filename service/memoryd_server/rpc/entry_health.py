"""Whether entries can be kept: nobody's word where they are off, a dataset's own answer where they are on."""

import asyncio
import time

from grpc_health.v1 import health_pb2

from memoryd_server.backend import AgentConfig, AgentDirectory
from memoryd_server.backend.entry_directory import EntryDirectory
from memoryd_server.entries.config import EntryConfig
from memoryd_server.errors import MemorydError

REMOTE_SECONDS = 60.0
"""How long a good answer of an object store counts: each question is a request that is paid for."""

PATIENCE_SECONDS = 15.0

_STATUS = health_pb2.HealthCheckResponse


class EntryHealth:
    """The state of the EntryService, from the datasets in use and that of the default agent."""

    def __init__(self, agents: AgentDirectory, entries: EntryDirectory) -> None:
        self._agents = agents
        self._entries = entries
        self._good: dict[str, tuple[EntryConfig | None, float]] = {}

    def first(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """The state before any dataset was asked."""
        return _STATUS.NOT_SERVING if self._asked() else _STATUS.SERVICE_UNKNOWN

    async def status(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """SERVICE_UNKNOWN where entries are off; SERVING when every dataset that is asked answers."""
        asked = self._asked()
        if not asked:
            return _STATUS.SERVICE_UNKNOWN
        answers = await asyncio.gather(*map(self._answers, asked))
        return _STATUS.SERVING if all(answers) else _STATUS.NOT_SERVING

    def _asked(self) -> list[AgentConfig]:
        """Those whose entries have been used, and one at least, so that there is always an answer to go by."""
        on = [config for config in self._agents.configs().values() if config.enabled and self._entries.is_on(config)]
        used = [config for config in on if self._entries.was_used(config.agent_id)]
        return used or sorted(on, key=lambda config: not config.default)[:1]

    async def _answers(self, config: AgentConfig) -> bool:
        now = time.monotonic()
        known, until = self._good.get(config.agent_id, (None, now))
        entries = EntryConfig.of(config.plugins)
        if known == entries and now < until:
            return True
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._entries.use(config) as memory:
                await memory.count()
        except (MemorydError, TimeoutError):
            return False
        if entries is not None and not entries.place.is_local:
            self._good[config.agent_id] = (entries, now + REMOTE_SECONDS)
        return True
