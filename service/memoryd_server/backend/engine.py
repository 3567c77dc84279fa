"""What carries out the sync runs of an agent: memoryd's own index, or what stands in for it."""

from collections.abc import Callable
from typing import Protocol

from memoryd_server.index.asks import SyncAsk
from memoryd_server.index.last_look import LastLook
from memoryd_server.index.progress import SyncEstimate, SyncMode, SyncObserver, SyncOutcome
from memoryd_server.index.sync import DiskState


class Engine(Protocol):
    """Syncs one agent. `run` belongs to the writer thread; the others may be called on any thread beside it."""

    last_look: LastLook

    @property
    def rebuild_due(self) -> bool:
        """Whether the next run rebuilds."""

    @property
    def rebuild_waits(self) -> str:
        """Why a rebuild that is due waits; empty when none does."""

    def run(
        self,
        mode: SyncMode,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool] = ...,
        /,
    ) -> SyncOutcome:
        """One pass."""

    def compare(self) -> DiskState:
        """What differs between disk and index now."""

    def estimate(self, mode: SyncMode, ask: SyncAsk, /) -> SyncEstimate:
        """What a run would do that sees to `ask`."""
