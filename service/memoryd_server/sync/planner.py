"""SyncPlanner: scope asked for, files due.

Looks at the sources and at what was asked for, and says what a sync has to do.

What a sync run is asked to bring up to date, collected until a pass takes it.
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
    """The sources to bring up to date, and which transcripts count however little they have grown.

    These are all of them, or those of `transcripts`, file names. `files` are paths of Markdown files that count where
    their source is left out: somebody knows that these alone have changed.
    """

    sources: frozenset[Source] = EVERY_SOURCE
    every_transcript: bool = True
    transcripts: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def of_file(cls, path: str) -> Self:
        """One Markdown file that has changed."""
        return cls(frozenset(), every_transcript=False, files=frozenset({path}))

    @property
    def whole(self) -> bool:
        """Whether no source is left out."""
        return self.sources == EVERY_SOURCE

    def and_also(self, other: "SyncScope") -> "SyncScope":
        """Both at once."""
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
"""All sources; of the transcripts those that have grown enough, or have gone quiet."""


class PendingScope:
    """The asks that no pass has taken yet. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: SyncScope | None = None

    def add(self, ask: SyncScope) -> None:
        """Lets the next pass see to `ask`, too."""
        with self._lock:
            self._asked = ask if self._asked is None else self._asked.and_also(ask)

    def take(self) -> SyncScope:
        """What has been asked since the last time; what is due where nothing was."""
        with self._lock:
            asked, self._asked = self._asked, None
        return DUE_SCOPE if asked is None else asked

    @property
    def whole(self) -> bool:
        """Whether the next pass leaves no source out."""
        with self._lock:
            return self._asked is None or self._asked.whole


Rows = Mapping[tuple[Source, str], FileRow]


class SyncPlanner:
    """The sources of one index. Without `growth` every transcript that differs is due.

    The transcripts of sessions that are forgotten stay out.
    """

    def __init__(
        self,
        corpus: Corpus,
        asks: PendingScope | None = None,
        growth: GrowthRule | None = None,
        is_forgotten: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.corpus = corpus
        self._is_forgotten = is_forgotten
        self._asks = asks
        self._growth = growth

    def discover(self) -> Discovery:
        """Every file of the sources."""
        found = self.corpus.discover()
        return replace(found, files=tuple(filter(self._counts, found.files))) if self.corpus.sessions else found

    def _counts(self, file: SourceFile) -> bool:
        return file.source is Source.MEMORY or not self._is_forgotten(session_id(file.parts[-1]))

    def take(self, known: Writer, *, everything: bool) -> tuple[SyncPlan, Rows]:
        """What the pass has to do that begins now, and the rows that it is about.

        That is what was asked for since the last one, or simply everything.
        """
        asked = FULL_SCOPE if self._asks is None else self._asks.take()
        if everything:
            asked = FULL_SCOPE
        if asked.files and not asked.sources:
            rows = known.memory_files(asked.files)
            plan = self._plan_of_files(asked.files, rows)
            if plan is not None:
                return plan, rows
            asked = asked.and_also(DUE_SCOPE)
        rows = known.files()
        return self.plan(self.discover(), rows, asked), rows

    def _plan_of_files(self, paths: Iterable[str], rows: Rows) -> SyncPlan | None:
        """What to do about some Markdown files; None where one is not the very file that the index knows.

        Whether a new file counts, or which of two names does, only a look at all of them tells.
        """
        found: list[SourceFile] = []
        for path in paths:
            row, file = rows.get((Source.MEMORY, path)), self._at(path)
            if row is None or row.error is not None or file is None or identity_of(row.stat) != identity_of(file.stat):
                return None
            found.append(file)
        return replace(make_plan(Discovery(tuple(found), (), ()), rows), whole=False, of_files=True)

    def _at(self, path: str) -> SourceFile | None:
        try:
            place = self.corpus.resolve(path)
            stat = stat_file(place)
        except (MemorydError, OSError):
            return None
        return None if stat is None else SourceFile(place.path, place.source, place.root, place.parts, stat)

    def plan(self, discovery: Discovery, rows: Rows, ask: SyncScope = DUE_SCOPE) -> SyncPlan:
        """What differs, as far as it was asked for and is due."""
        plan = make_plan(discovery, rows)
        if not self.corpus.sessions and ask.whole:
            return plan
        moved = moved_transcripts(discovery.files, rows)
        due, waiting = self._parted(plan.changed, rows, moved, ask)
        gone_to = {row.id for row in moved.values()}
        return replace(
            plan,
            # First, so that a name is free when the next transcript has taken it.
            changed=tuple(sorted(due, key=lambda file: file.path not in moved)),
            doubtful=tuple(_of(ask, plan.doubtful)),
            retried=tuple(_of(ask, plan.retried)),
            removed=tuple(row for row in plan.removed if row.source in ask.sources and row.id not in gone_to),
            waiting=waiting,
            moved=moved,
            whole=ask.whole,
        )

    def _parted(
        self, changed: Iterable[SourceFile], rows: Rows, moved: Mapping[str, FileRow], ask: SyncScope
    ) -> tuple[tuple[SourceFile, ...], tuple[SourceFile, ...]]:
        """The files to read now, and those that wait."""
        due: list[SourceFile] = []
        waiting: list[SourceFile] = []
        for file in _of(ask, changed):
            row = rows.get((file.source, file.path))
            is_due = file.source is Source.MEMORY or file.path in moved or self._is_due(file, row, ask)
            (due if is_due else waiting).append(file)
        return tuple(due), tuple(waiting)

    def _is_due(self, file: SourceFile, row: FileRow | None, ask: SyncScope) -> bool:
        if self._growth is None or ask.every_transcript or file.parts[-1] in ask.transcripts:
            return True
        if row is not None and (row.error is not None or identity_of(row.stat) != identity_of(file.stat)):
            return True
        return self._growth.is_due(file, None if row is None else row.stat)


def _of(ask: SyncScope, files: Iterable[SourceFile]) -> Iterable[SourceFile]:
    return (file for file in files if file.source in ask.sources)
