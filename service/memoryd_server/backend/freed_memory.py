"""Memory that was freed goes back to the system, once for all agents that freed some in a while."""

import asyncio

from memoryd_server.entries.heap import give_back

GIVE_BACK_SECONDS = 10.0


class FreedMemory:
    """What agents give back when nobody asks them. On the event loop's thread alone.

    The allocator keeps what is freed a page at a time, as an index's pages are, and looks through all it has to return
    it: some tens of milliseconds for a gigabyte.
    """

    def __init__(self, after_seconds: float = GIVE_BACK_SECONDS) -> None:
        self._after_seconds = after_seconds
        self._awaited: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Says that some is being freed; what is free in `after_seconds` is returned."""
        if self._awaited is None:
            self._awaited = asyncio.get_running_loop().call_later(self._after_seconds, self._begin)

    def _begin(self) -> None:
        self._awaited = None
        asyncio.get_running_loop().run_in_executor(None, give_back)
