"""The columns of a chunk that its text does not determine: origin, day, importance, triggers and projects.

They can be filled for chunks that an older memoryd wrote, without any change to ids, keyword entries and vectors.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

import apsw

from memoryd_server.model import Chunk, Origin, least_trusted
from memoryd_server.sqlite import front_matter, schema
from memoryd_server.store import ROWS_VERSION, PreparedFile

COLUMNS = "line_origins, origin, day, importance, triggers, projects"
_ASSIGNMENTS = ", ".join(f"{column} = ?" for column in COLUMNS.split(", "))

Values = tuple[str | None, str, str | None, int | None, str | None, str | None]

_LETTERS = MappingProxyType({origin: origin.value[0] for origin in Origin})
_ORIGINS = MappingProxyType({letter: origin for origin, letter in _LETTERS.items()})


def values_of(chunk: Chunk, file_origin: Origin) -> Values:
    """Return the values of `COLUMNS`; a chunk without origins of its lines has that of its file."""
    annotations = chunk.annotations
    return (
        "".join([_LETTERS[origin] for origin in chunk.line_origins]) or None,
        least_trusted(chunk.line_origins) if chunk.line_origins else file_origin,
        chunk.day or None,
        annotations.importance,
        _packed(annotations.triggers),
        _packed(annotations.projects),
    )


def mark_annotated(connection: apsw.Connection, chunks: Iterable[Chunk]) -> None:
    """Record, within the caller's transaction, that the index has annotations that searches use, if it has."""
    if any(chunk.annotations.importance is not None or chunk.annotations.projects for chunk in chunks):
        schema.set_meta(connection, schema.ANNOTATED, 1)


def line_origins(letters: str | None, lines: int) -> tuple[Origin, ...]:
    """Return the origin of each of `lines` lines; UNTRUSTED for a row that is not filled yet."""
    if letters is None or len(letters) != lines:
        return (Origin.UNTRUSTED,) * lines
    return tuple(_ORIGINS.get(letter, Origin.UNTRUSTED) for letter in letters)


def unpacked(packed: str | None) -> tuple[str, ...]:
    """Return a list that `values_of` packed."""
    return tuple(json.loads(packed)) if packed else ()


def _packed(values: Sequence[str]) -> str | None:
    return json.dumps(values, ensure_ascii=False) if values else None


def refill_file(connection: apsw.Connection, file_id: int, file: PreparedFile) -> bool:
    """Fill the columns of a file's chunks, within the caller's transaction; return False if its chunks are others."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, content_hash, start_line, end_line, breadcrumb FROM chunks WHERE file_id = ? ORDER BY id",
        (file_id,),
    ).fetchall()
    wanted = [(c.content_hash, c.start_line, c.end_line, c.breadcrumb) for c in file.chunks]
    if [row[1:] for row in rows] != wanted:
        return False
    _fill(connection, [(row[0], values_of(chunk, file.origin)) for row, chunk in zip(rows, file.chunks, strict=True)])
    mark_annotated(connection, file.chunks)
    connection.execute(
        "UPDATE files SET day = ?, rows_version = ?, date = ? WHERE id = ?",
        (file.day or None, ROWS_VERSION, front_matter.date_of(file.path, file.metadata), file_id),
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
    filled: list[tuple[int, Values]] = []
    for (chunk_id, content_hash), chunk in zip(rows, chunks, strict=False):
        if content_hash != chunk.content_hash:
            break
        filled.append((chunk_id, values_of(chunk, Origin.UNTRUSTED)))
    _fill(connection, filled)
    return filled[-1][0] if filled else after


def _fill(connection: apsw.Connection, filled: Sequence[tuple[int, Values]]) -> None:
    connection.executemany(
        f"UPDATE chunks SET {_ASSIGNMENTS} WHERE id = ?",  # noqa: S608 -- constants
        [(*values, chunk_id) for chunk_id, values in filled],
    )


def batches_of(chunks: Iterable[Chunk], size: int) -> Iterable[list[Chunk]]:
    """Yield the chunks in lists of up to `size`."""
    remaining = iter(chunks)
    for first in remaining:
        yield list(chain((first,), islice(remaining, size - 1)))
