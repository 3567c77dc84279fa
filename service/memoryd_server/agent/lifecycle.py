"""Opening queue, usage counter, detached tasks.

The order in which indexes are opened at the start: those that somebody asks for come before all that wait.

Counts those who use something, so that it is not taken from under them.

Work that one call asks for and others need: it goes on to its end when that call is cancelled.

What is opened holds a lock: given up half-way, it would keep out every later call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from memoryd_server.background_tasks import report_to_loop
from memoryd_server.errors import MemorydError


class OpeningQueue:
    """Agents that wait to be opened by `open_one`, which hears whether somebody has asked for the agent.

    On the event loop's thread alone.
    """

    def __init__(self, open_one: Callable[[str, bool], Awaitable[None]]) -> None:
        self._open_one = open_one
        self._waiting: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, agent_ids: Iterable[str]) -> None:
        """Lets these wait behind those that do already."""
        self._waiting |= dict.fromkeys(agent_ids)

    def __len__(self) -> int:
        return len(self._waiting)

    async def open_some(self, count: int, *, at_once: int) -> None:
        """Opens the next `count`, as if somebody had asked for them.

        Raises what the first of them raised, when all have come to their end: what is being opened cannot be closed.
        """
        turn = asyncio.Semaphore(at_once)

        async def one(agent_id: str) -> None:
            async with turn:
                await self._open_one(agent_id, True)

        some = [self._next() for _ in range(min(count, len(self)))]
        for error in filter(None, await asyncio.gather(*map(one, some), return_exceptions=True)):
            raise error

    def go_on(self, *, at_once: int) -> None:
        """Opens the rest, and does not wait for it."""
        for _ in range(min(at_once, len(self))):
            self._spawn(self._work())

    async def _work(self) -> None:
        while self._waiting:
            await self._open_quietly(self._next(), asked=False)

    def hurry(self, agent_id: str) -> None:
        """Opens an agent that still waits at once, whoever else is being opened."""
        if agent_id in self._waiting:
            del self._waiting[agent_id]
            self._spawn(self._open_quietly(agent_id, asked=True))

    async def _open_quietly(self, agent_id: str, *, asked: bool) -> None:
        # Whoever opens remembers why one could not be opened, and its callers are told; the others go on.
        try:
            await self._open_one(agent_id, asked)
        except MemorydError:
            return
        except Exception as error:  # noqa: BLE001 -- the other agents are opened all the same
            report_to_loop("the opening of an index", error)

    def _next(self) -> str:
        agent_id = next(iter(self._waiting))
        del self._waiting[agent_id]
        return agent_id

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self) -> list[str]:
        """Those that nobody will open any more, in order."""
        dropped, self._waiting = list(self._waiting), {}
        return dropped

    async def end(self, seconds: float) -> None:
        """Waits for those that are being opened, at most so long; after `drop`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


class InUseCounter:
    """On the event loop's thread alone."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts as a use while the block lasts."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def end(self, seconds: float) -> bool:
        """Waits for the last use to end, at most so long; whether there is none."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return False
        return True


class DetachedTasks:
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
