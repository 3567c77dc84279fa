"""The first half of a sync: what it has to do, from the files on disk, the rows of the index and the requested scope.

`make_plan` compares stats and rows. `SyncPlanner` reads both and limits the plan to a scope; `PendingScope` collects
the scopes that runs request, until a run takes them. `LastComparison` remembers the last result: when disk and index
last agreed, and which files could not be looked for.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

from memoryd_server.errors import MemorydError
from memoryd_server.model import FileFailure, Source, SourceFile, as_signed, differs, identity_of, is_settled
from memoryd_server.sources import (
    DATABASE_DEVICE,
    Corpus,
    Discovery,
    GrowthRule,
    Location,
    UnreadableFolder,
    session_id,
)
from memoryd_server.store import ROWS_VERSION, FileRow, Writer
from memoryd_server.sync.prepare import READER_VERSION

EVERY_SOURCE = frozenset(Source)

Rows = Mapping[tuple[Source, str], FileRow]


def as_current(rows: Rows) -> Rows:
    """Return the rows as if the present version had written them.

    While a rebuild waits, files would be split into chunks of the new sizes, which the rebuild waits to be allowed.
    """
    return {key: replace(row, rows_version=ROWS_VERSION) for key, row in rows.items()}


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
    are files that were last read so soon after a change that an equal stat does not exclude another change, and files
    whose rows an older version wrote. `retried`
    are files that failed before and have not changed since. `removed` are the rows of files that are gone. `failures`
    are files that discovery could not stat. `hidden` are folders whose files are neither found nor known to be gone.
    `skipped` are databases that could not be read, if the index has nothing of them. `waiting` are transcripts that
    have not grown enough to be read. `moved` has the rows of transcripts whose path has changed, by the new path.
    `covers_every_source` is False if the plan leaves a source out; `of_named_files` is True if it covers only some
    files that were named.
    """

    changed: tuple[SourceFile, ...]
    doubtful: tuple[SourceFile, ...]
    retried: tuple[SourceFile, ...]
    removed: tuple[FileRow, ...]
    unchanged: int
    failures: tuple[FileFailure, ...]
    hidden: tuple[HiddenFiles, ...] = ()
    skipped: tuple[HiddenFiles, ...] = ()
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


def make_plan(discovery: Discovery, rows: Rows) -> SyncPlan:
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
        elif row.is_outdated or not is_settled(row.stat):
            doubtful.append(file)
    on_disk = {(file.source, file.path) for file in discovery.files}
    removed, hidden = _split_absent([row for key, row in rows.items() if key not in on_disk], discovery.unseen)
    unchanged = len(discovery.files) - len(changed) - len(doubtful) - len(retried)
    places = {each.place for each in hidden}
    skipped = tuple(
        HiddenFiles(each.place, each.reason, 0)
        for each in discovery.unseen
        if each.database and each.place not in places
    )
    failures = discovery.failures
    return SyncPlan(tuple(changed), tuple(doubtful), tuple(retried), removed, unchanged, failures, hidden, skipped)


def hidden_rows(plan: SyncPlan, discovery: Discovery, rows: Rows) -> list[FileRow]:
    """Return the rows of the files that the folders in `plan.hidden` hide."""
    if not plan.hidden:
        return []
    on_disk = {(file.source, file.path) for file in discovery.files}
    absent = (row for key, row in rows.items() if key not in on_disk)
    return [row for row in absent if any(_hides(each, row) for each in discovery.unseen)]


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
    if unseen.source is not row.source or unseen.database != (row.stat.device == DATABASE_DEVICE):
        return False
    elsewhere = unseen.device is None or as_signed(unseen.device) != row.stat.device
    return elsewhere and unseen.would_hold(row.path)


def _moved_transcripts(files: Sequence[SourceFile], rows: Rows, removed: Sequence[FileRow]) -> dict[str, FileRow]:
    """Return the rows of transcripts that have another path now, by this path.

    A renamed file, for example a rotated one, has the same inode. If OpenClaw moved a transcript into its database, or
    from there into an archive, another form of the session is gone; texts that are in both keep their vectors.
    """
    renamed = _renamed_transcripts(files, rows)
    used = {row.id for row in renamed.values()}
    candidates = [row for row in removed if row.source is Source.SESSIONS and row.error is None and row.id not in used]
    # If several forms of a session are gone, the one with the most chunks is taken.
    gone = {_session_of(row.path): row for row in sorted(candidates, key=lambda row: row.chunk_count)}
    if not gone:
        return renamed
    new = [file.path for file in files if file.source is Source.SESSIONS and (file.source, file.path) not in rows]
    others = {path: row for path in new if path not in renamed and (row := gone.pop(_session_of(path), None))}
    return {**renamed, **others}


