"""The transcripts of one agent in the database: TranscriptRows writes them, TranscriptStream reads one in ranges.

A transcript is stored in parts. Records are appended to the last part until it has `GROWING_PART_BYTES`. An append
writes this part again, so it must be small; it must not be too small, because a read fetches each part as a row.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memoryd_server.errors import FileNotFound, PathNotAllowed, TranscriptChanged
from memoryd_server.model import FileStat
from memoryd_server.postgres.agent_database import AgentDatabase, AgentRows, DocumentReads
from memoryd_server.postgres.document_rows import document_stat
from memoryd_server.sources import SESSIONS_FOLDER, session_id_problem
from memoryd_server.sources import session_id as session_of
from memoryd_server.writing import TranscriptReceipt

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GROWING_PART_BYTES: Final = 16 << 10
"""A part grows up to this size."""

MOST_PART_BYTES: Final = 256 << 10
"""A larger append is stored in parts of this size."""

_READ_BYTES: Final = 1 << 20

_STATE = """SELECT size_bytes, records, mtime_ns, version FROM transcripts
    WHERE agent_id = %(agent)s AND name = %(name)s"""
_PUT_STATE = """INSERT INTO transcripts(agent_id, name, records, size_bytes, version, mtime_ns)
    VALUES(%(agent)s, %(name)s, %(records)s, %(size)s, %(version)s, %(mtime_ns)s)
    ON CONFLICT (agent_id, name) DO UPDATE SET records = excluded.records, size_bytes = excluded.size_bytes,
        mtime_ns = excluded.mtime_ns"""
_LAST_PART = """SELECT first_byte, octet_length(data) FROM transcript_parts
    WHERE agent_id = %(agent)s AND name = %(name)s ORDER BY first_byte DESC LIMIT 1"""
_EXTEND_PART = """UPDATE transcript_parts SET data = data || %(data)s
    WHERE agent_id = %(agent)s AND name = %(name)s AND first_byte = %(first)s"""
_ADD_PART = """INSERT INTO transcript_parts(agent_id, name, first_byte, records_before, data)
    VALUES(%(agent)s, %(name)s, %(first)s, %(records)s, %(data)s)"""
# The part in which the record with this number ends. A record can be longer than a part.
_PART_OF_RECORD = """SELECT first_byte, records_before, data FROM transcript_parts
    WHERE agent_id = %(agent)s AND name = %(name)s AND records_before < %(number)s
    ORDER BY records_before DESC, first_byte DESC LIMIT 1"""
_RANGE = """SELECT first_byte, data FROM transcript_parts WHERE agent_id = %(agent)s AND name = %(name)s
    AND first_byte < %(end)s AND first_byte >= (SELECT max(first_byte) FROM transcript_parts
        WHERE agent_id = %(agent)s AND name = %(name)s AND first_byte <= %(start)s)
    ORDER BY first_byte"""
_ALL = "SELECT name, size_bytes, mtime_ns, version FROM transcripts WHERE agent_id = %(agent)s ORDER BY name"
_SOME = """SELECT name, size_bytes, mtime_ns, version FROM transcripts
    WHERE agent_id = %(agent)s AND name = ANY(%(names)s)"""
_NAMES = "SELECT name FROM transcripts WHERE agent_id = %(agent)s AND starts_with(name, %(prefix)s)"
_DELETE_PARTS = "DELETE FROM transcript_parts WHERE agent_id = %(agent)s AND name = ANY(%(names)s)"
_DELETE = "DELETE FROM transcripts WHERE agent_id = %(agent)s AND name = ANY(%(names)s)"


@dataclass(frozen=True, slots=True)
class _State:
    """A stored transcript. `version` is that of the write that created it, and the inode of its stat."""

    size_bytes: int = 0
    records: int = 0
    mtime_ns: int = 0
    version: int = 0

    @property
    def stat(self) -> FileStat:
        return document_stat(self.size_bytes, self.mtime_ns, self.version)


class TranscriptRows:
    """Write the transcripts of one agent. Thread-safe, and safe with other processes. Blocks.

    `now_ms` is the wall clock.
    """

    def __init__(self, database: AgentDatabase, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms

    def append(
        self,
        session_id: str,
        records: Sequence[bytes],
        expected_records: int | None = None,
        *,
        mtime_ns: int | None = None,
    ) -> TranscriptReceipt:
        """Append records, without their line breaks, to the transcript of a session.

        `mtime_ns` is the new time of the transcript; by default it is the current one.

        Raises:
            PathNotAllowed: the session id cannot be the name of a transcript.
            TranscriptChanged: the transcript has another number of records than expected, and `records` do not follow
                the first `expected_records` ones.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. If the connection was
                lost during the commit, the records may be stored.
        """
        name = f"{session_id}.jsonl"
        path = f"{SESSIONS_FOLDER}/{name}"
        if problem := session_id_problem(session_id):
            raise PathNotAllowed(path, problem)
        data = b"".join(record + b"\n" for record in records)
        with self._database.write() as rows:
            version = rows.lock_documents()
            state = _state(rows, name) or _State(version=version)
            if expected_records not in {None, state.records}:
                if not _has_records(rows, name, expected_records or 0, data):
                    raise TranscriptChanged(path, state.records)
                return TranscriptReceipt(path, state.records, state.size_bytes, already_appended=True)
            if not data:
                return TranscriptReceipt(path, state.records, state.size_bytes)
            size = _append(rows, name, state, data)
            count = state.records + len(records)
            time_ns = max(1, self._now_ms() * 1_000_000) if mtime_ns is None else mtime_ns
            rows.run(_PUT_STATE, name=name, records=count, size=size, version=state.version, mtime_ns=time_ns)
            return TranscriptReceipt(path, count, size)

    def delete_session(self, session_id: str) -> int:
        """Delete the transcripts of a session, and return how many there were.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used.
        """
        with self._database.write() as rows:
            rows.lock_documents()
            found = [row[0] for row in rows.all(_NAMES, prefix=session_id)]
            names = [name for name in found if session_of(name) == session_id]
            rows.connection.deletes_text = True
            rows.run(_DELETE_PARTS, names=names)
            return rows.run(_DELETE, names=names)


def _state(rows: AgentRows, name: str) -> _State | None:
    found = rows.all(_STATE, name=name)
    return _State(*found[0]) if found else None


def _append(rows: AgentRows, name: str, state: _State, data: bytes) -> int:
    """Append bytes to the parts of a transcript, and return its new size."""
    first, length = next(iter(rows.all(_LAST_PART, name=name)), (0, 0))
    extended = min(len(data), MOST_PART_BYTES - length) if 0 < length < GROWING_PART_BYTES else 0
    if extended:
        rows.run(_EXTEND_PART, name=name, first=first, data=data[:extended])
    for start in range(extended, len(data), MOST_PART_BYTES):
        before = state.records + data.count(b"\n", 0, start)
        part = data[start : start + MOST_PART_BYTES]
        rows.run(_ADD_PART, name=name, first=state.size_bytes + start, records=before, data=part)
    return state.size_bytes + len(data)


def _has_records(rows: AgentRows, name: str, number: int, data: bytes) -> bool:
    """Return whether the bytes of some records follow the first `number` records of a transcript."""
    start = _end_of_record(rows, name, number)
    return start is not None and bool(data) and _range(rows, name, start, start + len(data)) == data


def _end_of_record(rows: AgentRows, name: str, number: int) -> int | None:
    """Return the offset after the line break of record `number`, counted from 1; None if there are fewer; 0 for 0."""
    if number <= 0:
        return 0
    for first, before, data in rows.all(_PART_OF_RECORD, name=name, number=number):
        place = -1
        for _ in range(number - before):
            place = data.find(b"\n", place + 1)
            if place < 0:
                return None
        return int(first) + place + 1
    return None


def _range(rows: AgentRows, name: str, start: int, end: int) -> bytes:
    """Return the bytes of a transcript from `start` up to `end`, fewer at its end."""
    parts = rows.all(_RANGE, name=name, start=start, end=end)
    return b"".join(data[max(0, start - first) : end - first] for first, data in parts)


def list_transcripts(rows: AgentRows) -> dict[str, FileStat]:
    """Return the stats of all transcripts of an agent by name, in the order of the names."""
    return {name: document_stat(size, mtime_ns, version) for name, size, mtime_ns, version in rows.all(_ALL)}


def stat_transcripts(rows: AgentRows, names: Sequence[str]) -> dict[str, FileStat]:
    """Return the stats of some transcripts by name, without those that do not exist."""
    found = rows.all(_SOME, names=list(names)) if names else []
    return {name: document_stat(size, mtime_ns, version) for name, size, mtime_ns, version in found}


class TranscriptStream(io.RawIOBase):
    """The bytes of a transcript, read in ranges, each in a transaction of its own. `stat` is from the time of opening.

    Raises:
        FileNotFound: the transcript does not exist, or was deleted before a later read.
        IndexUnavailable, IndexBusy: the database cannot be used; also raised by `read`.
    """

    def __init__(self, database: DocumentReads, name: str) -> None:
        super().__init__()
        self._database = database
        self._name = name
        self._position = 0
        with database.read() as rows:
            self._state = self._require(rows)

    @property
    def stat(self) -> FileStat:
        """The stat of the transcript."""
        return self._state.stat

    def _require(self, rows: AgentRows) -> _State:
        state = _state(rows, self._name)
        if state is None:
            path = f"{SESSIONS_FOLDER}/{self._name}"
            raise FileNotFound(f"no transcript at {path!r}", metadata={"path": path})
        return state

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._state.size_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"the position {base + offset} is negative")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read bytes into a buffer, at most 1 MiB, and return their number; 0 at the end."""
        view = memoryview(buffer).cast("B")
        end = min(self._position + min(len(view), _READ_BYTES), self._state.size_bytes)
        if end <= self._position:
            return 0
        with self._database.read() as rows:
            if self._require(rows).version != self._state.version:
                raise FileNotFound(f"the transcript {self._name!r} was replaced while it was read")
            data = _range(rows, self._name, self._position, end)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)
