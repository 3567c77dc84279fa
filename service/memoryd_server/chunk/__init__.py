"""Text into chunks: pure functions of a file's text and the chunking's numbers."""

from memoryd_server.chunk.front_matter import FrontMatter, split_front_matter
from memoryd_server.chunk.identity import CHUNKER_VERSION
from memoryd_server.chunk.lengths import cjk_length, utf16_length
from memoryd_server.chunk.markdown import chunk_markdown, indexable_chunks
from memoryd_server.chunk.transcript import TRANSCRIPT_CHUNKER_VERSION, TranscriptChunker
from memoryd_server.chunk.utf8_split import split_utf8

__all__ = [
    "CHUNKER_VERSION",
    "TRANSCRIPT_CHUNKER_VERSION",
    "FrontMatter",
    "TranscriptChunker",
    "chunk_markdown",
    "cjk_length",
    "indexable_chunks",
    "split_front_matter",
    "split_utf8",
    "utf16_length",
]
