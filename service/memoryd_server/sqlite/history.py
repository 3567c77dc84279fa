"""The SQLite driver of the history of writes: records, and the contents that the writes replaced, compressed.

A content is stored once, by its SHA-256. Totals and indexes keep the cost of a write independent of the size of the
history. The file contains the user's words, so deleted rows are overwritten (`PRAGMA secure_delete`), and the `forget`
methods also truncate the write-ahead log.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from memoryd_server.sqlite.connection import JournalMode, transaction
from memoryd_server.sqlite.history_file import HistoryFile, truncate_log
from memoryd_server.sqlite.history_rows import (
    LATEST,
    TABLES,
    decompressed,
    delete_records,
    delete_unfinished_contents,
    file_sequences,
    insert_record,
    numbers,
    records,
    rows,
    store_content,
    total_bytes,
)
from memoryd_server.store import WriteRecord

_RECORDS_PER_TRANSACTION = 100

# Id and result after the last content.
_END = (0, False)


class SqliteWriteHistory:
    """The history of writes of one agent, in the file `path`, which the first write creates.

    Records older than `max_age_seconds` are deleted, and the oldest ones while the compressed contents and the records
    exceed `max_bytes`. `now_ms` is the wall clock in Unix milliseconds. The default of `journal` is the journal mode
    for the file system. A removed file is created again; `problem` reports this, and damage.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_age_seconds: float,
        max_bytes: int,
        now_ms: Callable[[], int],
        journal: JournalMode | None = None,
    ) -> None:
        self._max_age_ms = int(max_age_seconds * 1000)
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._file = HistoryFile(path, TABLES, self._prune, journal, now_ms)

    @property
    def problem(self) -> str:
        """What damage was found since the history was opened; empty for none."""
        return self._file.problem

    def begin(self, record: WriteRecord, before: bytes | None, after: bytes | None) -> None:
        """Store a record and its contents. They survive a power failure when the method returns."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                insert_record(connection, record)
                for digest, content in ((record.before, before), (record.after, after)):
                    if digest is not None and content is not None:
                        store_content(connection, digest, content)

        self._file.write(write)

    def finish(self, version_id: str) -> None:
        """Mark a write as done, and prune. Does nothing if the record was forgotten."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                connection.execute("UPDATE records SET is_done=1 WHERE version_id=?", (version_id,))
            self._prune(connection)

        self._file.read(write, None)

    def cancel(self, version_id: str) -> None:
        """Delete the record of a write that did not change the file, and the contents that only it has."""

        def write(connection: apsw.Connection) -> None:
            with transaction(connection):
                query = "SELECT sequence FROM records WHERE version_id=?"
                delete_records(connection, numbers(connection, query, version_id))

        self._file.read(write, None)

    def _prune(self, connection: apsw.Connection) -> None:
        # The limits are applied again by the next `finish`, so a failure of this one does not concern the caller.
        with suppress(apsw.FullError, apsw.BusyError):
            while expired := self._expired(connection):
                with transaction(connection):
                    delete_records(connection, expired)
            while self._remove_oldest(connection):
                pass

    def _expired(self, connection: apsw.Connection) -> list[int]:
        query = "SELECT sequence FROM records WHERE time_ms < ? AND is_done ORDER BY time_ms LIMIT ?"
        return numbers(connection, query, self._now_ms() - self._max_age_ms, _RECORDS_PER_TRANSACTION)

    def _remove_oldest(self, connection: apsw.Connection) -> bool:
        """Delete the oldest records while the size limit is exceeded; return whether there may be more to delete."""
        if total_bytes(connection) <= self._max_bytes:
            return False
        query = (
            "SELECT sequence FROM records WHERE is_done AND sequence < (SELECT max(sequence) FROM records)"
            " ORDER BY sequence LIMIT ?"
        )
        oldest = numbers(connection, query, _RECORDS_PER_TRANSACTION)
        with transaction(connection):
            for sequence in oldest:
                delete_records(connection, [sequence])
                if total_bytes(connection) <= self._max_bytes:
                    return False
        return bool(oldest)

    def unfinished(self) -> list[WriteRecord]:
        """Return the records that are not done, oldest first. Cheap if there are none."""
        return self._select("is_done=0 ORDER BY sequence")

    def with_key(self, key: str) -> WriteRecord | None:
        """Return the newest record of an idempotency key, done or not; None if there is none."""
        found = self._select("key=? AND key<>'' ORDER BY sequence DESC LIMIT 1", key)
        return found[0] if found else None

    def get(self, version_id: str) -> WriteRecord | None:
        """Return the record of a write that is done; None if there is none."""
        found = self._select("version_id=? AND is_done", version_id)
        return found[0] if found else None

    def _select(self, where: str, *values: str | int) -> list[WriteRecord]:
        none: list[WriteRecord] = []
        return self._file.read(lambda connection: records(connection, where, *values), none)

    def content(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256; None if it is not stored. A damaged content is deleted."""

        def read(connection: apsw.Connection) -> bytes | None:
            found = rows(connection, "SELECT id, digest, bytes, data FROM contents WHERE digest=?", digest)
            return self._content_of(connection, found[0]) if found else None

        return self._file.read(read, None)

    def _content_of(self, connection: apsw.Connection, row: tuple[Any, ...]) -> bytes | None:
        number, digest, size, data = row
        content = decompressed(data, size)
        if content is not None and hashlib.sha256(content).digest() == digest:
            return content
        _delete_content(connection, number)
        self._file.problem = (
            f"the history of writes was damaged: a content of {size} bytes with the SHA-256 {digest.hex()} was "
            "unreadable and is deleted; writes that replaced it cannot be undone"
        )
        return None

    def records(self, path: str, *, older_than: int | None, limit: int) -> list[WriteRecord]:
        """Return up to `limit` done records of a file or, if `path` is empty, of all files, newest first."""
        below = LATEST if older_than is None else older_than

        def read(connection: apsw.Connection) -> list[WriteRecord]:
            sequences = file_sequences(connection, path, below, limit)
            return [found for each in sequences for found in records(connection, "sequence=?", each)]

        if not path:
            return self._select("sequence < ? AND is_done ORDER BY sequence DESC LIMIT ?", below, limit)
        none: list[WriteRecord] = []
        return self._file.read(read, none)

    def has(self, path: str) -> bool:
        """Return whether `records` has any for this file."""
        return bool(self.records(path, older_than=None, limit=1))

    def forget_path(self, path: str) -> int:
        """Delete the records of a file as in `records`, and return the number of contents removed from the store.

        Records that are not done stay, without the contents that no record of another file has.
        """

        def forget(connection: apsw.Connection) -> int:
            # Oldest first: if the process is killed, the moves that lead to the other records are still there.
            sequences = sorted(file_sequences(connection, path, LATEST, LATEST))
            removed = 0
            for start in range(0, len(sequences), _RECORDS_PER_TRANSACTION):
                with transaction(connection):
                    removed += delete_records(connection, sequences[start : start + _RECORDS_PER_TRANSACTION])
            return removed + delete_unfinished_contents(connection, path)

        removed = self._file.read(forget, 0)
        self._overwrite()
        return removed

    def forget_text(self, text: bytes) -> int:
        """Delete the contents that contain a text, and return their number. Their records stay, not restorable.

        Reads every content, one at a time; other calls run in between. Damaged contents are deleted too.
        """
        removed, last = 0, 0
        while text:
            last, contains = self._file.read(partial(self._forget_next, text=text, after=last), _END)
            removed += contains
            if not last:
                break
        self._overwrite()
        return removed

    def _forget_next(self, connection: apsw.Connection, text: bytes, after: int) -> tuple[int, bool]:
        """Return the id of the first content after an id, and whether it contained the text and was deleted."""
        query = "SELECT id, digest, bytes, data FROM contents WHERE id > ? ORDER BY id LIMIT 1"
        found = rows(connection, query, after)
        if not found:
            return _END
        number = found[0][0]
        content = self._content_of(connection, found[0])
        contains = content is not None and text in content
        if contains:
            _delete_content(connection, number)
        return number, contains

    def _overwrite(self) -> None:
        """Remove deleted text from the log, and the damaged files that may contain it."""
        self._file.read(truncate_log, None)
        self._file.remove_set_aside()

    def release_memory(self) -> None:
        """Close the file until it is used again."""
        self._file.release_memory()

    def close(self) -> None:
        """Close the history. Idempotent."""
        self._file.close()


def _delete_content(connection: apsw.Connection, number: int) -> None:
    with transaction(connection):
        connection.execute("DELETE FROM contents WHERE id=?", (number,))
