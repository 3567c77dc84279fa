"""The rows of the index as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memoryd_server.model import Chunk, FileStat, Source


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file as the index knows it. `error` says why it could not be indexed; then it has no chunks."""

    id: int
    path: str
    source: Source
    content_hash: bytes
    stat: FileStat
    chunk_count: int
    error: str | None


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk with what a hit needs to know of its file."""

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


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """A chunk that the keyword leg found. `bm25` is SQLite's: negative, smaller is better."""

    chunk_id: int
    bm25: float


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """How much an index holds, and at which revision.

    `languages` are those of at least 2 % of the chunks, most first, as the analyzer names them.
    """

    revision: int
    files: int
    chunks: int
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file read, chunked and analyzed, ready to be written.

    `tokens` holds one (body, context) pair a chunk, in the analyzer's spelling. `language` is what it was analyzed as.
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
