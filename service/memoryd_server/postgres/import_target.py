"""DatabaseNotes and DatabaseTranscripts: the notes and transcripts of an import in the database."""

from collections.abc import Callable
from typing import Final

from memoryd_server.errors import ContentChanged, FileNotFound, PathNotAllowed, TranscriptChanged
from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.postgres.document_rows import DocumentRows
from memoryd_server.postgres.document_writer import DocumentWriter
from memoryd_server.postgres.transcripts import TranscriptRows, TranscriptStream
from memoryd_server.writing import FileDeletion, NewContent, WriteJob

_CALLER: Final = "memoryd import"

_PATHS = "SELECT path FROM documents WHERE agent_id = %(agent)s AND starts_with(path, %(folder)s) ORDER BY path"


class DatabaseNotes:
    """The notes of an import as documents of one agent, as `NoteStore` describes it.

    The history keeps what a replaced or deleted note contained. `writer` is that of the agent, and `now_ms` the wall
    clock.
    """

    def __init__(
        self, documents: AgentDatabase, writer: DocumentWriter, max_file_bytes: int, now_ms: Callable[[], int]
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._max_file_bytes = max_file_bytes
        self._now_ms = now_ms

    def paths(self, folder: str) -> list[str]:
        """Return the paths of the documents in a folder."""
        with self._documents.read() as rows:
            found = [row[0] for row in rows.all(_PATHS, folder=f"{folder}/")]
        return [path for path in found if path.rpartition("/")[0] == folder]

    def read(self, path: str) -> bytes | None:
        """Return the content of a document; None if it does not exist.

        Raises:
            PathNotAllowed: it is too large.
        """
        with self._documents.read() as rows:
            found = DocumentRows(rows).read(path, self._max_file_bytes)
        if found is not None and found[1] is None:
            raise PathNotAllowed(path, f"the file has more than {self._max_file_bytes} bytes")
        return None if found is None else found[1]

    def create(self, path: str, data: bytes, mtime_ns: int | None) -> bool:
        """Create a document; return False if the path is taken. Raises as `NoteStore`."""
        with self._documents.write() as rows:
            version, documents = rows.lock_documents(), DocumentRows(rows)
            if documents.find(path) is not None:
                return False
            documents.require_place(path)
            documents.put(path, data, version, self._now_ms() * 1_000_000 if mtime_ns is None else mtime_ns)
            return True

    def replace(self, path: str, data: bytes, expected: bytes, mtime_ns: int | None) -> bool:  # noqa: ARG002 -- the time of a write is that of its history
        """Replace a document; return False if its SHA-256 is not `expected`. Its new time is the current one."""
        return self._edit(WriteJob(path=path, expected=expected, change=NewContent(data), caller=_CALLER))

    def delete(self, path: str, expected: bytes) -> bool:
        """Delete a document; return False if its SHA-256 is not `expected`."""
        return self._edit(WriteJob(path=path, expected=expected, change=FileDeletion(), caller=_CALLER))

    def _edit(self, job: WriteJob) -> bool:
        try:
            self._writer.edit(job)
        except ContentChanged:
            return False
        return True


class DatabaseTranscripts:
    """The transcripts of an import in the tables of one agent, as `TranscriptStore` describes it."""

    def __init__(self, documents: AgentDatabase, transcripts: TranscriptRows) -> None:
        self._documents = documents
        self._transcripts = transcripts

    def read(self, session_id: str) -> bytes | None:
        """Return the bytes of a transcript; None if it does not exist."""
        try:
            with TranscriptStream(self._documents, f"{session_id}.jsonl") as stream:
                return stream.readall()
        except FileNotFound:
            return None

    def create(self, session_id: str, data: bytes, mtime_ns: int | None) -> bool:
        """Write a new transcript; return False if it exists."""
        return self._append(session_id, data, 0, mtime_ns)

    def replace(self, session_id: str, data: bytes, before: bytes, mtime_ns: int | None) -> bool:
        """Replace a transcript, or extend it; return False if its content is not `before`.

        A process that is killed while it replaces one can leave no transcript; the next import writes it.
        """
        if data.startswith(before):
            return self._append(session_id, data[len(before) :], before.count(b"\n"), mtime_ns)
        if self.read(session_id) != before:
            return False
        self._transcripts.delete_session(session_id)
        return self._append(session_id, data, 0, mtime_ns)

    def _append(self, session_id: str, data: bytes, expected_records: int, mtime_ns: int | None) -> bool:
        records = data.split(b"\n")[:-1]
        try:
            receipt = self._transcripts.append(session_id, records, expected_records, mtime_ns=mtime_ns)
        except TranscriptChanged:
            return False
        return not receipt.already_appended
