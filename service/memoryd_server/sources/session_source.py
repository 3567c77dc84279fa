"""The sessions of an OpenClaw agent as sources: discovery, stats, and opening of every kind of transcript.

A session is in the agent's database. Its events may have moved into a cold file, and the transcript of a session that
was deleted is a row of the database, which OpenClaw also publishes as a compressed file.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO

from memoryd_server.errors import FileNotFound, MemorydError
from memoryd_server.model import FileFailure, FileStat, Source, SourceFile
from memoryd_server.sources.archive_reader import MOST_ARCHIVE_BYTES, ArchiveReader, ColdReader
from memoryd_server.sources.discover import Discovery, UnreadableFolder
from memoryd_server.sources.files import file_stat, open_file
from memoryd_server.sources.roots import Location
from memoryd_server.sources.session_database import SessionDatabase, SessionDatabaseUnusable
from memoryd_server.sources.session_list import (
    has_events,
    is_sound_stat,
    is_transcript_name,
    list_sessions,
    session_path,
    session_stat,
)
from memoryd_server.sources.session_reader import SessionReader
from memoryd_server.sources.transcripts import (
    SESSIONS_FOLDER,
    TranscriptFile,
    TranscriptReader,
    is_rotated,
    is_transcript,
    list_transcripts,
    session_id,
)

Transcript = TranscriptReader | SessionReader | ArchiveReader

OpenDatabase = Callable[[str, str], SessionDatabase]
"""Opens the database at a path, which must belong to the agent with an id."""

_StopSign = Callable[[], bool]

QUICK_BUSY_SECONDS = 0.25
"""How long a call waits for a lock of the gateway; a sync waits longer."""

QUICK_QUERY_SECONDS = 2.0
"""How long a query of a call may take; one of a sync may take longer."""

COMPRESSED = ".zst"
_COLD_FOLDER = "cold"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HASHED_BYTES = 1 << 20


def is_archive(file_name: str) -> bool:
    """Return whether a file name is that of a compressed archive of a transcript."""
    name = file_name.removesuffix(COMPRESSED)
    return name != file_name and is_transcript_name(name) and is_rotated(name)


def discover_sessions(database: str, agent_id: str, folder: str) -> tuple[Discovery, frozenset[str]]:
    """Return the sessions in the database, and the ids of sessions that are no memory.

    If the database cannot be read, nothing of it counts as deleted. If it does not exist, everything does.
    """
    place = f"{SESSIONS_FOLDER}/{agent_id}"
    try:
        with SessionDatabase(database, agent_id) as opened:
            found = list_sessions(opened)
    except FileNotFound:
        return Discovery((), (), ()), frozenset()
    except (OSError, MemorydError) as error:
        reason = error.message if isinstance(error, MemorydError) else str(error)
        prefix = session_path(agent_id, "")
        unseen = UnreadableFolder(place, f"cannot be read: {reason}", (prefix,), source=Source.SESSIONS, database=True)
        return Discovery((), (FileFailure(place, Source.SESSIONS, reason),), (), (unseen,)), frozenset()
    files = (
        SourceFile(session_path(agent_id, name), Source.SESSIONS, folder, (name,), stat, database, agent_id)
        for name, stat in found.stats.items()
    )
    reason = f"rows with values of unexpected types in {database}, whose sessions are not indexed: {found.malformed}"
    failures = (FileFailure(place, Source.SESSIONS, reason),) if found.malformed else ()
    return Discovery(tuple(files), failures, ()), found.excluded


def list_session_files(folder: Path) -> list[TranscriptFile]:
    """Return the transcripts and the compressed archives in a folder, none if there is no folder.

    Raises:
        OSError: the folder exists but cannot be read.
    """
    return list_transcripts(folder, lambda name: is_transcript(name) or is_archive(name))


def has_session(database: str, agent_id: str, session: str) -> bool:
    """Return whether the agent's database has a session with this id, or an archive of it; False without a database.

    Raises:
        PathNotAllowed, SessionDatabaseUnusable: as `SessionDatabase`.
    """
    try:
        with open_quickly(database, agent_id) as opened:
            return opened.row(_HAS_SESSION, {"session": session}) is not None
    except FileNotFound:
        return False


_HAS_SESSION = """
SELECT 1 FROM session_windows WHERE session_id = :session
UNION ALL SELECT 1 FROM session_transcript_archives WHERE session_id = :session"""


def require_not_tombstoned(database: str, agent_id: str, file_name: str) -> None:
    """Check that OpenClaw has not forgotten the session of a transcript. A missing database has forgotten none.

    Raises:
        FileNotFound: it has forgotten the session.
        PathNotAllowed, SessionDatabaseUnusable: as `SessionDatabase`; it is unknown whether it has.
    """
    try:
        with open_quickly(database, agent_id) as opened:
            forgotten = opened.row(_TOMBSTONE, {"session": session_id(file_name)}) is not None
    except FileNotFound:
        return
    if forgotten:
        raise FileNotFound(f"OpenClaw has forgotten the session of {file_name!r}")


_TOMBSTONE = "SELECT 1 FROM memory_session_tombstones WHERE session_id = :session"


def list_archives(folder: Path, agent_id: str) -> list[SourceFile]:
    """Return the compressed archives in the folder of an agent's sessions, none if there is no folder.

    Raises:
        OSError: the folder exists but cannot be read.
    """
    files = list_transcripts(folder, is_archive)
    return [
        SourceFile(session_path(agent_id, file.file_name), Source.SESSIONS, str(folder), (file.file_name,), file.stat)
        for file in files
    ]


def open_quickly(database: str, agent_id: str = "") -> SessionDatabase:
    """Open a database, which must belong to an agent if `agent_id` is not empty, for a call that waits for the result.

    Raises:
        FileNotFound, PathNotAllowed, SessionDatabaseUnusable: as `SessionDatabase`.
    """
    return SessionDatabase(database, agent_id, busy_seconds=QUICK_BUSY_SECONDS, query_seconds=QUICK_QUERY_SECONDS)


def stat_sessions(database: str, agent_id: str, names: Collection[str]) -> Mapping[str, FileStat]:
    """Return the stats of the transcripts in the agent's database, by file name; none if it cannot be read."""
    try:
        with open_quickly(database, agent_id) as opened:
            return {name: stat for name in names if (stat := _stat(opened, name)) is not None}
    except (OSError, MemorydError):
        return {}


