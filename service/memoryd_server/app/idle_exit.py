"""When a daemon that `memoryd mcp` started exits: after a time without a call, an open stream or a sync."""

import asyncio
import time
from collections.abc import Callable

from memoryd_server.agent import Agents
from memoryd_server.observe import Log
from memoryd_server.rpc import Authorizer

LOOK_SECONDS = 1.0
"""The time between two looks."""


class IdleWatch:
    """Notices when the daemon has been idle for `seconds`, which may change; 0 means never.

    `http_requests` returns the number of open requests over HTTP, such as the event stream of an MCP session. Calls
    about the health do not count. On the event loop's thread alone.
    """

    def __init__(
        self,
        gate: Authorizer,
        agents: Agents,
        seconds: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        *,
        http_requests: Callable[[], int] = lambda: 0,
    ) -> None:
        self._gate = gate
        self._agents = agents
        self._seconds = seconds
        self._clock = clock
        self._http_requests = http_requests
        self._begun = 0
        self._busy_at = clock()

    async def step(self, stop: asyncio.Event, log: Log) -> None:
        """Set `stop` if the daemon is to exit now."""
        if not stop.is_set() and self.look():
            log.info("exit-idle-daemon")
            stop.set()

    def look(self) -> bool:
        """Return whether the daemon is to exit now. It then admits no further call, so that no session is lost.

        A session that arrives now is refused, and `memoryd mcp` starts another daemon.
        """
        admission, now = self._gate.admission, self._clock()
        runs = admission.calls or admission.streams or self._http_requests() or self._syncs()
        if runs or admission.begun != self._begun:
            self._begun, self._busy_at = admission.begun, now
        seconds = self._seconds()
        if not seconds or now - self._busy_at < seconds:
            return False
        self._gate.close()
        return True

    def _syncs(self) -> bool:
        return any(agent.index.coordinator.active is not None for agent in self._agents.opened().values())
