"""Impairments of an index: the recovery from damage, and the degradations that follow from settings and folders.

The search or read that found the damage starts a sync, which begins with the repair, waits for the repair, and is then
done again. Callers see an error only if the repair takes too long.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from memoryd_server.agent.config import SyncConfig
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.errors import IndexDamaged
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.sources import SESSIONS_FOLDER, Corpus, WatchedRoot, WatcherMode
from memoryd_server.store import Difference, IndexHealth
from memoryd_server.sync import HiddenFiles

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


def built_otherwise(differences: Sequence[Difference], waits: str) -> Degradation:
    """Return that the index was built with other settings; `waits` is why its rebuild waits, empty if it does not."""
    changes = "; ".join(f"{field} was {old}, is {new}" for field, old, new in differences)
    reason = f"the index was built with other settings ({changes}): {waits or 'a sync rebuilds it'}"
    return Degradation(DegradationKind.IDENTITY_MISMATCH, "chunks of the settings", "the older chunks", reason)


def freshness(
    config: SyncConfig, watched: Sequence[WatchedRoot], hidden: Sequence[HiddenFiles], trouble: str
) -> Iterator[Degradation]:
    """Yield a degradation for each root whose changes are not noticed, and for each folder that hides indexed files.

    `trouble` is why the last reconcile pass failed, empty if it did not. A missing root is no fault of its watcher.
    """
    impaired = (WatcherMode.DEAD,) if config.poll else (WatcherMode.POLLING, WatcherMode.DEAD)
    for root in watched:
        if root.present and root.mode in impaired:
            wanted = f"native events for {root.root}"
            yield Degradation(DegradationKind.WATCHER_IMPAIRED, wanted, root.mode, root.reason)
    for place in hidden:
        reason = (
            f"{place.place} {place.reason}; the index keeps its {place.files} files, and they are found again when it "
            "is back. If they are gone for good, memoryd index --force forgets them"
        )
        yield Degradation(DegradationKind.SOURCE_SKIPPED, place.place, "", reason)
    if trouble:
        reason = f"the last reconcile pass failed ({trouble}); the next one tries again"
        yield Degradation(DegradationKind.WATCHER_IMPAIRED, "a reconcile pass", "file events alone", reason)


def unwatched(corpus: Corpus) -> tuple[WatchedRoot, ...]:
    """Return the roots of an agent that watches none."""
    roots = corpus.roots
    displays = [roots.display(folder) for folder in (roots.base(), *roots.extras())]
    displays += [SESSIONS_FOLDER] if corpus.sessions else []
    return tuple(WatchedRoot(display, WatcherMode.OFF, "watching is disabled in the settings") for display in displays)
