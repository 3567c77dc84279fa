"""Reads one transcript line by line, from any line whose beginning is known.

A line that nothing ends yet counts when it holds a whole message, and is otherwise left for the next time: whoever
writes it may not have finished. A line longer than 16 MiB is passed over without being held in memory.
"""

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from memoryd_server.model import FileStat, SourceFile
from memoryd_server.sources.contained import file_stat, open_file
from memoryd_server.sources.flattening import Message, message_of
from memoryd_server.sources.roots import Location

MOST_LINE_BYTES = 16 << 20

_BLOCK_BYTES = 1 << 20
_MARK_HEAD_BYTES = 4 << 10
_MARK_TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Position:
    """How far a transcript was read: bytes and lines from its beginning.

    It stands behind the line break of the last line, or at the end of a last line that had none.
    """

    offset: int
    lines: int


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was read: what it says, if anything, and where the next one begins."""

    message: Message | None
    after: Position


class TranscriptReader:
    """An open transcript; a context manager. `stat` is from when it was opened, and no more is read than there was.

    Raises:
        FileNotFound: there is no such file.
        PathNotAllowed: it is a link, or no plain file.
    """

    def __init__(self, file: SourceFile | Location) -> None:
        self._stream = os.fdopen(open_file(file.root, file.parts), "rb", _BLOCK_BYTES)
        self.stat: FileStat = file_stat(os.fstat(self._stream.fileno()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def mark(self, position: Position) -> bytes:
        """A digest of the file's first and last bytes up to `position`: what it was read to has not changed since."""
        digest = hashlib.sha256(f"{position.offset} {position.lines} ".encode())
        self._stream.seek(0)
        digest.update(self._stream.read(min(_MARK_HEAD_BYTES, position.offset)))
        self._stream.seek(max(0, position.offset - _MARK_TAIL_BYTES))
        digest.update(self._stream.read(min(_MARK_TAIL_BYTES, position.offset)))
        return digest.digest()

    def resumable(self, position: Position) -> Position | None:
        """Where to read on after `position`; None where the line that ended there has been written on.

        Only a line that had no line break can be: what follows it is one, or belongs to it.
        """
        if position.offset == 0 or position.offset >= self.stat.size_bytes:
            return position
        self._stream.seek(position.offset - 1)
        around = self._stream.read(3)
        if around.startswith(b"\n"):
            return position
        for line_break in (b"\n", b"\r\n"):
            if around[1:].startswith(line_break):
                return replace(position, offset=position.offset + len(line_break))
        return None

    def lines(self, start: Position) -> Iterator[Line]:
        """Every line from `start` on."""
        self._stream.seek(start.offset)
        position = start
        while position.offset < self.stat.size_bytes:
            data, length, ended = self._next_line()
            if not length:
                return
            position = Position(position.offset + length, position.lines + 1)
            message = None if data is None else message_of(position.lines, data.decode("utf-8", "replace"))
            if not ended and message is None:
                return
            yield Line(message, position)

    def position_after(self, lines: int) -> Position:
        """Where the line after the first `lines` begins; the end of the file where it has no more."""
        self._stream.seek(0)
        offset, left = 0, lines
        while left > 0 and (block := self._stream.read(_BLOCK_BYTES)):
            here = block.count(b"\n")
            if here < left:
                offset, left = offset + len(block), left - here
                continue
            end = -1
            for _ in range(left):
                end = block.index(b"\n", end + 1)
            return Position(offset + end + 1, lines)
        return Position(offset, lines - left + self._has_open_line(offset))

    def count_lines_from(self, position: Position) -> int:
        """How many lines there are from `position` on, the last one included where no line break ends it."""
        size = self.stat.size_bytes
        if position.offset >= size:
            return 0
        return self.count_lines(position.offset, size - position.offset) + self._has_open_line(size)

    def _has_open_line(self, end: int) -> bool:
        """Whether the line that ends at `end` has no line break."""
        self._stream.seek(max(0, end - 1))
        return end > 0 and self._stream.read(1) != b"\n"

    def messages_of_tail(self, length: int) -> Iterator[Message]:
        """The messages of the lines that begin in the last `length` bytes; their line numbers are 0."""
        first = max(0, self.stat.size_bytes - length)
        self._stream.seek(max(0, first - 1))
        if first:
            first += self._next_line()[1] - 1
        for line in self.lines(Position(first, 0)):
            if line.message is not None:
                yield replace(line.message, line=0)

    def count_lines(self, offset: int, most_bytes: int, enough: float = math.inf) -> int:
        """How many line breaks there are in at most `most_bytes` bytes from `offset`; stops where they are `enough`."""
        self._stream.seek(offset)
        count, left = 0, most_bytes
        while left > 0 and count < enough and (block := self._stream.read(min(left, _BLOCK_BYTES))):
            count += block.count(b"\n")
            left -= len(block)
        return count

    def _next_line(self) -> tuple[bytes | None, int, bool]:
        """The next line, None where it is too long; its bytes; and whether a line break ends it."""
        data = self._stream.readline(MOST_LINE_BYTES + 1)
        ended = data.endswith(b"\n")
        if ended or len(data) <= MOST_LINE_BYTES:
            return data, len(data), ended
        length = len(data)
        while not ended and (data := self._stream.readline(_BLOCK_BYTES)):
            length += len(data)
            ended = data.endswith(b"\n")
        return None, length, ended