def open_transcript(
    file: SourceFile | Location,
    should_stop: _StopSign = lambda: False,
    *,
    open_database: OpenDatabase = SessionDatabase,
) -> Transcript:
    """Open a transcript: a file, a compressed archive, or a session in a database.

    An archive is read as a whole, until `should_stop` returns True.

    Raises:
        FileNotFound: it does not exist.
        PathNotAllowed: it is a link or a special file.
        OSError: it cannot be read, or is damaged; `DamagedArchive` if it fails again unless it changes.
        ReadStopped: `should_stop` returned True.
    """
    name = file.parts[-1]
    if file.database:
        database = open_database(file.database, file.agent_id)
        try:
            if is_rotated(name):
                return _open_archive_row(database, name, should_stop)
            return _open_session(database, file.root, name, should_stop)
        except BaseException:
            database.close()
            raise
    if name.endswith(COMPRESSED):
        stream = os.fdopen(open_file(file.root, file.parts), "rb")
        return _closing(stream, lambda: _archive(stream, name, should_stop))
    return TranscriptReader.open(file)


_SESSION = """
SELECT coalesce(w.transcript_updated_at, w.updated_at),
  coalesce((SELECT max(seq) FROM transcript_events e WHERE e.session_id = w.session_id), c.last_seq),
  coalesce(r.generation, c.generation)
FROM session_windows w
LEFT JOIN transcript_rewrite_watermarks r ON r.session_id = w.session_id
LEFT JOIN session_transcript_cold_archives c ON c.session_id = w.session_id
WHERE w.session_id = :session
  AND NOT EXISTS (SELECT 1 FROM memory_session_tombstones t WHERE t.session_id = w.session_id)"""

