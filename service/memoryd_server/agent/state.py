"""IndexMonitor: the state of an agent's index as far as it is known without I/O, and the wait for its next change."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import StrEnum

from memoryd_server.agent.sync_run import ActiveSync
from memoryd_server.errors import RevisionNotReached
from memoryd_server.sources import WatchedRoot


class IndexState(StrEnum):
    """The state of an index in one word; the names of the wire's enum."""

    EMPTY = "EMPTY"
    READY = "READY"
    STALE = "STALE"
    BUILDING = "BUILDING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The state of an index at one moment.

    `chunks` is how many the index held after the last run. `pending_files` is how many files are known to wait.
    `building` is set during the first sync and during a rebuild, `whole` once a sync has completed since the index was
    created, `closing` in the last state.
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
    state: IndexState = field(init=False)
    """The state in one word; follows from the other fields."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", self._state())

    def _state(self) -> IndexState:
        if self.unavailable:
            return IndexState.UNAVAILABLE
        if self.building:
            return IndexState.BUILDING
        if self.files == 0:
            return IndexState.EMPTY
        return IndexState.STALE if self.dirty or self.pending_files else IndexState.READY

    def seen(self, *, dirty: bool, files: int) -> "IndexSnapshot":
        """Return this snapshot with what a comparison with the disk has shown."""
        return replace(self, dirty=dirty, pending_files=0, files=files)


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """What a follower of an index gets: its state at `time_ns` (Unix time). `heartbeat` if nothing has changed."""

    time_ns: int
    snapshot: IndexSnapshot
    active_sync: ActiveSync | None
    watched_roots: tuple[WatchedRoot, ...]
    heartbeat: bool


class IndexMonitor:
    """The current state, and the wait for the next one. On the event loop's thread unless a method says otherwise."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.current = IndexSnapshot()
        self._changed = asyncio.Event()
        self._now = now
        self._behind_since: float | None = now()

    def update(self, **changes: int | bool) -> None:
        """Change some fields and wake all waiters, even if no field has a new value. The revision never falls."""
        changes["revision"] = max(self.current.revision, changes.get("revision", 0))
        self.current = replace(self.current, **changes)  # type: ignore[arg-type]
        if not (self.current.dirty or self.current.pending_files):
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = self._now()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def record_counts(self, revision: int, *, files: int, chunks: int, whole: bool) -> None:
        """Record what the index holds at a revision, and wake the waiters if that is new.

        If a later revision is known, the counts are outdated and ignored.
        """
        recorded = replace(self.current, whole=whole)
        if revision >= self.current.revision:
            recorded = replace(recorded, revision=revision, files=files, chunks=chunks)
        if recorded != self.current:
            self.update(revision=recorded.revision, files=recorded.files, chunks=recorded.chunks, whole=whole)

    @property
    def lag_seconds(self) -> float:
        """The seconds for which files have been known to be newer than the index; 0 if none is. From any thread."""
        since = self._behind_since
        return 0.0 if since is None else self._now() - since

    def next_change(self) -> Coroutine[None, None, bool]:
        """Return at the first update after this call, even if it is awaited later."""
        return self._changed.wait()

    def has_reached(self, revision: int) -> bool:
        """Return whether the index has reached `revision`.

        A re-created index begins with a higher revision than any before, and is empty: its first sync must have
        completed as well.
        """
        return revision <= 0 or (self.current.revision >= revision and self.current.whole)

    async def reached(self, revision: int) -> None:
        """Return when the index has reached `revision`."""
        while not self.has_reached(revision):
            await self.next_change()

    async def reached_within(self, seconds: float, revision: int) -> None:
        """Return when the index has reached `revision`.

        Raises:
            RevisionNotReached: it has not within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.reached(revision)
        except TimeoutError:
            raise RevisionNotReached(
                f"the index is at revision {self.current.revision} and did not reach {revision} in time"
                f"{'' if self.current.whole else ', because no sync has completed since it was created'}; "
                "search without min_revision, or call Sync first",
                metadata={"index_revision": str(self.current.revision)},
            ) from None
