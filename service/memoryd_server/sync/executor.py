"""The second half of a sync: carries a plan out, whole files a transaction.

Stopping at any moment, by any means, leaves an index that is merely older, never wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from memoryd_server.errors import FileNotFound, MemorydError, SyncCancelled
from memoryd_server.model import FileFailure, FileStat, Source, SourceFile, stored
from memoryd_server.store import FileRow, PreparedFile, TranscriptPart, Writer
from memoryd_server.sync.plan import SyncPlan
from memoryd_server.sync.prepare import FilePreparer, MissingFile, UnchangedFile, why
from memoryd_server.sync.progress import SyncObserver, SyncOutcome, SyncPhase, SyncProgress

# A transaction is closed at this much text even before it holds its number of files.
MOST_TEXT_IN_A_TRANSACTION = 4 * 1024 * 1024

PROGRESS_INTERVAL_SECONDS = 0.1


class PlanExecutor:
    """One plan being carried out. `monotonic` is a clock in seconds, for the pace of progress events alone."""

    def __init__(
        self,
        writer: Writer,
        preparer: FilePreparer,
        observer: SyncObserver,
        *,
        files_per_transaction: int,
        should_stop: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._preparer = preparer
        self._observer = observer
        self._files_per_transaction = files_per_transaction
        self._should_stop = should_stop
        self._monotonic = monotonic
        self._next_event = 0.0
        self._prepared: list[PreparedFile | TranscriptPart] = []
        self._left: list[FileRow] = []
        self._prepared_chars = 0
        self._touched: list[tuple[FileRow, FileStat]] = []
        self._progress = SyncProgress(phase=SyncPhase.INDEXING)
        self._outcome = SyncOutcome(revision=writer.revision())
        self.vanished: list[FileRow] = []

    def carry_out(self, plan: SyncPlan, rows: Mapping[tuple[Source, str], FileRow]) -> SyncOutcome:
        """Carries the plan out. `vanished` are then the rows of files that were found and gone when they were read.

        Raises:
            SyncCancelled: `should_stop` said so; what was done until then is committed.
        """
        self._outcome = replace(self._outcome, unchanged_files=plan.unchanged)
        self._progress = replace(self._progress, total_files=len(plan.to_read))
        for failure in plan.failures:
            self._failed(failure)
        for file in plan.to_read:
            self._stop_if_asked()
            self._take(file, self._known(file, plan, rows))
        self._commit()
        # Last, so that the notes of a folder that was moved are never all missing.
        self._remove((*plan.removed, *self._left))
        self._tell(force=True)
        return self._outcome

    def remove(self, rows: tuple[FileRow, ...]) -> SyncOutcome:
        """Removes more rows; returns the outcome with them."""
        self._remove(rows)
        return self._outcome

    def _stop_if_asked(self) -> None:
        if self._should_stop():
            self._commit()
            raise SyncCancelled(
                "the sync run was cancelled; what it had indexed stays, and a fresh Sync goes on from there"
            )

    def _remove(self, removed: tuple[FileRow, ...]) -> None:
        for start in range(0, len(removed), self._files_per_transaction):
            self._committed(self._writer.write((), removed[start : start + self._files_per_transaction]))
        self._outcome = replace(self._outcome, removed_files=self._outcome.removed_files + len(removed))

    def _known(self, file: SourceFile, plan: SyncPlan, rows: Mapping[tuple[Source, str], FileRow]) -> FileRow | None:
        """The row of what is indexed of a file, perhaps under the path that it had before."""
        row = plan.moved.get(file.path) if file.source is Source.SESSIONS else None
        row = row or rows.get((file.source, file.path))
        gone_elsewhere = row is not None and row.path == file.path and row in plan.moved.values()
        return None if gone_elsewhere else row

    def _take(self, file: SourceFile, known: FileRow | None) -> None:
        self._progress = replace(self._progress, current_path=file.path)
        self._tell()
        if file.source is Source.SESSIONS:
            self._take_transcript(file, known)
        else:
            self._take_file(file, known)
        self._progress = replace(self._progress, completed_files=self._progress.completed_files + 1)
        self._commit_if_much()

    def _take_transcript(self, file: SourceFile, known: FileRow | None) -> None:
        state = None if known is None else self._writer.transcript(known.id)
        parts = self._preparer.transcripts.parts(file, known, state)
        read = False
        while True:
            try:
                part = next(parts, None)
            except FileNotFound:
                return self._vanished(known)
            except (OSError, MemorydError) as error:
                failed = PreparedFile(file.path, file.source, file.stat, b"", error=why(error))
                return self._note_failure(failed, known)
            if part is None:
                break
            read = True
            if part.replaces_all and known is not None and known.path != file.path:
                self._left.append(known)
            self._add_part(part)
        if not read:
            self._unchanged(known, UnchangedFile(file.stat))
        return None

    def _add_part(self, part: TranscriptPart) -> None:
        self._prepared.append(part)
        self._prepared_chars += sum(len(chunk.text) for chunk in part.chunks)
        self._progress = replace(self._progress, total_chunks=self._progress.total_chunks + len(part.chunks))
        if part.is_last:
            self._outcome = replace(self._outcome, indexed_files=self._outcome.indexed_files + 1)
        else:
            self._commit_if_much()
            self._tell()
            self._stop_if_asked()

    def _take_file(self, file: SourceFile, known: FileRow | None) -> None:
        prepared = self._preparer.prepare(file, known)
        if isinstance(prepared, UnchangedFile):
            self._unchanged(known, prepared)
        elif isinstance(prepared, MissingFile):
            self._vanished(known)
        elif prepared.error is not None:
            self._note_failure(prepared, known)
        else:
            self._changed(prepared)

    def _commit_if_much(self) -> None:
        if len(self._prepared) >= self._files_per_transaction or self._prepared_chars > MOST_TEXT_IN_A_TRANSACTION:
            self._commit()

    def _vanished(self, known: FileRow | None) -> None:
        if known is not None:
            self.vanished.append(known)

    def _unchanged(self, known: FileRow | None, same: UnchangedFile) -> None:
        self._touch(known, same.stat)
        self._outcome = replace(self._outcome, unchanged_files=self._outcome.unchanged_files + 1)

    def _note_failure(self, prepared: PreparedFile, known: FileRow | None) -> None:
        self._failed(FileFailure(prepared.path, prepared.source, prepared.error or ""))
        if known is None or known.error != prepared.error:
            self._prepared.append(prepared)
        else:
            self._touch(known, prepared.stat)

    def _touch(self, known: FileRow | None, stat: FileStat) -> None:
        if known is not None and known.stat != stored(stat):
            self._touched.append((known, stat))

    def _changed(self, prepared: PreparedFile) -> None:
        self._prepared.append(prepared)
        self._prepared_chars += sum(len(chunk.text) for chunk in prepared.chunks)
        self._outcome = replace(self._outcome, indexed_files=self._outcome.indexed_files + 1)
        self._progress = replace(self._progress, total_chunks=self._progress.total_chunks + len(prepared.chunks))

    def _failed(self, failure: FileFailure) -> None:
        self._observer.file_failed(failure)
        self._outcome = replace(self._outcome, failed_files=self._outcome.failed_files + 1)
        self._progress = replace(self._progress, failed_files=self._outcome.failed_files)

    def _commit(self) -> None:
        if self._touched:
            self._writer.touch(self._touched)
            self._touched = []
        if not self._prepared:
            return
        chunks = sum(len(file.chunks) for file in self._prepared)
        self._committed(self._writer.write(self._prepared))
        self._prepared, self._prepared_chars = [], 0
        self._outcome = replace(self._outcome, chunks=self._outcome.chunks + chunks)
        self._progress = replace(self._progress, completed_chunks=self._outcome.chunks)

    def _committed(self, revision: int) -> None:
        self._outcome = replace(self._outcome, revision=revision, changed=True)
        self._observer.committed(revision)

    def _tell(self, *, force: bool = False) -> None:
        now = self._monotonic()
        if force or now >= self._next_event:
            self._next_event = now + PROGRESS_INTERVAL_SECONDS
            self._observer.progress(self._progress)
