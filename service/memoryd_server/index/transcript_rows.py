"""What the index holds of a transcript beside its chunks: how far it was read, and where each line of a chunk is."""

import json

import apsw

from memoryd_server.index.plan import stored
from memoryd_server.model import Chunk
from memoryd_server.sources.transcript_reader import Position
from memoryd_server.store.rows import TranscriptPart, TranscriptState


def packed(chunk: Chunk) -> str | None:
    """A chunk's line numbers as the table holds them."""
    return json.dumps(chunk.line_numbers, separators=(",", ":")) if chunk.line_numbers else None


def line_numbers(stored_numbers: str | None) -> tuple[int, ...]:
    """What `packed` made."""
    return tuple(json.loads(stored_numbers)) if stored_numbers else ()


def transcript_state(connection: apsw.Connection, file_id: int) -> TranscriptState | None:
    """How far a transcript was read; None for a file that is none, or could not be read."""
    row = connection.execute(
        "SELECT version, read_bytes, read_lines, chunk_count, language"
        " FROM transcripts JOIN files ON files.id = file_id WHERE file_id = ?",
        (file_id,),
    ).fetchone()
    if row is None:
        return None
    version, read_bytes, read_lines, chunk_count, language = row
    last = connection.execute(
        "SELECT text, line_numbers FROM chunks WHERE id = (SELECT max(id) FROM chunks WHERE file_id = ?)", (file_id,)
    ).fetchone()
    lines = () if last is None else tuple(zip(line_numbers(last[1]), last[0].split("\n"), strict=True))
    return TranscriptState(version, Position(read_bytes, read_lines), chunk_count, language, lines)


def note_read(connection: apsw.Connection, file_id: int, part: TranscriptPart) -> None:
    """Notes, within the caller's transaction that writes its chunks, how far a transcript was read."""
    kept = stored(part.stat)
    connection.execute(
        "UPDATE files SET path = ?, hash = ?, size_bytes = ?, mtime_ns = ?, ctime_ns = ?, device = ?, inode = ?,"
        " language = ?, error = NULL, chunk_count = chunk_count + ? WHERE id = ?",
        (
            part.path,
            part.mark,
            kept.size_bytes,
            kept.mtime_ns,
            kept.ctime_ns,
            kept.device,
            kept.inode,
            part.language,
            len(part.chunks) - part.replaces_last,
            file_id,
        ),
    )
    connection.execute(
        "INSERT OR REPLACE INTO transcripts(file_id, version, read_bytes, read_lines) VALUES(?,?,?,?)",
        (file_id, part.version, part.read.offset, part.read.lines),
    )
