"""FullCollections: run the garbage collector's full collections at intervals, instead of during work.

A full collection visits every object that can be part of a cycle, with the interpreter's lock held. While the
files of an agent with 30,000 files were listed, the automatic ones blocked the event loop for .2 to .8 s, several times
for each list. Such work makes hundreds of thousands of objects without cycles, which are freed by their reference
counts. The collections of young objects, which take milliseconds, are left as they are.

Only a full collection frees an agent that was closed, because its parts refer to each other.
"""

import gc
import time
from collections.abc import Callable

from memoryd_server.background_tasks import BackgroundTasks, TaskFailures

LEAST_SECONDS = 10.0
"""The shortest time between full collections. Each call leaves a cycle of gRPC's."""

MOST_SECONDS = 600.0
"""The longest time without a full collection."""

OBJECTS_A_SECOND = 1_000
"""The objects in use that are visited per second on average, which takes about .1 % of the time."""

CLOSED_AGENTS = 100
"""How many agents are closed before a full collection frees them, which are some megabytes."""

_NEVER = 1_000_000_000
_MIDDLE = 10


class FullCollections:
    """The policy from `start` to `stop`.

    `monotonic` returns seconds, and `closed_agents` how many agents have been closed since the start.
    """

    def __init__(
        self,
        failures: TaskFailures | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        closed_agents: Callable[[], int] = lambda: 0,
    ) -> None:
        self._closed_agents = closed_agents
        self._freed_agents = 0
        self._monotonic = monotonic
        self._tasks = BackgroundTasks(failures)
        self._collected_at = monotonic()
        self._survivors = 0
        self._young, self._middle, self._old = gc.get_threshold()

    def start(self) -> None:
        """Turn automatic full collections off, and exclude the objects that exist now from all collections."""
        gc.freeze()
        gc.set_threshold(self._young, self._middle, _NEVER)
        self._tasks.repeat("garbage collection", self.step, interval_seconds=LEAST_SECONDS, delay_seconds=LEAST_SECONDS)

    async def step(self) -> None:
        """Collect now if objects have become old and the last full collection is long ago for the number in use.

        Objects that became old since then are not counted, because they may be garbage: with them, the more garbage
        there was, the longer it stayed.
        """
        closed = self._closed_agents()
        if closed - self._freed_agents < CLOSED_AGENTS and not gc.get_count()[2]:
            return
        in_use = min(self._survivors, _old_objects())
        waited = self._monotonic() - self._collected_at
        is_due = waited >= min(MOST_SECONDS, in_use / OBJECTS_A_SECOND)
        if is_due or closed - self._freed_agents >= CLOSED_AGENTS:
            self._freed_agents = closed
            gc.collect()
            self._survivors = _old_objects()
            self._collected_at = self._monotonic()

    async def stop(self) -> None:
        """Return to Python's own policy."""
        await self._tasks.stop()
        # Another daemon of this process may have been started before this one, and stopped.
        gc.set_threshold(self._young, self._middle, self._old if self._old != _NEVER else _MIDDLE)
        gc.unfreeze()


def _old_objects() -> int:
    return len(gc.get_objects(generation=2))
