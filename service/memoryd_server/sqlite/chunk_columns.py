"""The columns of a chunk that its text does not determine: origin, day, importance, triggers and projects.

They can be filled for chunks that an older memoryd wrote, without any change to ids, keyword entries and vectors.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from memoryd_server.model import Chunk, Origin
from memoryd_server.sqlite import front_matter, schema
from memoryd_server.store import ROWS_VERSION, ChunkValues, PreparedFile, chunk_values, file_date, has_annotations

COLUMNS = "line_origins, origin, day, importance, triggers, projects"
_ASSIGNMENTS = ", ".join(f"{column} = ?" for column in COLUMNS.split(", "))


def mark_annotated(connection: apsw.Connection, chunks: Iterable[Chunk]) -> None:
    """Record, within the caller's transaction, that the index has annotations that searches use, if it has."""
    if has_annotations(chunks):
        schema.set_meta(connection, schema.ANNOTATED, 1)


def refill_file(connection: apsw.Connection, file_id: int, file: PreparedFile) -> bool:
    """Fill the columns of a file's chunks, within the caller's transaction; return False if its chunks are others."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, content_hash, start_line, end_line, breadcrumb FROM chunks WHERE file_id = ? ORDER BY id",
        (file_id,),
    ).fetchall()
    wanted = [(c.content_hash, c.start_line, c.end_line, c.breadcrumb) for c in file.chunks]
    if [row[1:] for row in rows] != wanted:
        return False
    _fill(
        connection, [(row[0], chunk_values(chunk, file.origin)) for row, chunk in zip(rows, file.chunks, strict=True)]
    )
    mark_annotated(connection, file.chunks)
    connection.execute(
        "UPDATE files SET day = ?, rows_version = ?, date = ? WHERE id = ?",
        (file.day or None, ROWS_VERSION, file_date(file.path, file.metadata), file_id),
    )
    front_matter.delete(connection, file_id)
    front_matter.insert(connection, file_id, file.metadata)
    return True


def refill_transcript(connection: apsw.Connection, file_id: int, after: int, chunks: Sequence[Chunk]) -> int:
    """Fill the columns of the next `chunks` of a transcript, after chunk id `after`; return the id of the last one.

    Stops at the first chunk whose text is another; the rest stays untrusted. Within the caller's transaction.
    """
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, content_hash FROM chunks WHERE file_id = ? AND id > ? ORDER BY id LIMIT ?",
        (file_id, after, len(chunks)),
    ).fetchall()
    filled: list[tuple[int, ChunkValues]] = []
    for (chunk_id, content_hash), chunk in zip(rows, chunks, strict=False):
        if content_hash != chunk.content_hash:
            break
        filled.append((chunk_id, chunk_values(chunk, Origin.UNTRUSTED)))
    _fill(connection, filled)
    return filled[-1][0] if filled else after


def _fill(connection: apsw.Connection, filled: Sequence[tuple[int, ChunkValues]]) -> None:
    connection.executemany(
        f"UPDATE chunks SET {_ASSIGNMENTS} WHERE id = ?",  # noqa: S608 -- constants
        [(*values, chunk_id) for chunk_id, values in filled],
    )