_ARCHIVE = """
SELECT length(archive_blob), created_at, generation, rowid, encoding
FROM session_transcript_archives a WHERE archive_name = :name
  AND NOT EXISTS (SELECT 1 FROM memory_session_tombstones t WHERE t.session_id = a.session_id)"""

_COLD = """
SELECT rowid, archive_name, archive_sha256, storage FROM session_transcript_cold_archives c WHERE session_id = :session
  AND NOT EXISTS (SELECT 1 FROM transcript_events e WHERE e.session_id = c.session_id)"""


def _stat(database: SessionDatabase, name: str) -> FileStat | None:
    if is_rotated(name):
        row = database.row(_ARCHIVE, {"name": name})
        return session_stat(row[0], row[1], name, row[2]) if row is not None and is_sound_stat(*row[:2]) else None
    row = database.row(_SESSION, {"session": session_id(name)})
    return session_stat(row[1] + 1, row[0], name, row[2]) if row is not None and has_events(*row[:2]) else None


def _archive(stream: IO[bytes], name: str, should_stop: _StopSign) -> ArchiveReader:
    stat = file_stat(os.fstat(stream.fileno()))
    return ArchiveReader(stream, stat, name, should_stop=should_stop)


def _open_session(database: SessionDatabase, folder: str, name: str, should_stop: _StopSign) -> Transcript:
    session = session_id(name)
    cold = database.row(_COLD, {"session": session})
    if cold is None:
        return SessionReader(database, session)
    stat, row = _stat(database, name), database.row(_SESSION, {"session": session})
    if stat is None or row is None:
        raise FileNotFound(f"the session {session!r} is not in {database.path}")
    rowid, archive, digest, storage = cold
    if storage == "file":
        if not isinstance(digest, str) or archive != f"{digest}.jsonl{COMPRESSED}" or not _DIGEST.fullmatch(digest):
            raise SessionDatabaseUnusable("the name of the cold file is not its SHA-256")
        stream: IO[bytes] = os.fdopen(open_file(folder, (_COLD_FOLDER, archive)), "rb")
    else:
        table = "session_transcript_cold_archives"
        stream = io.BytesIO(database.blob(table, "archive_blob", rowid, MOST_ARCHIVE_BYTES))
    database.close()
    return _closing(stream, lambda: _cold(stream, digest, stat, f"{session}\0{row[2]}", should_stop))


def _cold(stream: IO[bytes], digest: str, stat: FileStat, identity: str, should_stop: _StopSign) -> ColdReader:
    """Return a reader of a cold file whose SHA-256 is `digest`."""
    actual = hashlib.sha256()
    if stream.seek(0, os.SEEK_END) > MOST_ARCHIVE_BYTES:
        raise SessionDatabaseUnusable(f"the cold file has more than {MOST_ARCHIVE_BYTES} bytes")
    stream.seek(0)
    read = 0
    while read <= MOST_ARCHIVE_BYTES and (block := stream.read(_HASHED_BYTES)):
        actual.update(block)
        read += len(block)
    if actual.hexdigest() != digest:
        raise SessionDatabaseUnusable("the cold file is damaged: its SHA-256 is not the one in the database")
    return ColdReader(stream, stat, identity, should_stop=should_stop)


def _open_archive_row(database: SessionDatabase, name: str, should_stop: _StopSign) -> Transcript:
    row = database.row(_ARCHIVE, {"name": name})
    if row is None:
        raise FileNotFound(f"the archive {name!r} is not in {database.path}")
    size, created_ms, generation, rowid, encoding = row
    if not is_sound_stat(size, created_ms):
        raise SessionDatabaseUnusable(f"the row of the archive {name!r} has values of unexpected types")
    data = database.blob("session_transcript_archives", "archive_blob", rowid, MOST_ARCHIVE_BYTES)
    database.close()
    stat = session_stat(size, created_ms, name, generation)
    compressed = encoding == "zstd"
    return ArchiveReader(io.BytesIO(data), stat, name, compressed=compressed, should_stop=should_stop)


def _closing(stream: IO[bytes], make: Callable[[], ArchiveReader]) -> ArchiveReader:
    """Return what `make` returns; close the stream if it raises."""
    try:
        return make()
    except BaseException:
        stream.close()
        raise
