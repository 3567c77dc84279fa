"""The transcripts in an OpenClaw agent's database: which sessions are memory, and the stat of each.

A session is left out if the gateway itself made it (see `generated_sessions`), or if the user had OpenClaw forget it.

The stat of a session changes with each of its changes: its size is the number of its events, and its inode depends on
the session and the generation of its events, which changes when events are rewritten or removed.

The columns of a database that is damaged, or that another program has written, can have values of any type. A row with
a value of another type than OpenClaw's is left out, and counted.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memoryd_server.model import FileStat
from memoryd_server.sources.generated_sessions import generated_sessions, is_generated_key, session_links
from memoryd_server.sources.session_database import SessionDatabase
from memoryd_server.sources.transcripts import SESSIONS_FOLDER, is_rotated, is_transcript, session_id

MOST_EVENTS = 10_000_000
"""Events with a higher number are not read."""

DATABASE_DEVICE = 0x73716C6974650001
"""The device in the stats of transcripts in a database, which no file system has."""

_MOST_NAME_CHARS = 240

MOST_SESSION_ID_BYTES = 200
"""The longest id of a session whose transcript a caller stores: a file system allows names of 255 bytes, and a rotated
transcript has a longer name."""

_SESSIONS = """
SELECT n.session_key, n.current_session_id, n.spawned_by, n.parent_session_key, w.spawned_by, w.parent_session_key,
  CASE WHEN json_valid(n.entry_json) THEN json_extract(n.entry_json, '$.spawnedBy') END,
  CASE WHEN json_valid(n.entry_json) THEN json_extract(n.entry_json, '$.parentSessionKey') END,
  CASE WHEN json_valid(n.entry_json) THEN json_extract(n.entry_json, '$.heartbeatIsolatedBaseSessionKey') END,
  w.session_id, coalesce(w.transcript_updated_at, w.updated_at),
  coalesce((SELECT max(seq) FROM transcript_events e WHERE e.session_id = w.session_id), c.last_seq),
  coalesce(r.generation, c.generation)
FROM session_nodes n
LEFT JOIN session_windows w ON w.session_id = n.current_session_id
LEFT JOIN transcript_rewrite_watermarks r ON r.session_id = w.session_id
LEFT JOIN session_transcript_cold_archives c ON c.session_id = w.session_id
WHERE n.session_key > :after ORDER BY n.session_key"""

_ARCHIVES = """
SELECT archive_name, session_id, generation, session_key, created_at, length(archive_blob)
FROM session_transcript_archives WHERE archive_name > :after ORDER BY archive_name"""

_TOMBSTONES = "SELECT session_id FROM memory_session_tombstones WHERE session_id > :after ORDER BY session_id"


@dataclass(frozen=True, slots=True)
class SessionList:
    """The transcripts of a database by file name, and the ids of the sessions that are no memory.

    `malformed` is the number of rows that were left out because they have values of unexpected types.
    """

    stats: Mapping[str, FileStat]
    excluded: frozenset[str]
    malformed: int = 0


def list_sessions(database: SessionDatabase) -> SessionList:
    """Return the current transcript of each session, and the archived transcripts.

    Raises:
        FileNotFound, PathNotAllowed, SessionDatabaseUnusable: as `SessionDatabase`.
    """
    forgotten = {row[0] for page in database.pages(_TOMBSTONES, {}, "") for row in page if isinstance(row[0], str)}
    nodes = [row for page in database.pages(_SESSIONS, {}, "") for row in page]
    archives = [row for page in database.pages(_ARCHIVES, {}, "") for row in page]
    named_nodes = [row for row in nodes if _are_texts(*row[:2])]
    named_archives = [row for row in archives if _are_texts(row[0], row[1], row[3])]
    generated = generated_sessions({row[0]: session_links(row[2:8], row[8]) for row in named_nodes})
    excluded = forgotten | {row[1] for row in named_nodes if row[0] in generated}
    excluded |= {row[1] for row in named_archives if row[3] in generated or is_generated_key(row[3])}
    sound_nodes = [row for row in named_nodes if _is_sound_state(*row[9:12])]
    sound_archives = [row for row in named_archives if is_sound_stat(row[5], row[4])]
    stats = {}
    for row in sound_nodes:
        session, updated_ms, last, generation = row[9:]
        if has_events(updated_ms, last) and session not in excluded:
            name = f"{session}.jsonl"
            stats[name] = session_stat(last + 1, updated_ms, name, generation)
    for name, session, generation, _, created_ms, size in sound_archives:
        if session not in excluded and is_rotated(name):
            stats[name] = session_stat(size, created_ms, name, generation)
    usable = {name: stat for name, stat in stats.items() if is_transcript_name(name)}
    malformed = len(nodes) + len(archives) - len(sound_nodes) - len(sound_archives)
    return SessionList(usable, frozenset(excluded), malformed)


def _are_texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_sound_state(session: Any, updated_ms: Any, last: Any) -> bool:
    """Return whether the state of a session is usable, or NULL because it has no window or no events."""
    return isinstance(session, str | None) and isinstance(updated_ms, int | None) and isinstance(last, int | None)


def is_sound_stat(size: Any, updated_ms: Any) -> bool:
    """Return whether values of a database are usable as the arguments of `session_stat`."""
    return isinstance(size, int) and isinstance(updated_ms, int)


def has_events(updated_ms: Any, last: Any) -> bool:
    """Return whether `last`, a value of a database, is the number of a session's last event; None means no events."""
    return is_sound_stat(last, updated_ms) and 0 <= last < MOST_EVENTS


def is_transcript_name(name: str) -> bool:
    """Return whether a name from a database, or of an archive, is usable as the last part of a path."""
    return len(name) <= _MOST_NAME_CHARS and is_transcript(name.removesuffix(".zst"))


def session_id_problem(session: str) -> str:
    """Return why a text cannot be the id of a session whose transcript a caller stores, or "" if it can."""
    if not session.strip():
        return "must not be blank"
    if (size := len(session.encode("utf-8", "surrogatepass"))) > MOST_SESSION_ID_BYTES:
        return f"is {size:,} bytes long; at most {MOST_SESSION_ID_BYTES} are allowed"
    if "/" in session or not session.isprintable():
        return "must not contain / or characters that are not printable"
    if session_id(f"{session}.jsonl") != session:
        return "must not contain .jsonl.reset. or .jsonl.deleted., which are in the names of rotated transcripts"
    return ""


def session_path(agent_id: str, file_name: str) -> str:
    """Return the display path of a transcript in a database: the path that OpenClaw shows."""
    return f"{SESSIONS_FOLDER}/{agent_id}/{file_name}"


def session_stat(size: int, updated_ms: int, name: str, generation: str | None) -> FileStat:
    """Return the stat of a transcript in a database; `size` is its number of events, or the bytes of an archive."""
    time_ns = max(1, min(updated_ms, 1 << 42)) * 1_000_000
    digest = hashlib.sha256(f"{name}\0{generation}".encode("utf-8", "surrogatepass")).digest()
    inode = int.from_bytes(digest[:8]) >> 1
    return FileStat(size, time_ns, time_ns, DATABASE_DEVICE, inode)
