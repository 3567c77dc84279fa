"""MemoryWriter and TranscriptWriter: how one agent's memory files and transcripts are written, whatever keeps them.

`FolderWriter` writes to the workspace, which people and other programs edit too. The PostgreSQL driver writes to the
documents of a table. All methods block.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from memoryd_server.sources import Location
from memoryd_server.writing.append import AppendJob, AppendReceipt
from memoryd_server.writing.deletion import SeenFile
from memoryd_server.writing.edit_jobs import EditJob, WriteReceipt

PAUSE_SECONDS: Final = 5.0
"""How long `MemoryWriter.paused` waits for a running edit."""


class MemoryWriter(Protocol):
    """Writes the memory files of one agent. Thread-safe, and safe with other processes.

    Each error is one of memoryd: `DiskFull`, `IndexUnavailable` or `HistoryUnavailable` if the storage cannot be used,
    and those of the methods. After an error, nothing was written, unless its message says otherwise.
    """

    def recover(self) -> None:
        """Settle the writes that a crash interrupted. Called at the daemon's start; raises nothing for damage."""

    def release_memory(self) -> None:
        """Release what was read from the storage; the next call reads it again."""

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator: damage, and writes that could not be settled."""

    def append(self, job: AppendJob) -> AppendReceipt:
        """Append the text of a job, once per key, and return its lines once they are durable. The path is relative.

        Raises:
            PathNotAllowed: the path is not a memory file.
            InvalidRequest: the key was used with other contents.
            FileBusy: the file is locked; it does not contain the text. Call again with the same job.
            FileReplaced: another program replaced the file after each of several writes.
            FileNotFound, WorkspaceReadOnly: the workspace does not exist, or refuses the write.
        """

    def edit(self, job: EditJob) -> WriteReceipt:
        """Perform a job, keep what it replaces in the history, and return once both are durable.

        Raises:
            ContentChanged, PathTaken: the file is not as the job expects it.
            InvalidRequest: the change cannot be applied, or the key was used with other contents.
            VersionNotFound: the history does not have the content to restore.
            PathNotAllowed: the path is not a memory file, or the file is too large.
            FileBusy, FileReplaced, FileNotFound, WorkspaceReadOnly: as `append`.
        """

    def create(self, path: str, data: bytes) -> bool:
        """Create a file with all of its bytes, once durable; return False if the path is taken. Not in the history.

        Raises:
            PathNotAllowed: the path is not a memory file.
            FileReplaced, FileNotFound, WorkspaceReadOnly: as `append`.
        """

    def prepare_deletion(self, location: Location) -> None:
        """Settle what a crash during an earlier `delete` of a file of this folder left.

        Raises:
            OSError: the folder cannot be read or written.
        """

    def delete(self, location: Location, seen: SeenFile) -> bool:
        """Delete a file durably, without a record in the history; return False if it does not exist.

        Also deletes a transcript, if no `TranscriptWriter` writes them.

        Raises:
            PathNotAllowed: the file is not a regular one.
            WorkspaceReadOnly: the storage refuses it.
            FileReplaced: the file is not the one that was seen, and is kept.
        """

    def paused(self, most_seconds: float = PAUSE_SECONDS) -> AbstractContextManager[None]:
        """Return a context in which no edit of this process begins, and in which none is unsettled if possible.

        Raises:
            IndexBusy: an edit is still running after `most_seconds`.
        """


@dataclass(frozen=True, slots=True)
class TranscriptReceipt:
    """The transcript after an append: its display path, and the number of its records and bytes.

    `already_appended` is True if an earlier call wrote these records at this place.
    """

    path: str
    records: int
    size_bytes: int
    already_appended: bool = False


class TranscriptWriter(Protocol):
    """Writes the transcripts of one agent, which the caller pushes. Thread-safe, and safe with other processes."""

    def append(
        self, session_id: str, records: Sequence[bytes], expected_records: int | None = None
    ) -> TranscriptReceipt:
        """Append records, one JSON object a line without its newline, and return once they are durable.

        `expected_records` is the number of records that the transcript must have before; None accepts any number. If it
        has more, and the first of those are exactly `records`, nothing is written, and the receipt says so.

        Raises:
            PathNotAllowed: the session id cannot be the name of a transcript.
            TranscriptChanged: the transcript has another number of records; nothing was written.
            DiskFull, IndexUnavailable: the storage cannot be used; nothing was written.
        """

    def delete_session(self, session_id: str) -> int:
        """Delete the transcripts of a session durably, and return how many there were.

        Raises:
            DiskFull, IndexUnavailable: the storage cannot be used; nothing was deleted.
        """
