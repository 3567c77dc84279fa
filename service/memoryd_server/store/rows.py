"""The values that an index stores and returns: rows read from it, and documents written to it.

The functions at the end make the columns in which every driver stores them, and values of the columns that it reads.
Of front matter, filters compare only the first `MAX_VALUES` values of a file, without keys of more than `MAX_KEY_CHARS`
characters and values of more than `MAX_VALUE_CHARS`.

Values that a search creates by the hundred are named tuples, which are faster to create than dataclasses.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain, islice
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memoryd_server.foreign_text import parse_json
from memoryd_server.model import NO_ANNOTATIONS, Annotations, Chunk, FileStat, Origin, Source, least_trusted, stored
from memoryd_server.sources import ReadPosition, note_day, origin_of_file
from memoryd_server.store.filters import front_matter_value
from memoryd_server.text import Analyzer

# Each chunk of a file is indexed with the file's title, so a long title would be indexed thousands of times.
MOST_TITLE_CHARS = 200


ROWS_VERSION: Final = 1
"""Stored with each file. Increased by every change that gives other chunks or other columns for some of the files.

Files with a smaller version are read again by the next sync. Their unchanged chunks keep their vectors.
"""


@dataclass(frozen=True, slots=True)
class FileRow:
    """An indexed file. `error` says why it could not be indexed, in which case it has no chunks.

    `skipped` is the number of records of a transcript that are not indexed because they are damaged or too large.
    """

    id: int
    path: str
    source: Source
    content_hash: bytes
    stat: FileStat
    chunk_count: int
    error: str | None
    rows_version: int = ROWS_VERSION
    skipped: int = 0

    @property
    def is_outdated(self) -> bool:
        """Whether an older version wrote the rows of this file, so that it has to be read again."""
        return self.error is None and self.rows_version < ROWS_VERSION


FileKey = tuple[Source, str]
"""A file's source and path."""


class ChunkHead(NamedTuple):
    """A chunk without its text, with the fields that ranking uses. `day` is that of the chunk, or else of its file."""

    id: int
    path: str
    source: Source
    mtime_ns: int
    importance: int | None = None
    projects: tuple[str, ...] = ()
    day: date | None = None


class ChunkRow(NamedTuple):
    """A chunk with the fields of its file that a hit reports. `line_numbers` are as in `model.Chunk`.

    `day` is that of the chunk, or else of its file, as YYYY-MM-DD; empty if neither has one.
    """

    id: int
    path: str
    source: Source
    start_line: int
    end_line: int
    text: str
    breadcrumb: str
    size_bytes: int
    mtime_ns: int
    language: str = ""
    line_numbers: tuple[int, ...] = ()
    origin: Origin = Origin.UNTRUSTED
    annotations: Annotations = NO_ANNOTATIONS
    day: str = ""


class KeywordHit(NamedTuple):
    """A chunk found by keyword search. `bm25` is SQLite's: negative, smaller is better."""

    chunk_id: int
    bm25: float


