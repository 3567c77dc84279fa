"""Split the messages of a transcript into chunks; the split can continue where it ended.

A message is one line of text, or several if it is long; each is labelled with its speaker and has the number of its
line in the file. A continued split gives the same chunks as a split from the beginning: it only needs the last chunk.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from memoryd_server.chunk.markdown import ChunkLimits, cjk_length
from memoryd_server.model import Chunk, Origin

TRANSCRIPT_CHUNKER_VERSION: Final = 1
"""Increased by every change that gives other chunks for the same messages and numbers."""

MOST_UNITS_A_LINE = 800
_LEAST_UNITS_A_PIECE = 8

NumberedLine = tuple[int, str, Origin]
"""The line of the file, the labelled text, and the origin of the message."""


class TranscriptChunker:
    """Packs messages into chunks of `tokens`, each sharing about `overlap` tokens with the previous one.

    `last_chunk` are the lines of the last chunk of an earlier split that this one continues.
    """

    def __init__(self, tokens: int, overlap: int, last_chunk: Sequence[NumberedLine] = ()) -> None:
        self._limits = ChunkLimits.from_tokens(tokens, overlap)
        self._lines = list(last_chunk)
        self._size = sum(_cost(text) for _, text, _ in self._lines)

    def add(self, number: int, label: str, text: str, origin: Origin = Origin.UNTRUSTED) -> Iterator[Chunk]:
        """Add the message of line `number`, and yield the chunks that are full now."""
        room = max(_LEAST_UNITS_A_PIECE, min(MOST_UNITS_A_LINE, self._limits.span - 1) - len(label) - 2)
        for piece in split_message(text, room):
            line = f"{label}: {piece}"
            cost = _cost(line)
            if self._lines and self._size + cost > self._limits.span + 1:
                yield _chunk(self._lines)
                self._keep_overlap(self._limits.span + 1 - cost)
            self._lines.append((number, line, origin))
            self._size += cost

    def last(self) -> Chunk | None:
        """Return the chunk that is not full yet, or None if there is no message."""
        return _chunk(self._lines) if self._lines else None

    def _keep_overlap(self, room: int) -> None:
        """Keep the last lines that reach the overlap and leave `room` for the next one."""
        kept, size = len(self._lines), 0
        while kept > 0 and size < self._limits.overlap:
            cost = _cost(self._lines[kept - 1][1])
            if size + cost > room:
                break
            kept, size = kept - 1, size + cost
        self._lines, self._size = self._lines[kept:], size


def split_message(text: str, most_units: int) -> Iterator[str]:
    """Yield `text` in pieces of a weighted length of at most `most_units`, cut at spaces if possible."""
    if cjk_length(text) <= most_units:
        yield text
        return
    start = 0
    while start < len(text):
        end = _fitting_end(text, start, most_units)
        if end < len(text):
            space = text.rfind(" ", start + 1, end + 1)
            end = space if space > start else _character_end(text, start, end)
        yield text[start:end]
        start = end + (text[end : end + 1] == " ")


def _fitting_end(text: str, start: int, most_units: int) -> int:
    """Return the end of the longest part from `start` that fits; at least one character."""
    end = min(len(text), start + most_units)
    while end > start + 1 and (excess := cjk_length(text[start:end]) - most_units) > 0:
        end -= max(1, min(excess // 4, end - start - 1))
    return end


def _character_end(text: str, start: int, end: int) -> int:
    """Return the end of a part that does not separate an accent from its letter, if there is one."""
    cut = end
    while cut > start and unicodedata.combining(text[cut]):
        cut -= 1
    return cut if cut > start else end


def _cost(line: str) -> int:
    return cjk_length(line) + 1


def _chunk(lines: Sequence[NumberedLine]) -> Chunk:
    text = "\n".join(line for _, line, _ in lines)
    return Chunk(
        text=text,
        start_line=lines[0][0],
        end_line=lines[-1][0],
        content_hash=sha256(text.encode()).digest(),
        line_numbers=tuple(number for number, _, _ in lines),
        line_origins=tuple(origin for _, _, origin in lines),
    )
