"""Looks at the sources and at what was asked for, and says what a sync has to do."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from memoryd_server.errors import MemorydError
from memoryd_server.index.asks import EVERYTHING, WHAT_IS_DUE, Asks, SyncAsk
from memoryd_server.index.plan import SyncPlan, identity_of, make_plan, moved_transcripts
from memoryd_server.model import Source, SourceFile
from memoryd_server.sources import Discovery, stat_file
from memoryd_server.sources.corpus import Corpus
from memoryd_server.sources.transcript_growth import Growth
from memoryd_server.sources.transcripts import session_id
from memoryd_server.store.protocol import Writer
from memoryd_server.store.rows import FileRow

Rows = Mapping[tuple[Source, str], FileRow]


class Survey:
    """The sources of one index. Without `growth` every transcript that differs is due.

    The transcripts of sessions that are forgotten stay out.
    """

    def __init__(
        self,
        corpus: Corpus,
        asks: Asks | None = None,
        growth: Growth | None = None,
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
        asked = EVERYTHING if self._asks is None else self._asks.take()
        if everything:
            asked = EVERYTHING
        if asked.files and not asked.sources:
            rows = known.memory_files(asked.files)
            plan = self._plan_of_files(asked.files, rows)
            if plan is not None:
                return plan, rows
            asked = asked.and_also(WHAT_IS_DUE)
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

    def plan(self, discovery: Discovery, rows: Rows, ask: SyncAsk = WHAT_IS_DUE) -> SyncPlan:
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
        self, changed: Iterable[SourceFile], rows: Rows, moved: Mapping[str, FileRow], ask: SyncAsk
    ) -> tuple[tuple[SourceFile, ...], tuple[SourceFile, ...]]:
        """The files to read now, and those that wait."""
        due: list[SourceFile] = []
        waiting: list[SourceFile] = []
        for file in _of(ask, changed):
            row = rows.get((file.source, file.path))
            is_due = file.source is Source.MEMORY or file.path in moved or self._is_due(file, row, ask)
            (due if is_due else waiting).append(file)
        return tuple(due), tuple(waiting)

    def _is_due(self, file: SourceFile, row: FileRow | None, ask: SyncAsk) -> bool:
        if self._growth is None or ask.every_transcript or file.parts[-1] in ask.transcripts:
            return True
        if row is not None and (row.error is not None or identity_of(row.stat) != identity_of(file.stat)):
            return True
        return self._growth.is_due(file, None if row is None else row.stat)


def _of(ask: SyncAsk, files: Iterable[SourceFile]) -> Iterable[SourceFile]:
    return (file for file in files if file.source in ask.sources)
