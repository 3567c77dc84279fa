"""What is known of an agent's index without asking the disk, for those who follow it. On the event loop's thread."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from enum import StrEnum

from memoryd_server.errors import RevisionNotReached


class IndexState(StrEnum):
    """What the index can answer; the names of the wire's enum."""

    EMPTY = "EMPTY"
    READY = "READY"
    STALE = "STALE"
    BUILDING = "BUILDING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """One moment. `chunks` is how many the index held after the last run.

    `pending_files` is how many files are known to wait; `building` is the first index or a rebuild. `whole` is an index
    that has seen a sync to its end since it was begun. `closing` is the last state that anybody will see.
    """

    revision: int = 0
    files: int = 0
    chunks: int = 0
    dirty: bool = True
    pending_files: int = 0
    syncing: bool = False
    building: bool = False
    unavailable: bool = False
    whole: bool = False
    closing: bool = False

    @property
    def state(self) -> IndexState:
        """The state in one word."""
        if self.unavailable:
            return IndexState.UNAVAILABLE
        if self.building:
            return IndexState.BUILDING
        if self.files == 0:
            return IndexState.EMPTY
        return IndexState.STALE if self.dirty or self.pending_files else IndexState.READY

    def seen(self, *, dirty: bool, files: int) -> "IndexSnapshot":
        """The same moment with what a look at the disk has shown."""
        return replace(self, dirty=dirty, pending_files=0, files=files)


class IndexMonitor:
    """The current state, and a way to wait for the next."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.current = IndexSnapshot()
        self._changed = asyncio.Event()
        self._now = now
        self._behind_since: float | None = now()

    def update(self, **changes: int | bool) -> None:
        """Changes some fields and wakes those who wait, also when only a run's progress has moved."""
        self.current = replace(self.current, **changes)  # type: ignore[arg-type]
        if not (self.current.dirty or self.current.pending_files):
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = self._now()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def lag_seconds(self) -> float:
        """For how long files have been known to be ahead of the index; 0 where none is. From any thread."""
        since = self._behind_since
        return 0.0 if since is None else self._now() - since

    def next_change(self) -> Coroutine[None, None, bool]:
        """Returns at the first update after this call, also when it is awaited later."""
        return self._changed.wait()

    async def reached(self, revision: int) -> None:
        """Returns when the index has reached `revision`.

        One that was begun anew counts from a higher revision than any before, and holds less: its first sync has to
        end as well.
        """
        while revision > 0 and (self.current.revision < revision or not self.current.whole):
            await self.next_change()

    async def reached_within(self, seconds: float, revision: int) -> None:
        """Returns when the index has reached `revision`.

        Raises:
            RevisionNotReached: it has not in so many seconds.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.reached(revision)
        except TimeoutError:
            raise RevisionNotReached(
                f"the index is at revision {self.current.revision} and did not reach {revision} in time"
                f"{'' if self.current.whole else ', as no sync has completed since it was begun'}; "
                "search without min_revision, or call Sync first",
                metadata={"index_revision": str(self.current.revision)},
            ) from None
