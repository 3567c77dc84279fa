"""DocumentWriter: writes an agent's memory files as documents of a table.

Each write is one transaction. It locks the agent's documents, looks up the idempotency key, compares the content with
the one that the caller has seen, and commits the document, its history and the key together. If the connection is lost
during the commit, the write may be stored or not; a repeated request with the same key writes only if it is not.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from memoryd_server.errors import FileReplaced, IndexBusy, PathNotAllowed, PathTaken, VersionNotFound
from memoryd_server.postgres.agent_database import AgentRows
from memoryd_server.postgres.document_rows import DocumentRows
from memoryd_server.postgres.edit_pause import EditPause
from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.history import PostgresWriteHistory
from memoryd_server.postgres.history_rows import HistoryRows, changed_history
from memoryd_server.sources import Location, Roots, resolve_for_append
from memoryd_server.store import WriteKind
from memoryd_server.writing import (
    PAUSE_SECONDS,
    TAIL_BYTES,
    AppendBlock,
    AppendJob,
    AppendReceipt,
    ChangeResult,
    EditJob,
    MoveJob,
    RestoreJob,
    SeenFile,
    WriteJob,
    WriteReceipt,
    change_of,
    change_to,
    invalid,
    kind_of,
    missing_newlines,
    receipt_of,
    record_of,
    require_expected,
    require_same_request,
    require_size,
    text_field,
)

_KEPT = "was changed during the call, and is kept; call again to delete its current content"

_Change = Callable[[bytes | None], ChangeResult]

KEPT_KEYS: Final = 10_000
"""The number of newest idempotency keys of appends to keep. A retry with an older key appends its text again."""

_KNOWN = """SELECT request_sha256, path, start_line, end_line FROM append_keys
    WHERE agent_id = %(agent)s AND key = %(key)s"""
_ADD_KEY = """INSERT INTO append_keys(agent_id, key, path, request_sha256, start_line, end_line, version,
        appended_at_ms)
    VALUES(%(agent)s, %(key)s, %(path)s, %(request)s, %(start)s, %(end)s, %(version)s, %(now)s)"""
_COUNT_KEY = """UPDATE document_states SET append_keys = append_keys + 1 WHERE agent_id = %(agent)s
    RETURNING append_keys"""
_REMOVE_KEYS = """DELETE FROM append_keys WHERE agent_id = %(agent)s AND version <= (
    SELECT max(version) FROM (SELECT version FROM append_keys WHERE agent_id = %(agent)s ORDER BY version
        LIMIT %(surplus)s) AS oldest)"""
_REDUCE_KEYS = "UPDATE document_states SET append_keys = append_keys - %(removed)s WHERE agent_id = %(agent)s"


@dataclass(frozen=True, slots=True)
class _Write:
    """One transaction that has locked the agent's documents, and the version and the time of its writes."""

    rows: AgentRows
    documents: DocumentRows
    version: int
    time_ms: int

    @property
    def mtime_ns(self) -> int:
        return max(1, self.time_ms * 1_000_000)


@dataclass(frozen=True, slots=True)
class _Edit(_Write):
    """A transaction that has also locked the agent's history."""

    history: HistoryRows


