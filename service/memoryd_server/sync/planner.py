"""SyncPlanner: which files a sync has to read, from the requested scope and the state of the disk.

`PendingScope` collects the scopes that runs request, until a run takes them.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from memoryd_server.errors import MemorydError
from memoryd_server.model import Source, SourceFile, identity_of
from memoryd_server.sources import Corpus, Discovery, GrowthRule, session_id, stat_file
from memoryd_server.store import FileRow, Writer
from memoryd_server.sync.plan import SyncPlan, make_plan, moved_transcripts

EVERY_SOURCE = frozenset(Source)


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
    def of_file(cls, path: str) -> Self:
        """Return the scope of one changed Markdown file."""
        return cls(frozenset(), every_transcript=False, files=frozenset({path}))

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


Rows = Mapping[tuple[Source, str], FileRow]


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

    def take(self, index: Writer, *, everything: bool) -> tuple[SyncPlan, Rows]:
        """Take the pending scope; return the plan for it and the rows that the plan compares.

        With `everything`, plan for FULL_SCOPE.
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
        rows = index.files()
        return self.plan(self.discover(), rows, scope), rows

    def _plan_named_files(self, paths: Iterable[str], rows: Rows) -> SyncPlan | None:
        """Return the plan for these Markdown files; None unless each of them is the same file that is indexed.

        Only discovery can decide whether a new file is memory, and which of a file's names counts.
        """
        files: list[SourceFile] = []
        for path in paths:
            row, file = rows.get((Source.MEMORY, path)), self._stat(path)
            if row is None or row.error is not None or file is None or identity_of(row.stat) != identity_of(file.stat):
                return None
            files.append(file)
        plan = make_plan(Discovery(tuple(files), (), ()), rows)
        return replace(plan, covers_every_source=False, of_named_files=True)

    def _stat(self, path: str) -> SourceFile | None:
        try:
            place = self.corpus.resolve(path)
            stat = stat_file(place)
        except (MemorydError, OSError):
            return None
        return None if stat is None else SourceFile(place.path, place.source, place.root, place.parts, stat)

    def plan(self, discovery: Discovery, rows: Rows, scope: SyncScope = DUE_SCOPE) -> SyncPlan:
        """Return the differences that are in `scope` and due."""
        plan = make_plan(discovery, rows)
        if not self.corpus.sessions and scope.covers_every_source:
            return plan
        moved = moved_transcripts(discovery.files, rows)
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
        return self._growth.is_due(file, None if row is None else row.stat)


def _in_scope(scope: SyncScope, files: Iterable[SourceFile]) -> Iterable[SourceFile]:
    return (file for file in files if file.source in scope.sources)
