"""Work that one call asks for and others need: it goes on to its end when that call is cancelled.

What is opened holds a lock: given up half-way, it would keep out every later call.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Errands:
    """On the event loop's thread alone."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Carries out `work`; returns when it is done, or is cancelled without it.

        Raises what it raises.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        await asyncio.shield(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Whoever asked may be gone; asyncio would complain of an error that nobody has looked at.
            task.exception()

    async def end(self, seconds: float) -> None:
        """Waits for what is under way, at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
