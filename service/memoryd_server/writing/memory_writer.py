"""MemoryWriter and TranscriptWriter: write one agent's memory files and transcripts, wherever they are stored.

`FolderWriter` writes to the workspace, which people and other programs edit too. The PostgreSQL driver writes to
tables. All methods block.
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

    In addition to the errors of its description, each method that reads or writes raises `DiskFull`, `IndexUnavailable`
    or `HistoryUnavailable` if the storage cannot be used. After an error, nothing was written, unless its message says
    otherwise.
    """

    def recover(self) -> None:
        """Complete or undo the writes that a crash interrupted, before the first call. Damage raises no error."""

    def release_memory(self) -> None:
        """Release what was read from the storage; the next call reads it again."""

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator: damage, and interrupted writes that are not yet completed or undone."""

    def append(self, job: AppendJob) -> AppendReceipt:
        """Append the text of a job, once per key, and return its lines when they are durable. The path is relative.

        Raises:
            PathNotAllowed: the path is not a memory file.
            InvalidRequest: the key was used with other contents.
            FileBusy: the file is locked; it does not contain the text. Call again with the same job.
            FileReplaced: another program replaced the file after each of several writes.
            FileNotFound, WorkspaceReadOnly: the workspace does not exist, or refuses the write.
        """

    def edit(self, job: EditJob) -> WriteReceipt:
        """Perform a job, keep the replaced content in the history, and return when both are durable.

        Raises:
            ContentChanged, PathTaken: the file is not as the job expects it.
            InvalidRequest: the change cannot be applied, or the key was used with other contents.
            VersionNotFound: the history does not have the content to restore.
            PathNotAllowed: the path is not a memory file, or the file is too large.
            FileBusy, FileReplaced, FileNotFound, WorkspaceReadOnly: as `append`.
        """

    def create(self, path: str, data: bytes) -> bool:
        """Create a durable file without a record in the history; return False if the path is taken.

        Raises:
            PathNotAllowed: the path is not a memory file.
            FileReplaced, FileNotFound, WorkspaceReadOnly: as `append`.
        """

    def prepare_deletion(self, location: Location) -> None:
        """Complete or undo an earlier `delete` in the folder of this file that a crash interrupted.

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
        """Return a context in which this process begins no edit, and in which, if possible, none is unfinished.

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
    """Writes the transcripts that callers send for one agent. Thread-safe, and safe with other processes."""

    def append(
        self, session_id: str, records: Sequence[bytes], expected_records: int | None = None
    ) -> TranscriptReceipt:
        """Append records, each a JSON object on one line without its newline, and return when they are durable.

        `expected_records` is the number of records that the transcript must have before; None accepts any number. If it
        has more, and the first of those are exactly `records`, nothing is written, and `already_appended` of the
        receipt is True.

        Raises:
            PathNotAllowed: the session id cannot be the name of a transcript.
            TranscriptChanged: the transcript has another number of records; nothing was written.
            DiskFull, IndexUnavailable: the storage cannot be used.
        """

    def delete_session(self, session_id: str) -> int:
        """Delete the transcripts of a session durably, and return how many there were.

        Raises:
            DiskFull, IndexUnavailable: the storage cannot be used; nothing was deleted.
        """
