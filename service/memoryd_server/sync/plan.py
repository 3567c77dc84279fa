"""The first half of a sync: how the files on disk differ from the rows of the index; pure.

`LastComparison` remembers the last result: when the two last agreed, and which files could not be looked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memoryd_server.model import _UNSETTLED, FileFailure, Source, SourceFile, _signed, differs, identity_of
from memoryd_server.sources import Discovery, UnreadableFolder
from memoryd_server.store import FileRow


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """A folder that could not be read, and how many of its files the index keeps until it can be."""

    place: str
    reason: str
    files: int


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What a sync has to do.

    `changed` are files that are new or whose stat differs; reading may show that their bytes are the same. `doubtful`
    are files that were last read so soon after a change that an equal stat does not exclude another change. `retried`
    are files that failed before and have not changed since. `removed` are the rows of files that are gone. `failures`
    are files that discovery could not stat. `hidden` are folders whose files are neither found nor known to be gone.
    `waiting` are transcripts that have not grown enough to be read. `moved` has the rows of transcripts whose path has
    changed, by the new path. `covers_every_source` is False if the plan leaves a source out; `of_named_files` is True
    if it covers only some files that were named.
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
    covers_every_source: bool = True
    of_named_files: bool = False

    @property
    def to_read(self) -> tuple[SourceFile, ...]:
        """The files to read."""
        return self.changed + self.doubtful + self.retried

    @property
    def pending(self) -> int:
        """The number of files that differ from the index, as far as stats show."""
        return len(self.changed) + len(self.removed) + sum(hidden.files for hidden in self.hidden)

    @property
    def needs_run(self) -> bool:
        """Whether a sync may change something. Files that failed before or are hidden do not count."""
        return bool(self.changed or self.removed or self.doubtful)


def make_plan(discovery: Discovery, rows: Mapping[tuple[Source, str], FileRow]) -> SyncPlan:
    """Compare the stats of files and rows. Costs microseconds per file."""
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
    removed, hidden = _split_absent([row for key, row in rows.items() if key not in on_disk], discovery.unseen)
    unchanged = len(discovery.files) - len(changed) - len(doubtful) - len(retried)
    return SyncPlan(tuple(changed), tuple(doubtful), tuple(retried), removed, unchanged, discovery.failures, hidden)


def _split_absent(
    rows: Sequence[FileRow], unseen: Sequence[UnreadableFolder]
) -> tuple[tuple[FileRow, ...], tuple[HiddenFiles, ...]]:
    """Split rows without a file into those whose file is gone, and the folders that hide the others' files."""
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
    """Return the rows of transcripts that were renamed, for example by rotation, by their new path."""
    on_disk = {file.path: identity_of(file.stat) for file in files if file.source is Source.SESSIONS}
    moved = {
        identity_of(row.stat): row
        for row in rows.values()
        if row.source is Source.SESSIONS and row.error is None and on_disk.get(row.path) != identity_of(row.stat)
    }
    if not moved:
        return {}
    known = {row.path for row in rows.values() if row.source is Source.SESSIONS}
    return {path: moved[inode] for path, inode in on_disk.items() if path not in known and inode in moved}


class LastComparison:
    """The result of the last comparison of disk and index. May be read from any thread.

    `agreed_ns` is when the latest comparison began after which disk and index agreed (Unix nanoseconds; None before the
    first). `hidden` are the folders that the latest comparison could not read, with the number of files that they hide.
    """

    def __init__(self) -> None:
        self.agreed_ns: int | None = None
        self.hidden: tuple[HiddenFiles, ...] = ()

    def record(self, plan: SyncPlan, began_ns: int, *, carried_out: bool = False) -> None:
        """Record a plan from a comparison that began at `began_ns`; `carried_out` if nothing of it is left to do.

        Disk and index do not agree while files are hidden: it is unknown whether they have changed.
        """
        self.hidden = plan.hidden
        if plan.covers_every_source and not plan.hidden and (carried_out or not plan.pending):
            self.agreed_ns = max(began_ns, self.agreed_ns or 0)