class DocumentWriter:
    """Write the memory files of one agent. Thread-safe, and safe with other processes. Blocks.

    `history` is that of the same agent in the same database. `new_id` returns a new random name, of letters, digits,
    "-" and "_", at each call; `now_ms` is the wall clock. `kept_keys` is the number of keys of appends to keep.
    """

    def __init__(
        self,
        roots: Roots,
        history: PostgresWriteHistory,
        *,
        max_file_bytes: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        kept_keys: int = KEPT_KEYS,
    ) -> None:
        self._roots = roots
        self._history = history
        self._database = history.documents()
        self._max_file_bytes = max_file_bytes
        self._now_ms = now_ms
        self._new_id = new_id
        self._kept_keys = kept_keys
        # Writes of one agent wait for each other here, so that they do not occupy all connections.
        self._appends = threading.Lock()
        self._edits = threading.Lock()
        self._pause = EditPause(self._database, new_id)

    def recover(self) -> None:
        """Do nothing: the server rolls back a transaction that a crash interrupts."""

    def release_memory(self) -> None:
        """Do nothing: no rows are cached in memory."""

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator: damage of the history."""
        return tuple(filter(None, (self._history.problem,)))

    @contextmanager
    def _write(self) -> Iterator[_Write]:
        with self._database.write() as rows:
            version = rows.lock_documents()
            yield _Write(rows, DocumentRows(rows), version, self._now_ms())

    @contextmanager
    def _edit(self) -> Iterator[_Edit]:
        with self._write() as write:
            self._pause.require_none(write.rows)
            with changed_history(write.rows.connection, write.rows.agent_id) as history:
                yield _Edit(write.rows, write.documents, write.version, write.time_ms, history)

    def append(self, job: AppendJob) -> AppendReceipt:
        """Append the text, below its heading if it has one, once per key.

        Raises:
            PathNotAllowed: the path is not a memory file.
            InvalidRequest: the key was used with other contents, or the document would become too large.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. If the connection was
                lost during the commit, the text may be written.
        """
        location = resolve_for_append(self._roots, job.path)
        with self._appends, self._write() as write:
            known = write.rows.all(_KNOWN, key=storable(job.key)) if job.key else []
            if known:
                request_sha256, path, start, end = known[0]
                if request_sha256 != job.request_sha256:
                    raise invalid(
                        "idempotency_key", "was used before with other contents; use a new key for a new append"
                    )
                return AppendReceipt(path, start, end, already_appended=True)
            start, end = self._extend(write, location.path, job)
            if job.key:
                self._add_key(write, job, (location.path, start, end))
            return AppendReceipt(location.path, start, end, already_appended=False)

    def _extend(self, write: _Write, path: str, job: AppendJob) -> tuple[int, int]:
        """Write a block at the end of a document, and return the lines of its content."""
        before = self._content(write, path)
        block = AppendBlock(missing_newlines((before or b"")[-TAIL_BYTES:], job.heading), job.content)
        content = (before or b"") + block.data
        require_size("text", content, self._max_file_bytes)
        if before is None:
            write.documents.put(path, content, write.version, write.mtime_ns)
        else:
            write.documents.extend(path, content, len(block.data), write.version, write.mtime_ns)
        return block.lines_after((before or b"").count(b"\n"))

    def _content(self, write: _Write, path: str) -> bytes | None:
        """Return the content of a document; None if it does not exist and can be created.

        Raises:
            PathNotAllowed: it is too large, or a document cannot have this path.
        """
        found = write.documents.read(path, self._max_file_bytes)
        if found is None:
            write.documents.require_place(path)
            return None
        if found[1] is None:
            words = f"the file has more than {self._max_file_bytes} bytes (memoryd.limits.maxFileBytes)"
            raise PathNotAllowed(path, words)
        return found[1]

    def _add_key(self, write: _Write, job: AppendJob, place: tuple[str, int, int]) -> None:
        path, start, end = place
        values = {"key": storable(job.key), "request": job.request_sha256, "now": write.time_ms}
        write.rows.run(_ADD_KEY, path=path, start=start, end=end, version=write.version, **values)
        surplus = write.rows.numbers(_COUNT_KEY)[0] - self._kept_keys
        if surplus > 0:
            write.rows.run(_REDUCE_KEYS, removed=write.rows.run(_REMOVE_KEYS, surplus=surplus))

    def edit(self, job: EditJob) -> WriteReceipt:
        """Perform a job, and record it in the history with the content that it replaced.

        A write that leaves the content as it is succeeds and is recorded, but makes no new version of the document.

        Raises:
            ContentChanged: the document does not have the expected content.
            PathTaken: a document exists where none is expected, or at the new path of a move.
            InvalidRequest: the change cannot be applied, the document would become too large, or the key was used
                before with other contents.
            VersionNotFound: the history does not have the write to restore, or its content.
            PathNotAllowed: the path is not a memory file, or the document is larger than the limit.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. If the connection was
                lost during the commit, the write may be done.
        """
        with self._edits:
            try:
                receipt, is_new = self._pause.repeated(partial(self._edited, job))
            except VersionNotFound:
                self._check_stored(job)
                raise
            if is_new:
                self._history.prune()
            return receipt

    def _edited(self, job: EditJob) -> tuple[WriteReceipt, bool]:
        """Perform a job unless its key was used before; return its receipt, and whether it was performed now."""
        with self._edit() as edit:
            known = edit.history.with_key(job.key) if job.key else None
            if known is None:
                return self._perform(job, edit), True
            require_same_request(job, known)
            return receipt_of(known, already=True), False

    def _check_stored(self, job: EditJob) -> None:
        """Read a content that cannot be restored, so that the history reports it if it is damaged."""
        record = self._history.get(job.version_id) if isinstance(job, RestoreJob) else None
        if record is not None and record.before is not None:
            self._history.content(record.before)

    def _perform(self, job: EditJob, edit: _Edit) -> WriteReceipt:
        match job:
            case WriteJob():
                path = resolve_for_append(self._roots, job.path).path
                return self._change(job, edit, path, kind_of(job), partial(change_of, job))
            case MoveJob():
                return self._move(job, edit)
            case RestoreJob():
                path, content = self._replaced(job, edit)
                return self._change(job, edit, path, WriteKind.RESTORE, lambda _: change_to(content))

    def _replaced(self, job: RestoreJob, edit: _Edit) -> tuple[str, bytes | None]:
        """Return the path of a restoration, and the content that the write replaced."""
        record = edit.history.get(job.version_id)
        if record is None:
            raise VersionNotFound(job.version_id)
        content = None if record.before is None else edit.history.content(record.before)
        if content is None and record.before is not None:
            raise VersionNotFound(job.version_id, removed=True)
        return resolve_for_append(self._roots, job.path or record.path).path, content

    def _change(
        self, job: WriteJob | RestoreJob, edit: _Edit, path: str, kind: WriteKind, change: _Change
    ) -> WriteReceipt:
        before = self._content(edit, path)
        require_expected(path, before, job.expected)
        changed = change(before)
        after = changed.data
        require_size(text_field(job.change) if isinstance(job, WriteJob) else "version_id", after, self._max_file_bytes)
        if after is None:
            edit.documents.delete(path)
        elif after != before:
            edit.documents.put(path, after, edit.version, edit.mtime_ns)
        record = record_of(
            job,
            path,
            kind,
            version_id=self._new_id(),
            time_ms=edit.time_ms,
            before=before,
            after=after,
            lines=(changed.start_line, changed.end_line),
            is_done=True,
        )
        edit.history.add(record, before, after)
        return receipt_of(record)

    def _move(self, job: MoveJob, edit: _Edit) -> WriteReceipt:
        path, new_path = (resolve_for_append(self._roots, each).path for each in (job.path, job.new_path))
        if path == new_path:
            raise invalid("new_path", "is the path of the file; a move needs another path")
        moved = self._content(edit, path)
        require_expected(path, moved, job.expected)
        taken = edit.documents.find(new_path)
        if taken is not None:
            raise PathTaken(new_path, taken.sha256.hex())
        edit.documents.require_place(new_path)
        edit.documents.move(path, new_path, edit.version)
        record = record_of(
            job,
            new_path,
            WriteKind.MOVE,
            version_id=self._new_id(),
            time_ms=edit.time_ms,
            before=moved,
            after=moved,
            moved_from=path,
            is_done=True,
        )
        edit.history.add(record, moved, moved)
        return receipt_of(record)

    def create(self, path: str, data: bytes) -> bool:
        """Create a document; return False if the path is taken.

        Raises:
            PathNotAllowed: the path is not a memory file, or the document would be too large.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: as `append`.
        """
        location = resolve_for_append(self._roots, path)
        if len(data) > self._max_file_bytes:
            words = f"the file would have {len(data)} bytes, more than {self._max_file_bytes}"
            raise PathNotAllowed(path, f"{words} (memoryd.limits.maxFileBytes)")
        with self._appends, self._write() as write:
            if write.documents.find(location.path) is not None:
                return False
            write.documents.require_place(location.path)
            write.documents.put(location.path, data, write.version, write.mtime_ns)
            return True

    def prepare_deletion(self, location: Location) -> None:
        """Do nothing: a deletion is one transaction."""

    def delete(self, location: Location, seen: SeenFile) -> bool:
        """Delete a document without a record in the history; return False if it does not exist.

        Raises:
            FileReplaced: the document is not the one that was seen, and is kept.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: as `append`.
        """
        with self._write() as write:
            found = write.documents.find(location.path)
            if found is None:
                return False
            if found.stat != seen.stat and found.sha256 != seen.content_hash:
                raise FileReplaced(location.path, _KEPT)
            return write.documents.delete(location.path)

    @contextmanager
    def paused(self, most_seconds: float = PAUSE_SECONDS) -> Iterator[None]:
        """Let no replica begin an edit until the block ends.

        Raises:
            IndexBusy: an edit is still running after `most_seconds`.
            IndexUnavailable, IndexReadOnly, DiskFull: the database cannot be used.
        """
        if not self._edits.acquire(timeout=most_seconds):
            raise IndexBusy("an edit of this agent is still being written; try again", retry_after_seconds=1.0)
        try:
            with self._pause.begun(most_seconds):
                yield
        finally:
            self._edits.release()
