"""What an agent does about a damaged index: a sync begins it anew, and who met the damage waits for that moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from memoryd_server.agent.state import IndexMonitor
from memoryd_server.errors import IndexDamaged
from memoryd_server.store import IndexHealth

# A sync that waits for a provider notices late that the index it writes is damaged; nobody waits longer for it.
MOST_WAIT_SECONDS = 2.0

_T = TypeVar("_T")


class DamageRecovery:
    """Hears of an index's condition, and keeps the board true to it. Made on the event loop's thread.

    `start_sync` starts one unless one is under way: its first act is to begin the index anew.
    """

    def __init__(self, condition: IndexHealth, board: IndexMonitor, start_sync: Callable[[], None]) -> None:
        self._condition = condition
        self._board = board
        self._start_sync = start_sync
        self._loop = asyncio.get_running_loop()
        condition.watch(self._heard)

    def _heard(self) -> None:
        # The loop may have closed already; there is nobody left to tell then.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._condition.damage is not None:
            self._board.update(unavailable=True, dirty=True)
            self._start_sync()
        elif self._board.current.unavailable:
            self._board.update(unavailable=False, whole=False, files=0, building=self._board.current.syncing)

    async def reading(self, ask: Callable[[], Awaitable[_T]], deadline: float | None = None) -> _T:
        """What `ask` answers; where it meets damage, what it answers once the index has been begun anew.

        Raises:
            IndexDamaged: that had not happened by `deadline` (`time.monotonic()` seconds), or within two seconds.
        """
        try:
            return await ask()
        except IndexDamaged:
            # Once more: the sync that was asked for when the damage was found may have failed.
            self._start_sync()
            latest = time.monotonic() + MOST_WAIT_SECONDS
            await self._mended(latest if deadline is None else min(latest, deadline))
        return await ask()

    async def _mended(self, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                while self._board.current.unavailable:
                    await self._board.next_change()