def _session_of(path: str) -> str:
    return session_id(path.rpartition("/")[2])


def _renamed_transcripts(files: Sequence[SourceFile], rows: Rows) -> dict[str, FileRow]:
    """Return the rows of transcripts that were renamed, by their new path."""
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


@dataclass(frozen=True, slots=True)
class SyncScope:
    """The sources to bring up to date, and which transcripts to read even if they have grown little.

    `transcripts` are file names; `every_transcript` includes all of them. `files` are paths of Markdown files to read
    although their source is left out, because it is known that only these have changed.
    """

    sources: frozenset[Source] = EVERY_SOURCE
    every_transcript: bool = True
    transcripts: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def of_files(cls, *paths: str) -> Self:
        """Return the scope of Markdown files that were changed, created or deleted."""
        return cls(frozenset(), every_transcript=False, files=frozenset(paths))

    @property
    def covers_every_source(self) -> bool:
        """Whether no source is left out."""
        return self.sources == EVERY_SOURCE

    def union(self, other: "SyncScope") -> "SyncScope":
        """Return a scope that covers this one and the other."""
        return replace(
            self,
            sources=self.sources | other.sources,
            every_transcript=self.every_transcript or other.every_transcript,
            transcripts=self.transcripts | other.transcripts,
            files=self.files | other.files,
        )


FULL_SCOPE = SyncScope()
"""All sources, and every transcript."""

DUE_SCOPE = SyncScope(every_transcript=False)
"""All sources; of the transcripts, those that have grown enough or have not changed for a while."""


