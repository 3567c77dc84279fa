"""Disk against rows: what differs; pure.

The first half of a sync: what differs between the files on disk and the rows of the index. Touches nothing.

What the last look at the disk has shown of the index: since when the two agree, and what could not be looked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memoryd_server.model import _UNSETTLED, FileFailure, Source, SourceFile, _signed, differs, identity_of
from memoryd_server.sources import Discovery, UnreadableFolder
from memoryd_server.store import FileRow


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """A place that could not be looked into, and how many files of it the index keeps until it can be."""

    place: str
    reason: str
    files: int


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What a sync has to do.

    `changed` are the files that are new or whose stat differs; reading may show that their bytes do not. `doubtful` are
    those that were read so soon after a change that their stat could not tell of another. `retried` are those that
    failed before and have not changed since. `removed` are the rows of files that are gone. `failures` are files that
    discovery could not take. `hidden` are places whose files are neither found nor known to be gone. `waiting` are
    transcripts that have not grown enough to be read. `moved` are the rows of transcripts that have another path now,
    by that path. A plan that is not `whole` leaves a source out; one `of_files` is about a few that were named.
    """

    changed: tuple[SourceFile, ...]
    doubtful: tuple[SourceFile, ...]
    retried: tuple[SourceFile, ...]
    removed: tuple[FileRow, ...]
    unchanged: int
    failures: tuple[FileFailure, ...]
    hidden: tuple[HiddenFiles, ...] = ()
    waiting: tuple[SourceFile, ...] = ()
    moved: Mapping[str, FileRow] = field(default_factory=dict)
    whole: bool = True
    of_files: bool = False

    @property
    def to_read(self) -> tuple[SourceFile, ...]:
        """The files to read."""
        return self.changed + self.doubtful + self.retried

    @property
    def pending(self) -> int:
        """How many files differ from the index, as far as stats tell."""
        return len(self.changed) + len(self.removed) + sum(hidden.files for hidden in self.hidden)

    @property
    def needs_run(self) -> bool:
        """Whether a sync may find something to do; files that failed before or are hidden are no ground."""
        return bool(self.changed or self.removed or self.doubtful)


def make_plan(discovery: Discovery, rows: Mapping[tuple[Source, str], FileRow]) -> SyncPlan:
    """Compares stats. Costs microseconds a file."""
    changed: list[SourceFile] = []
    doubtful: list[SourceFile] = []
    retried: list[SourceFile] = []
    for file in discovery.files:
        row = rows.get((file.source, file.path))
        if row is None or differs(file.stat, row.stat):
            changed.append(file)
        elif row.error is not None:
            retried.append(file)
        elif row.stat.ctime_ns == _UNSETTLED:
            doubtful.append(file)
    on_disk = {(file.source, file.path) for file in discovery.files}
    removed, hidden = _absent([row for key, row in rows.items() if key not in on_disk], discovery.unseen)
    unchanged = len(discovery.files) - len(changed) - len(doubtful) - len(retried)
    return SyncPlan(tuple(changed), tuple(doubtful), tuple(retried), removed, unchanged, discovery.failures, hidden)


def _absent(
    rows: Sequence[FileRow], unseen: Sequence[UnreadableFolder]
) -> tuple[tuple[FileRow, ...], tuple[HiddenFiles, ...]]:
    """Parts the rows without a file into those whose file is gone, and the places that hide the others'."""
    removed: list[FileRow] = []
    counts = [0] * len(unseen)
    for row in rows:
        place = next((n for n, each in enumerate(unseen) if _hides(each, row)), None)
        if place is None:
            removed.append(row)
        else:
            counts[place] += 1
    hidden = [HiddenFiles(each.place, each.reason, count) for each, count in zip(unseen, counts, strict=True) if count]
    return tuple(removed), tuple(hidden)


def _hides(unseen: UnreadableFolder, row: FileRow) -> bool:
    if unseen.source is not row.source:
        return False
    elsewhere = unseen.device is None or _signed(unseen.device) != row.stat.device
    return elsewhere and unseen.would_hold(row.path)


def moved_transcripts(files: Sequence[SourceFile], rows: Mapping[tuple[Source, str], FileRow]) -> dict[str, FileRow]:
    """The rows of transcripts that were renamed, as it happens when they are rotated, by the path they have now."""
    now = {file.path: identity_of(file.stat) for file in files if file.source is Source.SESSIONS}
    left = {
        identity_of(row.stat): row
        for row in rows.values()
        if row.source is Source.SESSIONS and row.error is None and now.get(row.path) != identity_of(row.stat)
    }
    if not left:
        return {}
    known = {row.path for row in rows.values() if row.source is Source.SESSIONS}
    return {path: left[inode] for path, inode in now.items() if path not in known and inode in left}


class LastComparison:
    """Kept by a sync engine, and read from any thread.

    `agreed_ns` is the beginning of the latest look that found, or left, disk and index in agreement (Unix nanoseconds;
    None before the first). `hidden` are the places that the latest look could not look into, with what they hide.
    """

    def __init__(self) -> None:
        self.agreed_ns: int | None = None
        self.hidden: tuple[HiddenFiles, ...] = ()

    def note(self, plan: SyncPlan, began_ns: int, *, carried_out: bool = False) -> None:
        """Takes a plan in, made from a look that began at `began_ns`; `carried_out` when nothing is left of it to do.

        What is hidden is in no agreement: nobody knows whether it has changed.
        """
        self.hidden = plan.hidden
        if plan.whole and not plan.hidden and (carried_out or not plan.pending):
            self.agreed_ns = max(began_ns, self.agreed_ns or 0)
