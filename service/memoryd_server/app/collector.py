"""FullCollections: run the garbage collector's full collections at calm moments instead of during work.

A full collection visits every object that can be part of a cycle, with the interpreter's lock held. While the
files of an agent with 30,000 files were listed, the automatic ones blocked the event loop for .2 to .8 s, several times
for each list. Such work makes hundreds of thousands of objects without cycles, which are freed by their reference
counts. The collections of young objects, which take milliseconds, are left as they are.
"""

import gc
import time
from collections.abc import Callable

from memoryd_server.background_tasks import BackgroundTasks, TaskFailures

CALM_SECONDS = 10.0
"""The interval between full collections while there are few objects. Each call leaves a cycle of gRPC's."""

MOST_SECONDS = 600.0
"""The longest time without a full collection."""

MOST_OBJECTS = 60_000
"""A full collection of this number of objects takes less than 50 ms."""

_NEVER = 1_000_000_000
_MIDDLE = 10


class FullCollections:
    """The policy from `start` to `stop`. `most_objects` are few; `monotonic` returns seconds."""

    def __init__(
        self,
        failures: TaskFailures | None = None,
        *,
        most_objects: int = MOST_OBJECTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most_objects = most_objects
        self._monotonic = monotonic
        self._tasks = BackgroundTasks(failures)
        self._collected_at = monotonic()
        self._young, self._middle, self._old = gc.get_threshold()

    def start(self) -> None:
        """Turn automatic full collections off, and exclude the objects that exist now from all collections."""
        gc.freeze()
        gc.set_threshold(self._young, self._middle, _NEVER)
        self._tasks.repeat("garbage collection", self.step, interval_seconds=CALM_SECONDS, delay_seconds=CALM_SECONDS)

    async def step(self) -> None:
        """Collect now, unless no object has become old, or there are many and the last full collection is recent."""
        if not gc.get_count()[2]:
            return
        waited = self._monotonic() - self._collected_at
        if len(gc.get_objects(generation=2)) <= self.most_objects or waited >= MOST_SECONDS:
            gc.collect()
            self._collected_at = self._monotonic()

    async def stop(self) -> None:
        """Return to Python's own policy."""
        await self._tasks.stop()
        # Another daemon of this process may have been started before this one, and stopped.
        gc.set_threshold(self._young, self._middle, self._old if self._old != _NEVER else _MIDDLE)
        gc.unfreeze()
