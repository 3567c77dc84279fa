"""The rows of the index as values. Those that a search makes by the hundred are named tuples: quicker to make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from memoryd_server.model import Chunk, FileStat, Source
from memoryd_server.sources.transcript_reader import Position


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


class ChunkHead(NamedTuple):
    """A chunk without its text, and what its place among others depends on."""

    id: int
    path: str
    source: Source
    mtime_ns: int


class ChunkRow(NamedTuple):
    """A chunk with what a hit needs to know of its file. `line_numbers` are as in `model.Chunk`."""

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


class KeywordHit(NamedTuple):
    """A chunk that the keyword leg found. `bm25` is SQLite's: negative, smaller is better."""

    chunk_id: int
    bm25: float


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """How much an index holds, and at which revision.

    `languages` are those of at least 2 % of the chunks, most first, as the analyzer names them; `sources` those that
    have any chunks.
    """

    revision: int
    files: int
    chunks: int
    languages: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


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


@dataclass(frozen=True, slots=True)
class TranscriptState:
    """How far a transcript was read, by which version of what reads it, and what the next messages go on from.

    `last_chunk` are the numbered lines of its last chunk; `language` what its first chunk was analyzed as.
    """

    version: str
    read: Position
    chunk_count: int
    language: str
    last_chunk: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """The next chunks of a transcript, ready to be written.

    Where it `begins_anew`, they take the place of all that the index holds of it; where it `replaces_last`, that of the
    last chunk. `moved_from` is the path under which the index knows it, empty when that is still its own. `mark` is the
    digest of what was read. A part that is not the last one has a stat that no file has.
    """

    path: str
    stat: FileStat
    mark: bytes
    version: str
    read: Position
    chunks: Sequence[Chunk] = ()
    tokens: Sequence[tuple[str, str]] = ()
    language: str = ""
    begins_anew: bool = False
    replaces_last: bool = False
    moved_from: str = ""
    is_last: bool = True

    @property
    def source(self) -> Source:
        """Transcripts."""
        return Source.SESSIONS
