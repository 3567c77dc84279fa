"""The PostgreSQL driver of the history of writes: records, and the contents that the writes replaced, compressed.

A content is stored once, by its SHA-256. Each change locks the agent's row of `histories`, which has the next sequence
number and the total size, so that the cost of a write does not depend on the size of the history.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from memoryd_server.errors import DiskFull, HistoryUnavailable, MemorydError, ShuttingDown
from memoryd_server.postgres.agent_database import AgentDatabase, Row
from memoryd_server.postgres.connection import Database, DatabaseUse
from memoryd_server.postgres.history_rows import LATEST, HistoryRows, changed_history, decompressed
from memoryd_server.postgres.session import Operation
from memoryd_server.store import WriteRecord

_RECORDS_PER_TRANSACTION: Final = 100


class PostgresWriteHistory:
    """The history of writes of one agent.

    Records older than `max_age_seconds` are deleted, and the oldest ones while the compressed contents and the records
    exceed `max_bytes`. `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(
        self, database: Database, agent_id: str, *, max_age_seconds: float, max_bytes: int, now_ms: Callable[[], int]
    ) -> None:
        self._database = database
        self._agent_id = agent_id
        self._max_age_ms = int(max_age_seconds * 1000)
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._use = DatabaseUse(database)
        self._is_closed = self._is_pruned = False
        self.problem = ""
        """Which damage was found since the history was opened; empty if none."""

    def documents(self) -> AgentDatabase:
        """Return the agent's documents, whose connections are kept until this history is closed."""
        return AgentDatabase(self._database, self._agent_id, self._use)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise the errors of the database as those of a history.

        Raises:
            DiskFull: no space is left on the server's disk.
            HistoryUnavailable: the database cannot be used.
            ShuttingDown: the history was closed.
        """
        if self._is_closed:
            raise ShuttingDown("the history of writes is closed: the daemon is stopping")
        self._use.begin()
        try:
            self._database.prepare()
            yield
        except DiskFull:
            raise
        except MemorydError as error:
            raise HistoryUnavailable(
                f"the history of writes cannot be used: {error.message}",
                retry_after_seconds=error.retry_after_seconds,
            ) from error

    @contextmanager
    def _change(self) -> Iterator[HistoryRows]:
        """Run the body in one transaction, alone among those of this history."""
        with (
            self._translated(),
            self._database.write(self._agent_id, operation=Operation.HISTORY_WRITE) as connection,
            changed_history(connection, self._agent_id) as rows,
        ):
            yield rows

    @contextmanager
    def _read(self) -> Iterator[HistoryRows]:
        """Open a snapshot. Before the first one, apply the limits."""
        if not self._is_pruned:
            self._prune()
            self._is_pruned = True
        with self._translated(), self._database.read(self._agent_id, operation=Operation.HISTORY_READ) as connection:
            yield HistoryRows(connection, self._agent_id)

    def begin(self, record: WriteRecord, before: bytes | None, after: bytes | None) -> None:
        """Store a record and its contents. They survive a power failure when the method returns."""
        with self._change() as rows:
            rows.add(record, before, after)

    def finish(self, version_id: str) -> None:
        """Mark a write as done, and prune. Does nothing if the record was forgotten."""
        query = "UPDATE history_records SET is_done = true WHERE agent_id = %(agent)s AND version_id = %(version)s"
        with self._change() as rows:
            rows.run(query, version=version_id)
        self.prune()

    def cancel(self, version_id: str) -> None:
        """Delete the record of a write that did not change the file, and the contents that only it has."""
        query = "SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND version_id = %(version)s"
        with self._change() as rows:
            rows.delete_records(rows.numbers(query, version=version_id))

    def prune(self) -> None:
        """Apply the limits, after a write. If that fails, the next write applies them."""
        with suppress(DiskFull, HistoryUnavailable):
            self._prune()

    def _prune(self) -> None:
        while self._remove_expired() or self._remove_oldest():
            pass

    def _remove_expired(self) -> bool:
        """Delete some records that are too old; return whether there were any."""
        query = """SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND time_ms < %(since)s AND is_done
            ORDER BY time_ms LIMIT %(limit)s"""
        with self._translated(), self._database.read(self._agent_id, operation=Operation.HISTORY_READ) as connection:
            values = {"since": self._now_ms() - self._max_age_ms, "limit": _RECORDS_PER_TRANSACTION}
            expired = HistoryRows(connection, self._agent_id).numbers(query, **values)
        if expired:
            with self._change() as rows:
                rows.delete_records(expired)
        return bool(expired)

    def _remove_oldest(self) -> bool:
        """Delete the oldest records while the size limit is exceeded; return whether there may be more to delete."""
        total = "SELECT bytes FROM histories WHERE agent_id = %(agent)s"
        with self._translated(), self._database.read(self._agent_id, operation=Operation.HISTORY_READ) as connection:
            used = HistoryRows(connection, self._agent_id).numbers(total)
        if not used or used[0] <= self._max_bytes:
            return False
        query = """SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND is_done
            AND sequence < (SELECT max(sequence) FROM history_records WHERE agent_id = %(agent)s)
            ORDER BY sequence LIMIT %(limit)s"""
        with self._change() as rows:
            before = rows.numbers(total)[0]
            oldest = rows.numbers(query, limit=_RECORDS_PER_TRANSACTION)
            for sequence in oldest:
                rows.delete_records([sequence])
                if before + rows.bytes_changed <= self._max_bytes:
                    return False
        return bool(oldest)

    def unfinished(self) -> list[WriteRecord]:
        """Return the records that are not done, oldest first. Cheap if there are none."""
        with self._read() as rows:
            return rows.records("NOT is_done ORDER BY sequence")

    def with_key(self, key: str) -> WriteRecord | None:
        """Return the newest record of an idempotency key, done or not; None if there is none."""
        if not key:
            return None
        with self._read() as rows:
            return rows.with_key(key)

    def get(self, version_id: str) -> WriteRecord | None:
        """Return the record of a write that is done; None if there is none."""
        with self._read() as rows:
            return rows.get(version_id)

    def content(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256; None if it is not stored. A damaged content is deleted."""
        query = "SELECT digest, bytes, data FROM history_contents WHERE agent_id = %(agent)s AND digest = %(digest)s"
        with self._read() as rows:
            found = rows.all(query, digest=digest)
        return self._content_of(found[0]) if found else None

    def _content_of(self, row: Row) -> bytes | None:
        digest, size, data = row
        content = decompressed(data, size)
        if content is not None and hashlib.sha256(content).digest() == digest:
            return content
        with self._change() as rows:
            rows.delete_content(digest)
        self.problem = (
            f"the history of writes was damaged: a content of {size} bytes with the SHA-256 {digest.hex()} was "
            "unreadable and is deleted; writes that replaced it cannot be undone"
        )
        return None

    def records(self, path: str, *, older_than: int | None, limit: int) -> list[WriteRecord]:
        """Return up to `limit` done records of a file or, if `path` is empty, of all files, newest first."""
        below = LATEST if older_than is None else older_than
        newest = "ORDER BY sequence DESC LIMIT %(limit)s"
        with self._read() as rows:
            if not path:
                return rows.records(f"sequence < %(below)s AND is_done {newest}", below=below, limit=limit)
            sequences = rows.file_sequences(path, below, limit)
            return rows.records(f"sequence = ANY(%(sequences)s) {newest}", sequences=sequences, limit=limit)

    def has(self, path: str) -> bool:
        """Return whether `records` has any for this file."""
        return bool(self.records(path, older_than=None, limit=1))

    def forget_path(self, path: str) -> int:
        """Delete the records of a file as in `records`, and return the number of contents removed from the store.

        Records that are not done stay, without the contents that no record of another file has.
        """
        with self._change() as rows:
            rows.connection.deletes_text = True
            removed = rows.delete_records(rows.file_sequences(path, LATEST, LATEST))
            return removed + rows.delete_unfinished_contents(path)

    def forget_text(self, text: bytes) -> int:
        """Delete the contents that contain a text, and return their number. Their records stay, not restorable.

        Reads every content, one at a time; other calls run in between. Damaged contents are deleted too.
        """
        query = """SELECT digest, bytes, data FROM history_contents
            WHERE agent_id = %(agent)s AND digest > %(after)s ORDER BY digest LIMIT 1"""
        removed, after = 0, b""
        while text:
            with self._read() as rows:
                found = rows.all(query, after=after)
            if not found:
                break
            after = found[0][0]
            content = self._content_of(found[0])
            if content is not None and text in content:
                with self._change() as rows:
                    rows.connection.deletes_text = True
                    removed += rows.delete_content(after)
        return removed

    def release_memory(self) -> None:
        """Apply the limits again before the next read."""
        self._is_pruned = False

    def close(self) -> None:
        """Close the history. Idempotent."""
        self._is_closed = True
        self._use.end()