class PendingScope:
    """The scopes requested since the last run began. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested: SyncScope | None = None

    def add(self, scope: SyncScope) -> None:
        """Add `scope` to the next run."""
        with self._lock:
            self._requested = scope if self._requested is None else self._requested.union(scope)

    def take(self) -> SyncScope:
        """Return the union of the scopes added since the last call; DUE_SCOPE if there were none."""
        with self._lock:
            requested, self._requested = self._requested, None
        return DUE_SCOPE if requested is None else requested

    @property
    def covers_every_source(self) -> bool:
        """Whether the next run leaves no source out."""
        with self._lock:
            return self._requested is None or self._requested.covers_every_source


class SyncPlanner:
    """Plans the syncs of one index.

    `pending` has the requested scopes; without it every run has FULL_SCOPE. `growth` decides which changed transcripts
    are due; without it all are. Transcripts of forgotten sessions are left out.
    """

    def __init__(
        self,
        corpus: Corpus,
        pending: PendingScope | None = None,
        growth: GrowthRule | None = None,
        is_forgotten: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.corpus = corpus
        self._is_forgotten = is_forgotten
        self._pending = pending
        self._growth = growth

    def discover(self) -> Discovery:
        """Return every file of the sources, without the transcripts of forgotten sessions."""
        discovery = self.corpus.discover()
        if not self.corpus.sessions:
            return discovery
        return replace(discovery, files=tuple(filter(self._is_wanted, discovery.files)))

    def _is_wanted(self, file: SourceFile) -> bool:
        return file.source is Source.MEMORY or not self._is_forgotten(session_id(file.parts[-1]))

    def take(self, index: Writer, *, everything: bool, refills: bool = True) -> tuple[SyncPlan, Rows]:
        """Take the pending scope; return the plan for it and the rows that the plan compares.

        With `everything`, plan for FULL_SCOPE. Without `refills`, rows that an older version wrote count as current.
        """
        scope = FULL_SCOPE if self._pending is None else self._pending.take()
        if everything:
            scope = FULL_SCOPE
        if scope.files and not scope.sources:
            rows = index.memory_files(scope.files)
            plan = self._plan_named_files(scope.files, rows)
            if plan is not None:
                return plan, rows
            scope = scope.union(DUE_SCOPE)
        all_rows = self._with_outdated(index)
        if not refills:
            all_rows = as_current(all_rows)
        return self.plan(self.discover(), all_rows, scope), all_rows

    def _with_outdated(self, index: Writer) -> Rows:
        """Return the rows of the index; a transcript that another version read has a size that no file has.

        It therefore counts as changed and is due, and is read from its beginning: its text may be masked differently.
        """
        rows = index.files()
        outdated = index.outdated_transcripts(READER_VERSION) if self.corpus.sessions else frozenset()
        if not outdated:
            return rows
        return {
            key: replace(row, stat=replace(row.stat, size_bytes=-1)) if row.id in outdated else row
            for key, row in rows.items()
        }

    def _plan_named_files(self, paths: Iterable[str], rows: Rows) -> SyncPlan | None:
        """Return the plan for these Markdown files; None if only discovery can decide what to do about one of them.

        A file that is new or has replaced the indexed one is read under this name. If it has another name that comes
        first, the next discovery removes this one.
        """
        files: list[SourceFile] = []
        for path in paths:
            row, place = rows.get((Source.MEMORY, path)), self._place(path)
            if place is None or (row is not None and row.error is not None):
                return None
            file = self._stat(place)
            if file is not None and (row is not None or self._is_new_memory(place)):
                files.append(file)
            elif file is not None or row is None or not self._is_deleted(place, row):
                return None
        plan = make_plan(Discovery(tuple(files), (), ()), rows)
        return replace(plan, covers_every_source=False, of_named_files=True)

    def _place(self, path: str) -> Location | None:
        with suppress(MemorydError):
            return self.corpus.resolve(path)
        return None

    def _stat(self, place: Location) -> SourceFile | None:
        with suppress(MemorydError, OSError):
            stat = self.corpus.stat_file(place)
            return None if stat is None else SourceFile(place.path, place.source, place.root, place.parts, stat)
        return None

    def _is_new_memory(self, place: Location) -> bool:
        return self.corpus.memory and self.corpus.is_discoverable(place)

    def _is_deleted(self, place: Location, row: FileRow) -> bool:
        with suppress(MemorydError, OSError):
            return self.corpus.is_deleted(place, row.stat.device)
        return False

    def plan(self, discovery: Discovery, rows: Rows, scope: SyncScope = DUE_SCOPE) -> SyncPlan:
        """Return the differences that are in `scope` and due."""
        plan = make_plan(discovery, rows)
        if not self.corpus.sessions and scope.covers_every_source:
            return plan
        moved = _moved_transcripts(discovery.files, rows, plan.removed)
        due, waiting = self._split_due(plan.changed, rows, moved, scope)
        moved_ids = {row.id for row in moved.values()}
        return replace(
            plan,
            # Moved transcripts come first, so that a new transcript can be stored under the name of a moved one.
            changed=tuple(sorted(due, key=lambda file: file.path not in moved)),
            doubtful=tuple(_in_scope(scope, plan.doubtful)),
            retried=tuple(_in_scope(scope, plan.retried)),
            removed=tuple(row for row in plan.removed if row.source in scope.sources and row.id not in moved_ids),
            waiting=waiting,
            moved=moved,
            covers_every_source=scope.covers_every_source,
        )

    def _split_due(
        self, changed: Iterable[SourceFile], rows: Rows, moved: Mapping[str, FileRow], scope: SyncScope
    ) -> tuple[tuple[SourceFile, ...], tuple[SourceFile, ...]]:
        """Split changed files into those to read now and those that wait."""
        due: list[SourceFile] = []
        waiting: list[SourceFile] = []
        for file in _in_scope(scope, changed):
            row = rows.get((file.source, file.path))
            is_due = file.source is Source.MEMORY or file.path in moved or self._is_due(file, row, scope)
            (due if is_due else waiting).append(file)
        return tuple(due), tuple(waiting)

    def _is_due(self, file: SourceFile, row: FileRow | None, scope: SyncScope) -> bool:
        if self._growth is None or scope.every_transcript or file.parts[-1] in scope.transcripts:
            return True
        if row is not None and (row.error is not None or identity_of(row.stat) != identity_of(file.stat)):
            return True
        return self._growth.is_due(file, None if row is None else row.stat, self.corpus.open_transcript)


def _in_scope(scope: SyncScope, files: Iterable[SourceFile]) -> Iterable[SourceFile]:
    return (file for file in files if file.source in scope.sources)


class LastComparison:
    """The result of the last comparison of disk and index. May be read from any thread.

    `agreed_ns` is when the latest comparison began after which disk and index agreed (Unix nanoseconds; None before the
    first). `hidden` are the folders that the latest comparison could not read, with the number of files that they hide;
    `skipped` are those that hide none.
    """

    def __init__(self) -> None:
        self.agreed_ns: int | None = None
        self.hidden: tuple[HiddenFiles, ...] = ()
        self.skipped: tuple[HiddenFiles, ...] = ()

    def record(self, plan: SyncPlan, began_ns: int, *, carried_out: bool = False) -> None:
        """Record a plan from a comparison that began at `began_ns`; `carried_out` if nothing of it is left to do.

        Disk and index do not agree while files are hidden: it is unknown whether they have changed.
        """
        self.hidden, self.skipped = plan.hidden, plan.skipped
        if plan.covers_every_source and not plan.hidden and (carried_out or not plan.pending):
            self.agreed_ns = max(began_ns, self.agreed_ns or 0)
