"""What chunks were made with: when it differs, the file is chunked anew."""

from dataclasses import dataclass
from typing import Final

CHUNKER_VERSION: Final = 1
"""Rises with every change that gives other chunks for the same text and numbers."""


@dataclass(frozen=True, slots=True)
class ChunkIdentity:
    """The numbers and the version of the chunker that made a file's chunks. Sizes are in tokens of four characters."""

    tokens: int
    overlap: int
    version: int = CHUNKER_VERSION
