"""Rows out, documents in.

What an index holds and is given: rows out, documents in.

Values that a search makes by the hundred are named tuples, which are quicker to make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from memoryd_server.model import Chunk, FileStat, Source
from memoryd_server.sources import ReadPosition
from memoryd_server.text import Analyzer

# Each chunk of a file is found by its title, so that a long one would be indexed thousands of times over.
MOST_TITLE_CHARS = 200


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


FileKey = tuple[Source, str]
"""A file's source and path."""


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


class VectorHit(NamedTuple):
    """A chunk that the vector leg found, and the cosine of its vector with the query's."""

    chunk_id: int
    cosine: float


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
class StoredCounts:
    """Content hashes, one a chunk; entries of the keyword leg; vectors."""

    hashes: tuple[bytes, ...] = ()
    keyword_entries: int = 0
    vectors: int = 0


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk that wants a vector."""

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
    read: ReadPosition
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
    read: ReadPosition
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


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Who makes the vectors. `provider_key` stands for the endpoint and what else changes them; no secret is in it."""

    provider: str
    model: str
    provider_key: str


Maker = tuple[str, str]
"""Provider and model."""

Counts = tuple[int, int, int, int]
"""Calls, tokens, retries and cache hits."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job for `texts` texts. `job_id` is the provider's, empty while it is not known whether it has been made.

    `name` is ours, and unique. `attempt` counts from 1.
    """

    name: str
    job_id: str
    texts: int
    begun_at_ms: int
    attempt: int = 1


def keyword_tokens(analyzer: Analyzer, text: str, breadcrumb: str, name: str, language: str) -> tuple[str, str]:
    """Returns the tokens of the two columns, body and context; `name` is what `file_name` says of the chunk's file."""
    return analyzer.index_tokens(text, language), analyzer.index_tokens(f"{name} {breadcrumb}", language)


def file_name(path: str, metadata: Mapping[str, object]) -> str:
    """Returns what a file is called: its name without folder and ending, and its title, cut where it is long."""
    stem, title = PurePosixPath(path).stem, metadata.get("title")
    return f"{stem} {title[:MOST_TITLE_CHARS]}" if isinstance(title, str) else stem


def language_of(analyzer: Analyzer, texts: Sequence[str]) -> str:
    """Returns the language of a file that has these chunks: told from them, so that it can be told again later."""
    if not texts:
        return ""
    return analyzer.language_of(texts[0] if len(texts) == 1 else f"{texts[0]}\n{texts[len(texts) // 2]}")
