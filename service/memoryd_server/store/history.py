"""The protocol of the history of writes to memory files, WriteHistory, and its records.

A write is recorded before the file is changed and marked as done afterwards, so that a process that is killed in
between leaves a record from which the write can be settled.

    history.begin(record, before=old, after=new)
    ...                                             # change the file
    history.finish(record.version_id)
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class WriteKind(StrEnum):
    """What a write did to a file; the names of the wire's enum."""

    CREATE = "CREATE"
    REPLACE_CONTENT = "REPLACE_CONTENT"
    REPLACE_TEXT = "REPLACE_TEXT"
    INSERT_LINES = "INSERT_LINES"
    DELETE_LINES = "DELETE_LINES"
    DELETE_FILE = "DELETE_FILE"
    MOVE = "MOVE"
    RESTORE = "RESTORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """One write to a file. `path` is that after the write; `moved_from` that before it if the write moved the file.

    `before` and `after` are the SHA-256 of the content of the file before and after the write, None if it did not exist
    or does not exist any more. `lines` are the first and last line that the write changed in the new content, as in
    `MemoryWriteResponse`. `time_ms` is in Unix milliseconds. `key` and `request_sha256` identify a request that can be
    repeated; the key is empty if it cannot. `draft` is the name of the temporary file in the folder of the file before
    the write, empty if there is none.

    The store sets the other fields: `sequence` grows with each write, `is_done` is False until `finish`, and
    `is_restorable` is whether the content before the write is stored; it is always True if there was none.
    """

    version_id: str
    path: str
    kind: WriteKind
    time_ms: int
    caller: str
    before: bytes | None = None
    before_bytes: int = 0
    after: bytes | None = None
    after_bytes: int = 0
    moved_from: str = ""
    lines: tuple[int, int] = (0, 0)
    key: str = ""
    request_sha256: str = ""
    draft: str = ""
    sequence: int = 0
    is_done: bool = False
    is_restorable: bool = True


class WriteHistory(Protocol):
    """The writes to one agent's memory files, with the contents that they replaced. Thread-safe. Every method blocks.

    A content is stored once, whatever the number of its writes. Records and contents are deleted when they are older
    than the age limit, oldest first while they exceed the size limit, and by the `forget` methods. The contents of the
    newest record are kept whatever their size, and those of records that are not done whatever their size and age.

    Raises:
        DiskFull: the disk is full; nothing was stored.
        HistoryUnavailable: the history cannot be opened, read or written.
        ShuttingDown: it was closed.
    """

    @property
    def problem(self) -> str:
        """What damage was found since the history was opened, for the operator; empty for none."""

    def begin(self, record: WriteRecord, before: bytes | None, after: bytes | None) -> None:
        """Store a record and its contents. They survive a power failure when the method returns."""

    def finish(self, version_id: str) -> None:
        """Mark a write as done, and prune. Does nothing if the record was forgotten."""

    def cancel(self, version_id: str) -> None:
        """Delete the record of a write that did not change the file, and the contents that only it has."""

    def unfinished(self) -> list[WriteRecord]:
        """Return the records that are not done, oldest first. Cheap if there are none."""

    def with_key(self, key: str) -> WriteRecord | None:
        """Return the newest record of an idempotency key, done or not; None if there is none."""

    def get(self, version_id: str) -> WriteRecord | None:
        """Return the record of a write that is done; None if there is none."""

    def content(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256; None if it is not stored, or if it is damaged."""

    def records(self, path: str, *, older_than: int | None, limit: int) -> list[WriteRecord]:
        """Return up to `limit` done records, newest first, of all files if `path` is empty.

        A file's records include moves from its path, and its records from before it was moved to `path`. `older_than`
        is a `sequence`: only older records are returned.
        """

    def forget_path(self, path: str) -> int:
        """Delete the records of a file as in `records`, and return the number of contents removed from the store.

        Contents that other files' records have too are kept. Records that are not done stay, so that the writes can
        still be settled, but not their contents. The deleted text is overwritten in the store.
        """

    def forget_text(self, text: bytes) -> int:
        """Delete the contents that contain a text, and return their number. Their records stay, not restorable.

        The deleted text is overwritten in the store.
        """

    def has(self, path: str) -> bool:
        """Return whether `records` has any for this file."""

    def release_memory(self) -> None:
        """Close files until they are used again."""

    def close(self) -> None:
        """Close the history. Idempotent."""
