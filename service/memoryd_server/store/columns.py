"""How every driver stores the fields of chunks and files, and makes values of the rows it reads."""

import json
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

from memoryd_server.model import NO_ANNOTATIONS, Annotations, Chunk, FileStat, Origin, Source, least_trusted, stored
from memoryd_server.sources import origin_of_file
from memoryd_server.store.rows import ChunkHead, ChunkRow, FileRow

ChunkValues = tuple[str | None, str, str | None, int | None, str | None, str | None]
"""The columns line_origins, origin, day, importance, triggers and projects of a chunk."""

StatValues = tuple[int, int, int, int, int]
"""The columns size_bytes, mtime_ns, ctime_ns, device and inode of a file."""

_LETTERS = MappingProxyType({origin: origin.value[0] for origin in Origin})
_BY_LETTER = MappingProxyType({letter: origin for origin, letter in _LETTERS.items()})

# A lookup costs a tenth of `Source(...)`.
_SOURCES = MappingProxyType({source.value: source for source in Source})
_ORIGINS = MappingProxyType({origin.value: origin for origin in Origin})


def stat_values(stat: FileStat) -> StatValues:
    """Return the columns of a file's stat."""
    values = stored(stat)
    return values.size_bytes, values.mtime_ns, values.ctime_ns, values.device, values.inode


def chunk_values(chunk: Chunk, file_origin: Origin) -> ChunkValues:
    """Return the columns that the text does not determine; a chunk without origins of its lines has its file's."""
    annotations = chunk.annotations
    return (
        "".join([_LETTERS[origin] for origin in chunk.line_origins]) or None,
        least_trusted(chunk.line_origins) if chunk.line_origins else file_origin,
        chunk.day or None,
        annotations.importance,
        _packed(annotations.triggers),
        _packed(annotations.projects),
    )


def has_annotations(chunks: Iterable[Chunk]) -> bool:
    """Return whether any chunk has an annotation that searches use."""
    return any(chunk.annotations.importance is not None or chunk.annotations.projects for chunk in chunks)


def packed_line_numbers(chunk: Chunk) -> str | None:
    """Return a chunk's line numbers as JSON; None if it has none."""
    return json.dumps(chunk.line_numbers, separators=(",", ":")) if chunk.line_numbers else None


def line_numbers(packed: str | None) -> tuple[int, ...]:
    """Return the line numbers that `packed_line_numbers` packed."""
    return tuple(json.loads(packed)) if packed else ()


def line_origins(letters: str | None, lines: int) -> tuple[Origin, ...]:
    """Return the origin of each of `lines` lines; UNTRUSTED for a row that is not filled yet."""
    if letters is None or len(letters) != lines:
        return (Origin.UNTRUSTED,) * lines
    return tuple(_BY_LETTER.get(letter, Origin.UNTRUSTED) for letter in letters)


def last_lines(text: str, numbers: str | None, letters: str | None) -> tuple[tuple[int, str, Origin], ...]:
    """Return the lines of a transcript's last chunk with their numbers and origins."""
    texts = text.split("\n")
    return tuple(zip(line_numbers(numbers), texts, line_origins(letters, len(texts)), strict=True))


def file_row(row: Sequence[Any]) -> FileRow:
    """Return a file of the columns id, path, source, hash, `StatValues`, chunk_count, error, rows_version, skipped."""
    file_id, path, source, content_hash, size, mtime, ctime, device, inode, count, error, version, skipped = row
    stat = FileStat(size, mtime, ctime, device, inode)
    return FileRow(file_id, path, _SOURCES[source], content_hash, stat, count, error, version, skipped)


def chunk_head(row: Sequence[Any]) -> ChunkHead:
    """Return a chunk of the columns id, path, source, mtime_ns, importance, projects, day."""
    chunk_id, path, source, mtime, importance, projects, day = row
    own = _unpacked(projects) if projects else ()
    dated = date.fromisoformat(day) if day else None
    return ChunkHead(chunk_id, path, _SOURCES[source], mtime, importance, own, dated)


def chunk_row(row: Sequence[Any]) -> ChunkRow:
    """Return a chunk of these columns.

    They are id, path, source, start_line, end_line, breadcrumb, size_bytes, mtime_ns, language, line_numbers, origin,
    importance, triggers, projects, day, text.
    """
    chunk_id, path, source, start, end, *fields, numbers, origin, importance, triggers, projects, day, text = row
    source = _SOURCES[source]
    # A row of an older version has no origin yet.
    origin = _ORIGINS.get(origin) or origin_of_file(source, path)
    has_none = importance is None and triggers is None and projects is None
    annotations = NO_ANNOTATIONS if has_none else Annotations(importance, _unpacked(triggers), _unpacked(projects))
    values = (chunk_id, path, source, start, end, text, *fields, line_numbers(numbers), origin, annotations, day)
    return ChunkRow(*values)


def batches_of(chunks: Iterable[Chunk], size: int) -> Iterable[list[Chunk]]:
    """Yield the chunks in lists of up to `size`."""
    remaining = iter(chunks)
    for first in remaining:
        yield list(chain((first,), islice(remaining, size - 1)))


def _unpacked(packed: str | None) -> tuple[str, ...]:
    return tuple(json.loads(packed)) if packed else ()


def _packed(values: Sequence[str]) -> str | None:
    return json.dumps(values, ensure_ascii=False) if values else None
