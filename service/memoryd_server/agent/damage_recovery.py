"""DamageRecovery: what happens when a read finds the index damaged.

The search or read that found the damage starts a sync, which begins with the repair, waits for the repair, and is then
done again. Callers see an error only if the repair takes too long.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from memoryd_server.agent.state import IndexMonitor
from memoryd_server.errors import IndexDamaged
from memoryd_server.store import IndexHealth

_T = TypeVar("_T")

MOST_WAIT_SECONDS = 2.0
"""How long a search waits for the repair of a damaged index. A sync that waits for a provider repairs it later."""


class DamageRecovery:
    """Keeps the monitor in line with the health of an index. Made on the event loop's thread.

    `start_sync` starts a sync unless one is under way. A sync begins with the repair of a damaged index.
    """

    def __init__(self, health: IndexHealth, monitor: IndexMonitor, start_sync: Callable[[], None]) -> None:
        self._health = health
        self._monitor = monitor
        self._start_sync = start_sync
        self._loop = asyncio.get_running_loop()
        health.watch(self._on_change)

    def _on_change(self) -> None:
        # The loop may be closed already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._update)

    def _update(self) -> None:
        if self._health.damage is not None:
            self._monitor.update(unavailable=True, dirty=True)
            self._start_sync()
        elif self._monitor.current.unavailable:
            self._monitor.update(unavailable=False, whole=False, files=0, building=self._monitor.current.syncing)

    async def read(self, call: Callable[[], Awaitable[_T]], deadline: float | None = None) -> _T:
        """Return the result of `call`; see `AgentIndex.read`."""
        try:
            return await call()
        except IndexDamaged:
            # Once more: the sync that began when the damage was found may have failed.
            self._start_sync()
            latest = time.monotonic() + MOST_WAIT_SECONDS
            await self._repaired(latest if deadline is None else min(latest, deadline))
        return await call()

    async def _repaired(self, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                while self._monitor.current.unavailable:
                    await self._monitor.next_change()