class VectorHit(NamedTuple):
    """A chunk found by vector search, and the cosine of its vector with the query's."""

    chunk_id: int
    cosine: float


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """The size of an index at one revision.

    `languages` are those of at least 2 % of the chunks, most frequent first, as the analyzer names them; `sources` are
    those with at least one chunk. `annotated` is whether a chunk may have an importance or projects.
    """

    revision: int
    files: int
    chunks: int
    languages: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    annotated: bool = False


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """What the index stores of some files: content hashes (one per chunk), keyword entries and vectors."""

    hashes: tuple[bytes, ...] = ()
    keyword_entries: int = 0
    vectors: int = 0


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk to embed."""

    chunk_id: int
    content_hash: bytes
    text: str


class StoredVector(NamedTuple):
    """A chunk's vector, as little-endian float32, with the content hash of its text."""

    chunk_id: int
    content_hash: bytes
    vector: bytes


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file that was read, chunked and analyzed, ready to be written.

    `tokens` holds one (body, context) pair per chunk, in the analyzer's spelling. `language` is the language it was
    analyzed as, `day` the date of a note (YYYY-MM-DD, or empty). `same_bytes` is set if the file was read only because
    its row is outdated.
    """

    path: str
    source: Source
    stat: FileStat
    content_hash: bytes
    chunks: Sequence[Chunk] = ()
    tokens: Sequence[tuple[str, str]] = ()
    metadata: Mapping[str, str | list[str]] = field(default_factory=dict)
    language: str = ""
    error: str | None = None
    origin: Origin = Origin.UNTRUSTED
    day: str = ""
    same_bytes: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptState:
    """How far a transcript was read and by which reader version, and the chunk that the next messages continue.

    `last_chunk` holds the lines of its last chunk with their numbers and origins; `language` is the language of its
    first chunk.
    """

    version: str
    read: ReadPosition
    chunk_count: int
    language: str
    last_chunk: Sequence[tuple[int, str, Origin]] = ()


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """The next chunks of a transcript, ready to be written.

    With `replaces_all`, the chunks replace everything that the index has of the transcript; with `replaces_last`, its
    last chunk. `moved_from` is the path under which the transcript, or another form of it, is indexed; empty if the
    path has not changed. `mark` is the digest of the bytes read (`TranscriptReader.prefix_digest`). A part that is not
    the last has a stat that no file can have, so that the transcript counts as changed until its last part is written.
    `skipped` is the number of records of this part that are damaged or too large.
    """

    path: str
    stat: FileStat
    mark: bytes
    version: str
    read: ReadPosition
    chunks: Sequence[Chunk] = ()
    tokens: Sequence[tuple[str, str]] = ()
    language: str = ""
    replaces_all: bool = False
    replaces_last: bool = False
    moved_from: str = ""
    is_last: bool = True
    skipped: int = 0

    @property
    def source(self) -> Source:
        """Always `Source.SESSIONS`."""
        return Source.SESSIONS

    @property
    def origin(self) -> Origin:
        """The origin of a line without its own: that of an unknown sender."""
        return Origin.UNTRUSTED


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The provider, model and parameters that vectors were made with.

    `provider_key` is a hash of the endpoint and the other parameters; it holds no secret.
    """

    provider: str
    model: str
    provider_key: str


ProviderModel = tuple[str, str]
"""Provider and model."""

Counts = tuple[int, int, int, int]
"""Calls, tokens, retries and cache hits."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A batch job for `texts` texts.

    `name` is memoryd's and unique. `job_id` is the provider's, empty until the job is known to exist. `attempt` counts
    from 1.
    """

    name: str
    job_id: str
    texts: int
    begun_at_ms: int
    attempt: int = 1


def keyword_tokens(analyzer: Analyzer, text: str, breadcrumb: str, name: str, language: str) -> tuple[str, str]:
    """Return the tokens of the two columns, body and context; `name` is the chunk's `file_name`."""
    return analyzer.index_tokens(text, language), analyzer.index_tokens(f"{name} {breadcrumb}", language)


def file_name(path: str, metadata: Mapping[str, object]) -> str:
    """Return the file's stem followed by its title, if any, cut to `MOST_TITLE_CHARS` characters."""
    stem, title = PurePosixPath(path).stem, metadata.get("title")
    return f"{stem} {title[:MOST_TITLE_CHARS]}" if isinstance(title, str) else stem


def language_of(analyzer: Analyzer, texts: Sequence[str]) -> str:
    """Return the language of a file with these chunks.

    Depends only on the first chunk and the middle one, so that it can be determined again from the stored text.
    """
    if not texts:
        return ""
    return analyzer.language_of(texts[0] if len(texts) == 1 else f"{texts[0]}\n{texts[len(texts) // 2]}")


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


MAX_KEY_CHARS: Final = 128
MAX_VALUE_CHARS: Final = 256
MAX_VALUES: Final = 256


def front_matter_values(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each key with each of its values, as filters compare them, without duplicates."""
    return list(islice(dict.fromkeys(_values(metadata)), MAX_VALUES))


def _values(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in metadata.items():
        if len(key) > MAX_KEY_CHARS:
            continue
        elements = value if isinstance(value, list) else [value]
        if key == "tags" and isinstance(value, str):
            elements = [tag for tag in value.split(",") if tag.strip()]
        for element in elements:
            compared = front_matter_value(element) if isinstance(element, str) else None
            if compared is not None and len(compared) <= MAX_VALUE_CHARS:
                yield key, compared


def file_date(path: str, metadata: Mapping[str, Any]) -> str | None:
    """Return the date of a file as an index stores it; None if neither its name nor its front matter has one."""
    day = note_day(path, metadata)
    return None if day is None else day.isoformat()


def parse_metadata(text: str | None) -> Mapping[str, Any]:
    """Return the front matter that is stored as JSON; empty if there is none or it is damaged."""
    try:
        metadata = parse_json(text) if text else {}
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}
