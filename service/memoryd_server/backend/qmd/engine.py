"""The engine of an agent that keeps no index of memoryd's own: what qmd holds, compared with the files."""

from collections.abc import Callable, Mapping

from memoryd_server.index.asks import EVERYTHING, SyncAsk
from memoryd_server.index.last_look import LastLook
from memoryd_server.index.plan import make_plan, stored
from memoryd_server.index.progress import SyncEstimate, SyncMode, SyncObserver, SyncOutcome, SyncProgress
from memoryd_server.index.sync import Clock, DiskState
from memoryd_server.model import Source
from memoryd_server.sources import Discovery, Roots, discover
from memoryd_server.store.rows import FileRow


class QmdEngine:
    """Looks at the disk and leaves the work to qmd. `covered` is what was there before qmd's last update."""

    rebuild_due = False
    rebuild_waits = ""

    def __init__(self, roots: Roots, covered: Callable[[], Discovery | None], clock: Clock) -> None:
        self._roots = roots
        self._covered = covered
        self._clock = clock
        self.last_look = LastLook()

    def run(
        self,
        _mode: SyncMode,
        observer: SyncObserver,
        _should_stop: Callable[[], bool],
        _should_yield: Callable[[], bool] = lambda: False,
    ) -> SyncOutcome:
        """What qmd holds as yet, and what it is to take in; the update itself follows the run."""
        observer.progress(SyncProgress())
        state = self.compare()
        changed, removed = len(state.plan.changed), len(state.plan.removed)
        return SyncOutcome(
            revision=0,
            files=len(state.rows),
            indexed_files=changed,
            unchanged_files=state.plan.unchanged,
            removed_files=removed,
            changed=state.plan.worth_a_run,
        )

    def compare(self) -> DiskState:
        """What differs between the disk and what was there before qmd's last update."""
        began_ns = self._clock.now_ns()
        discovery, rows = discover(self._roots), _rows(self._covered())
        plan = make_plan(discovery, rows)
        self.last_look.note(plan, began_ns)
        return DiskState(discovery, rows, plan, self.last_look.agreed_ns)

    def estimate(self, _mode: SyncMode, _ask: SyncAsk = EVERYTHING) -> SyncEstimate:
        """The files that differ; what qmd makes of them is not known."""
        plan = self.compare().plan
        return SyncEstimate(len(plan.to_read), len(plan.removed), 0, 0, 0)


def _rows(covered: Discovery | None) -> Mapping[tuple[Source, str], FileRow]:
    files = () if covered is None else covered.files
    return {(f.source, f.path): FileRow(0, f.path, f.source, b"", stored(f.stat), 0, None) for f in files}
