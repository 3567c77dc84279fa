"""The messages of a transcript into chunks, which may be made further from where they ended.

A message is one line of text, or several when it is long; each is labelled with who said it and carries the number of
its line in the file. What has been made from the beginning is the same as what was made in parts: the last chunk is all
that the next message needs to know.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from memoryd_server.chunk.markdown import ChunkLimits, cjk_length
from memoryd_server.model import Chunk

TRANSCRIPT_CHUNKER_VERSION: Final = 1
"""Rises with every change that gives other chunks for the same messages and numbers."""

MOST_UNITS_A_LINE = 800
_LEAST_UNITS_A_PIECE = 8

NumberedLine = tuple[int, str]


class TranscriptChunker:
    """Packs messages into chunks of `tokens`, each sharing about `overlap` tokens with the one before.

    `last_chunk` are the lines of the chunk that was the last when the messages before these were chunked.
    """

    def __init__(self, tokens: int, overlap: int, last_chunk: Sequence[NumberedLine] = ()) -> None:
        self._limits = ChunkLimits.of_tokens(tokens, overlap)
        self._lines = list(last_chunk)
        self._size = sum(_cost(text) for _, text in self._lines)

    def add(self, number: int, label: str, text: str) -> Iterator[Chunk]:
        """Takes the message of line `number` in, and yields the chunks that are full now."""
        room = max(_LEAST_UNITS_A_PIECE, min(MOST_UNITS_A_LINE, self._limits.span - 1) - len(label) - 2)
        for piece in pieces(text, room):
            line = f"{label}: {piece}"
            cost = _cost(line)
            if self._lines and self._size + cost > self._limits.span + 1:
                yield _chunk(self._lines)
                self._keep_overlap(self._limits.span + 1 - cost)
            self._lines.append((number, line))
            self._size += cost

    def last(self) -> Chunk | None:
        """The chunk that is not full yet; None where there is no message."""
        return _chunk(self._lines) if self._lines else None

    def _keep_overlap(self, room: int) -> None:
        """Keeps the last lines, as many as reach the overlap and leave `room` for the next one."""
        kept, size = len(self._lines), 0
        while kept > 0 and size < self._limits.overlap:
            cost = _cost(self._lines[kept - 1][1])
            if size + cost > room:
                break
            kept, size = kept - 1, size + cost
        self._lines, self._size = self._lines[kept:], size


def pieces(text: str, most_units: int) -> Iterator[str]:
    """Yields `text` in pieces of a weighted length of at most `most_units`, cut at spaces where there are any."""
    if cjk_length(text) <= most_units:
        yield text
        return
    start = 0
    while start < len(text):
        end = _fitting(text, start, most_units)
        if end < len(text):
            space = text.rfind(" ", start + 1, end + 1)
            end = space if space > start else _whole_characters(text, start, end)
        yield text[start:end]
        start = end + (text[end : end + 1] == " ")


def _fitting(text: str, start: int, most_units: int) -> int:
    """The end of the longest part from `start` that is not too long; at least one character."""
    end = min(len(text), start + most_units)
    while end > start + 1 and (excess := cjk_length(text[start:end]) - most_units) > 0:
        end -= max(1, min(excess // 4, end - start - 1))
    return end


def _whole_characters(text: str, start: int, end: int) -> int:
    """The end of a part that does not cut an accent from its letter, where one can be found."""
    cut = end
    while cut > start and unicodedata.combining(text[cut]):
        cut -= 1
    return cut if cut > start else end


def _cost(line: str) -> int:
    return cjk_length(line) + 1


def _chunk(lines: Sequence[NumberedLine]) -> Chunk:
    text = "\n".join(line for _, line in lines)
    return Chunk(
        text=text,
        start_line=lines[0][0],
        end_line=lines[-1][0],
        content_hash=sha256(text.encode()).digest(),
        line_numbers=tuple(number for number, _ in lines),
    )
