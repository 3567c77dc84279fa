"""Split text into chunks, the units of indexing. Pure."""

from memoryd_server.chunk.annotations import project_key, split_annotations
from memoryd_server.chunk.front_matter import split_front_matter
from memoryd_server.chunk.markdown import CHUNKER_VERSION, split_utf8
from memoryd_server.chunk.memory import memory_chunks
from memoryd_server.chunk.transcript import TRANSCRIPT_CHUNKER_VERSION, TranscriptChunker

__all__ = [
    "CHUNKER_VERSION",
    "TRANSCRIPT_CHUNKER_VERSION",
    "TranscriptChunker",
    "memory_chunks",
    "project_key",
    "split_annotations",
    "split_front_matter",
    "split_utf8",
]
