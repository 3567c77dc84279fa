"""The second half of a sync: carries out a plan, whole files per transaction.

A run that is stopped or killed at any moment leaves an index that is older than the files, but never inconsistent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from memoryd_server.errors import FileNotFound, MemorydError, SyncCancelled
from memoryd_server.model import FileFailure, FileStat, Source, SourceFile, stored
from memoryd_server.sources import ReadStopped
from memoryd_server.store import FileRow, PreparedFile, TranscriptPart, Writer
from memoryd_server.sync.plan import SyncPlan
from memoryd_server.sync.prepare import (
    READER_VERSION,
    STORE_FAILURES,
    FilePreparer,
    MissingFile,
    UnchangedFile,
    failure_reason,
)
from memoryd_server.sync.progress import SyncObserver, SyncOutcome, SyncPhase, SyncProgress

# A transaction is committed at this many characters of text, even with fewer files than it may have.
MAX_TRANSACTION_CHARS = 4 * 1024 * 1024

PROGRESS_INTERVAL_SECONDS = 0.1


@dataclass(slots=True)
class _Counts:
    """What a run has done so far. Mutable, because several of them change with each file."""

    unchanged_files: int = 0
    indexed_files: int = 0
    completed_files: int = 0
    pending_files: int = 0
    total_chunks: int = 0
    current_path: str = ""


class PlanExecutor:
    """Carries out one plan. `monotonic` is a clock in seconds, used only for the rate of progress events."""

    def __init__(
        self,
        writer: Writer,
        preparer: FilePreparer,
        observer: SyncObserver,
        *,
        files_per_transaction: int,
        chars_per_transaction: int,
        should_stop: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._preparer = preparer
        self._observer = observer
        self._files_per_transaction = files_per_transaction
        self._chars_per_transaction = chars_per_transaction
        self._should_stop = should_stop
        self._monotonic = monotonic
        self._next_event = 0.0
        self._prepared: list[PreparedFile | TranscriptPart] = []
        self._prepared_chars = 0
        self._touched: list[tuple[FileRow, FileStat]] = []
        self._counts = _Counts()
        self._total_files = 0
        self._removing = 0
        self._outcome = SyncOutcome(revision=writer.revision())
        self.missing: list[FileRow] = []

    def run(self, plan: SyncPlan, rows: Mapping[tuple[Source, str], FileRow]) -> SyncOutcome:
        """Carry out the plan. Afterwards, `missing` has the rows of files that were found and gone when they were read.

        Raises:
            SyncCancelled: `should_stop` returned true; everything done until then is committed.
        """
        self._removing = len(plan.removed)
        self._total_files = len(plan.to_read)
        self._counts = _Counts(unchanged_files=plan.unchanged, pending_files=len(plan.changed) + self._removing)
        for failure in plan.failures:
            self._record_failure(failure)
        for file in plan.to_read:
            self._check_stop()
            self._index(file, self._indexed_row(file, plan, rows))
        self._commit()
        # Last, so that the files of a folder that was moved are never all missing from the index.
        self._remove(plan.removed)
        self._counts.pending_files = 0
        self._report_progress(force=True)
        return self._complete_outcome()

    def remove(self, rows: tuple[FileRow, ...]) -> SyncOutcome:
        """Remove more rows; return the outcome including them."""
        self._remove(rows)
        return self._complete_outcome()

    def _complete_outcome(self) -> SyncOutcome:
        counts = self._counts
        return replace(self._outcome, unchanged_files=counts.unchanged_files, indexed_files=counts.indexed_files)

    def _check_stop(self) -> None:
        if self._should_stop():
            self._cancel()

    def _cancel(self) -> NoReturn:
        self._commit()
        raise SyncCancelled(
            "the sync run was cancelled; files indexed until then stay indexed, and a new Sync does the rest"
        )

    def _remove(self, removed: tuple[FileRow, ...]) -> None:
        for start in range(0, len(removed), self._files_per_transaction):
            self._report_commit(self._writer.write((), removed[start : start + self._files_per_transaction]))
        self._outcome = replace(self._outcome, removed_files=self._outcome.removed_files + len(removed))

    def _indexed_row(
        self, file: SourceFile, plan: SyncPlan, rows: Mapping[tuple[Source, str], FileRow]
    ) -> FileRow | None:
        """Return the row of a file, which may be stored under an earlier path; None if the file is not indexed."""
        row = plan.moved.get(file.path) if file.source is Source.SESSIONS else None
        row = row or rows.get((file.source, file.path))
        moved_away = row is not None and row.path == file.path and row in plan.moved.values()
        return None if moved_away else row

    def _index(self, file: SourceFile, known: FileRow | None) -> None:
        self._counts.current_path = file.path
        self._report_progress()
        if file.source is Source.SESSIONS:
            try:
                self._index_transcript(file, known)
            except ReadStopped:
                self._cancel()
        else:
            self._index_file(file, known)
        # Changed files come first in a plan.
        self._counts.pending_files = max(self._removing, self._counts.pending_files - 1)
        self._counts.completed_files += 1
        self._commit_if_large()

    def _index_transcript(self, file: SourceFile, known: FileRow | None) -> None:
        state = None if known is None else self._writer.transcript(known.id)
        # A transcript that another version of the reader has read is replaced instead.
        if known is not None and known.is_outdated and state is not None and state.version == READER_VERSION:
            self._commit()
            chunks = self._preparer.transcripts.indexed_chunks(file, state, self._should_stop)
            self._writer.refill_transcript(known, chunks, self._should_stop)
            # The origins of the last chunk's lines, which the next messages continue.
            state = self._writer.transcript(known.id)
        parts = self._preparer.transcripts.parts(file, known, state, self._should_stop)
        has_parts = False
        while True:
            try:
                part = next(parts, None)
            except FileNotFound:
                return self._add_missing(known)
            except STORE_FAILURES:
                raise
            except (OSError, MemorydError) as error:
                failed = PreparedFile(file.path, file.source, file.stat, b"", error=failure_reason(error))
                return self._add_failed(failed, known)
            if part is None:
                break
            has_parts = True
            self._add_part(part)
        if not has_parts:
            self._add_unchanged(known, UnchangedFile(file.stat))
        return None

    def _add_part(self, part: TranscriptPart) -> None:
        self._prepared.append(part)
        self._prepared_chars += sum(len(chunk.text) for chunk in part.chunks)
        self._counts.total_chunks += len(part.chunks)
        if part.is_last:
            self._counts.indexed_files += 1
        else:
            self._commit_if_large()
            self._report_progress()
            self._check_stop()

    def _index_file(self, file: SourceFile, known: FileRow | None) -> None:
        prepared = self._preparer.prepare(file, known)
        if isinstance(prepared, UnchangedFile):
            self._add_unchanged(known, prepared)
        elif isinstance(prepared, MissingFile):
            self._add_missing(known)
        elif prepared.error is not None:
            self._add_failed(prepared, known)
        elif prepared.same_bytes:
            self._prepared.append(prepared)
            self._prepared_chars += sum(len(chunk.text) for chunk in prepared.chunks)
            self._counts.unchanged_files += 1
        else:
            self._add_changed(prepared)

    def _commit_if_large(self) -> None:
        if len(self._prepared) >= self._files_per_transaction or self._prepared_chars > self._chars_per_transaction:
            self._commit()

    def _add_missing(self, known: FileRow | None) -> None:
        if known is not None:
            self.missing.append(known)

    def _add_unchanged(self, known: FileRow | None, unchanged: UnchangedFile) -> None:
        self._touch(known, unchanged.stat)
        self._counts.unchanged_files += 1

    def _add_failed(self, prepared: PreparedFile, known: FileRow | None) -> None:
        self._record_failure(FileFailure(prepared.path, prepared.source, prepared.error or ""))
        if known is None or known.error != prepared.error:
            self._prepared.append(prepared)
        else:
            self._touch(known, prepared.stat)

    def _touch(self, known: FileRow | None, stat: FileStat) -> None:
        if known is not None and known.stat != stored(stat):
            self._touched.append((known, stat))

    def _add_changed(self, prepared: PreparedFile) -> None:
        self._prepared.append(prepared)
        self._prepared_chars += sum(len(chunk.text) for chunk in prepared.chunks)
        self._counts.indexed_files += 1
        self._counts.total_chunks += len(prepared.chunks)

    def _record_failure(self, failure: FileFailure) -> None:
        self._observer.file_failed(failure)
        self._outcome = replace(self._outcome, failed_files=self._outcome.failed_files + 1)

    def _commit(self) -> None:
        if self._touched:
            self._writer.touch(self._touched)
            self._touched = []
        if not self._prepared:
            return
        chunks = sum(len(file.chunks) for file in self._prepared)
        self._report_commit(self._writer.write(self._prepared))
        self._prepared, self._prepared_chars = [], 0
        self._outcome = replace(self._outcome, chunks=self._outcome.chunks + chunks)

    def _report_commit(self, revision: int) -> None:
        self._outcome = replace(self._outcome, revision=revision, changed=True)
        self._observer.committed(revision)

    def _report_progress(self, *, force: bool = False) -> None:
        now = self._monotonic()
        if force or now >= self._next_event:
            self._next_event = now + PROGRESS_INTERVAL_SECONDS
            self._observer.progress(
                SyncProgress(
                    SyncPhase.INDEXING,
                    self._counts.completed_files,
                    self._total_files,
                    self._counts.pending_files,
                    completed_chunks=self._outcome.chunks,
                    total_chunks=self._counts.total_chunks,
                    failed_files=self._outcome.failed_files,
                    current_path=self._counts.current_path,
                )
            )
