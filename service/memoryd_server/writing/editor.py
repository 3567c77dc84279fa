"""Edits of memory files: each is compared with what the caller has seen, recorded in the history, and performed.

The order of steps makes a crash harmless: the record with the old content reaches the disk, then the file is changed,
then the record is marked as done. `EditRecovery` settles what a crash leaves in between, at the start or before the
next edit. The file is changed by `EditedFile`, which undoes a change if another program saved at the same time.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from memoryd_server.errors import (
    ContentChanged,
    IndexBusy,
    MemorydError,
    PathNotAllowed,
    PathTaken,
    VersionNotFound,
    WorkspaceReadOnly,
)
from memoryd_server.renames import Renames
from memoryd_server.sources import Location, Roots, resolve_for_append
from memoryd_server.store import WriteHistory, WriteKind, WriteRecord
from memoryd_server.writing.changes import ChangeResult, text_field
from memoryd_server.writing.edit_jobs import EditJob, MoveJob, RestoreJob, WriteJob, WriteReceipt
from memoryd_server.writing.edit_recovery import EditRecovery
from memoryd_server.writing.edit_rules import (
    change_of,
    change_to,
    invalid,
    kind_of,
    receipt_of,
    record_of,
    require_expected,
    require_same_request,
    require_size,
)
from memoryd_server.writing.edited_file import EditedFile, open_for_edit
from memoryd_server.writing.files import file_errors, write_new
from memoryd_server.writing.memory_writer import PAUSE_SECONDS
from memoryd_server.writing.regular_files import digest_now

_Begin = Callable[[WriteRecord, bytes | None, bytes | None], None]
_Plan = Callable[[bytes | None], ChangeResult]


class Editor:
    """Edit one agent's memory files. Thread-safe, and safe with appends and edits of other processes.

    No call waits for a lock that another program holds: it fails with `FileBusy` and can be repeated. One editor at a
    time uses a history.
    """

    def __init__(
        self,
        roots: Roots,
        history: WriteHistory,
        *,
        max_file_bytes: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        renames: Renames | None = None,
    ) -> None:
        """Create an editor. `new_id` returns a new random name, of letters, digits, "-" and "_", at each call."""
        self._roots = roots
        self._history = history
        self._max_file_bytes = max_file_bytes
        self._now_ms = now_ms
        self._new_id = new_id
        self._renames = renames or Renames()
        self._recovery = EditRecovery(roots, history, self._renames, new_id)
        self._mutex = threading.Lock()

    def recover(self) -> None:
        """Settle the writes that a crash interrupted. Called at the daemon's start, before the files are edited.

        Raises nothing: what cannot be settled now is settled before the next edit.
        """
        with suppress(MemorydError), self._mutex:
            self._recovery.settle_all()

    @contextmanager
    def paused(self, most_seconds: float = PAUSE_SECONDS) -> Iterator[None]:
        """Begin no edit until the block ends. Settle the interrupted ones first, as far as possible. Blocks.

        Raises:
            IndexBusy: an edit is still running after `most_seconds`.
        """
        if not self._mutex.acquire(timeout=most_seconds):
            raise IndexBusy("an edit of this agent is still being written; try again", retry_after_seconds=1.0)
        try:
            with suppress(MemorydError):
                self._recovery.settle_all()
            yield
        finally:
            self._mutex.release()

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator: damage of the history, and writes that could not be settled."""
        return tuple(filter(None, (self._history.problem, *self._recovery.issues())))

    def edit(self, job: EditJob) -> WriteReceipt:
        """Perform a job, and return once the change is on disk. Blocks on the disk.

        A write that leaves the content as it is succeeds and is recorded, but does not replace the file. If the call
        fails, the file is unchanged; only folders that were created for it may be left.

        Raises:
            ContentChanged: the file does not have the expected content.
            PathTaken: a file exists where none is expected, or at the new path of a move.
            InvalidRequest: the change cannot be applied, the file would become too large, or the key was used before
                with other contents.
            VersionNotFound: the history does not have the write to restore, or its content.
            PathNotAllowed: the path is not a memory file of the workspace, leads through a link, or the file is larger
                than the limit.
            FileNotFound: the workspace does not exist.
            WorkspaceReadOnly: the file system or its permissions refuse the write, or the new file could not have the
                owner of the old one.
            DiskFull: no space is left for the file or the history.
            HistoryUnavailable: the history cannot be used.
            FileBusy: another program locks the file.
            FileReplaced: another program replaces the file or its folder repeatedly.
        """
        with self._mutex:
            self._recovery.settle_all()
            known = self._history.with_key(job.key) if job.key else None
            if known is not None:
                return self._repeat(job, known)
            match job:
                case WriteJob():
                    return self._write(job)
                case MoveJob():
                    return self._move(job)
                case RestoreJob():
                    return self._restore(job)

    def _repeat(self, job: EditJob, known: WriteRecord) -> WriteReceipt:
        require_same_request(job, known)
        if not known.is_done:
            self._recovery.require(known.path)
        return receipt_of(known, already=True)

    def _write(self, job: WriteJob) -> WriteReceipt:
        return self._perform(job, job.path, partial(change_of, job), kind_of(job), text_field(job.change))

    def _restore(self, job: RestoreJob) -> WriteReceipt:
        record = self._history.get(job.version_id)
        if record is None:
            raise VersionNotFound(job.version_id)
        content = None if record.before is None else self._history.content(record.before)
        if content is None and record.before is not None:
            raise VersionNotFound(job.version_id, removed=True)
        path = job.path or record.path
        return self._perform(job, path, lambda _: change_to(content), WriteKind.RESTORE, "version_id")

    def _perform(self, job: WriteJob | RestoreJob, path: str, plan: _Plan, kind: WriteKind, field: str) -> WriteReceipt:
        location = self._location(path)
        opened = open_for_edit(location, self._max_file_bytes, self._renames)
        # The file is unlocked before the record is settled.
        with _errors(location.path), self._recorded() as begin, opened as file:
            before = None if file is None else file.data
            require_expected(location.path, before, job.expected)
            changed = plan(before)
            after = changed.data
            require_size(field, after, self._max_file_bytes)
            lines = changed.start_line, changed.end_line
            record = self._record(job, location.path, kind, before=before, after=after, lines=lines)
            begin(record, before, after)
            self._change(location, file, after, record.draft)
        return receipt_of(record)

    def _change(self, location: Location, file: EditedFile | None, after: bytes | None, draft: str) -> None:
        if file is None:
            if after is not None and not write_new(location, after, draft, self._renames):
                raise PathTaken(location.path, digest_now(location))
        elif after is None:
            file.delete(draft)
        elif after != file.data:
            file.replace(after, draft)

    def _move(self, job: MoveJob) -> WriteReceipt:
        location, target = self._location(job.path), self._location(job.new_path)
        if location.path == target.path:
            raise invalid("new_path", "is the path of the file; a move needs another path")
        opened = open_for_edit(location, self._max_file_bytes, self._renames)
        # The file is unlocked before the record is settled.
        with _errors(location.path), self._recorded() as begin, opened as file:
            require_expected(location.path, None if file is None else file.data, job.expected)
            if file is None:
                raise ContentChanged(location.path, "")
            # In a folder that ignores the case of letters, the file itself can be found under its new name.
            if location.path.casefold() != target.path.casefold() and (taken := digest_now(target)):
                raise PathTaken(target.path, taken)
            moved = file.data
            record = self._record(job, target.path, WriteKind.MOVE, before=moved, after=moved, moved_from=location.path)
            begin(record, moved, moved)
            file.move(target, record.draft)
        return receipt_of(record)

    def _location(self, path: str) -> Location:
        location = resolve_for_append(self._roots, path)
        self._recovery.require(location.path)
        return location

    @contextmanager
    def _recorded(self) -> Iterator[_Begin]:
        """Mark the record that the block begins as done. Cancel it if the block fails, or settle it.

        An error of memoryd means that the file was not changed, or that the change was undone. After an error of the
        system, the state of the file says whether it was changed.
        """
        begun: list[WriteRecord] = []

        def begin(record: WriteRecord, before: bytes | None, after: bytes | None) -> None:
            self._history.begin(record, before, after)
            begun.append(record)

        try:
            yield begin
        except MemorydError:
            # If this fails, the record is cancelled before the next edit.
            with suppress(MemorydError):
                for record in begun:
                    self._history.cancel(record.version_id)
            raise
        except BaseException:
            for record in begun:
                self._recovery.settle(record)
            raise
        # The file is changed. If this fails, the record is marked as done before the next edit.
        with suppress(MemorydError):
            for record in begun:
                self._history.finish(record.version_id)

    def _record(
        self,
        job: EditJob,
        path: str,
        kind: WriteKind,
        *,
        before: bytes | None,
        after: bytes | None,
        lines: tuple[int, int] = (0, 0),
        moved_from: str = "",
    ) -> WriteRecord:
        return record_of(
            job,
            path,
            kind,
            version_id=self._new_id(),
            time_ms=self._now_ms(),
            before=before,
            after=after,
            lines=lines,
            moved_from=moved_from,
            # Not a memory file, and independent of the length of the file's name.
            draft=f".{self._new_id()}.memoryd-edit",
        )


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Translate the errors of the file system, as `file_errors`, and those that only edits meet."""
    with file_errors(path):
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise PathNotAllowed(path, "a name in it is longer than the file system allows") from error
            if error.errno == errno.EXDEV:
                words = "is on another file system than the file; write the text to the new path, and delete the file"
                raise invalid("new_path", words) from error
            if error.errno == errno.EBUSY:
                words = f"{path!r} cannot be replaced: it is a mount point; mount its folder instead of the file"
                raise WorkspaceReadOnly(words, metadata={"path": path}) from error
            raise
