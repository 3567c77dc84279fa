"""Session transcripts: listing, resumable reading, and the rule for when a transcript is due for indexing.

The transcript of a session is `<session>.jsonl`. When the session is reset or deleted, the file is renamed to
`<session>.jsonl.reset.<time>` or `<session>.jsonl.deleted.<time>`. Transcripts only grow, so a reader can resume at the
start of any line.

A last line without a line break counts if it contains a complete message; otherwise it may be unfinished and is left
for the next read. A line longer than 16 MiB is skipped without being held in memory.
"""

import hashlib
import io
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.model import FileStat, Source, SourceFile
from memoryd_server.sources.files import file_stat, open_directory, open_file
from memoryd_server.sources.roots import Location
from memoryd_server.sources.transcript_text import Message, TranscriptParser, turn_state

SESSIONS_FOLDER = "sessions"
"""The first part of a transcript's display path."""

_SUFFIX = re.compile(r"\.jsonl(?:\.(?:reset|deleted)\..|\Z)", re.DOTALL)
_EXCLUDED_SUFFIXES = (".bak", ".md", ".tmp", ".lock", ".zst")


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript in `folder`."""

    folder: Path
    file_name: str
    stat: FileStat

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / self.file_name

    @property
    def session_id(self) -> str:
        """The session's id, which rotation of the file does not change."""
        return session_id(self.file_name)

    @property
    def rotated(self) -> bool:
        """Whether the session was reset or deleted, so that this file no longer grows."""
        return is_rotated(self.file_name)

    @property
    def name(self) -> str:
        """A name without `.jsonl` that is unique within the folder."""
        return self.file_name.replace(".jsonl", "", 1)

    @property
    def size_bytes(self) -> int:
        """The size in bytes at the time of the listing."""
        return self.stat.size_bytes

    @property
    def mtime_ns(self) -> int:
        """The time of the last write at the time of the listing, in Unix nanoseconds."""
        return self.stat.mtime_ns

    @property
    def source_file(self) -> SourceFile:
        """The transcript as a `SourceFile`."""
        path = f"{SESSIONS_FOLDER}/{self.file_name}"
        return SourceFile(path, Source.SESSIONS, str(self.folder), (self.file_name,), self.stat)


def is_transcript(file_name: str) -> bool:
    """Return whether a file name, without folders, is a transcript's."""
    return _suffix(file_name) is not None and not file_name.endswith(_EXCLUDED_SUFFIXES) and file_name.isprintable()


def is_rotated(file_name: str) -> bool:
    """Return whether a transcript's name shows that its session was reset or deleted."""
    return not file_name.endswith(".jsonl")


def session_id(file_name: str) -> str:
    """Return the session id in the name of a transcript, rotated or not. Return any other name unchanged."""
    suffix = _suffix(file_name)
    return file_name if suffix is None else file_name[: suffix.start()]


def _suffix(file_name: str) -> re.Match[str] | None:
    """Return the part of a transcript's name after the session id; None for any other name."""
    return None if "/" in file_name else _SUFFIX.search(file_name, 1)


def list_transcripts(folder: Path, accepts: Callable[[str], bool] = is_transcript) -> list[TranscriptFile]:
    """Return the files in a folder whose names are accepted, by name, or none if it does not exist.

    Skips links and folders.

    Raises:
        OSError: the folder exists but cannot be read.
    """
    try:
        descriptor = open_directory(str(folder), ())
    except (FileNotFound, PathNotAllowed):
        return []
    try:
        with os.scandir(descriptor) as entries:
            found = [file for entry in entries for file in _transcript(folder, entry, accepts)]
    finally:
        os.close(descriptor)
    return sorted(found, key=lambda file: file.file_name)


def _transcript(folder: Path, entry: os.DirEntry[str], accepts: Callable[[str], bool]) -> Iterator[TranscriptFile]:
    if not accepts(entry.name):
        return
    # Skip a file that is removed during the listing.
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            yield TranscriptFile(folder, entry.name, file_stat(status))


def read_transcript(file: TranscriptFile) -> str:
    """Return the messages of a transcript, one line per message. Holds all of them in memory.

    Raises:
        FileNotFound: the file is gone.
        PathNotAllowed: it was replaced by a link or a special file.
        OSError: it cannot be read.
    """
    with TranscriptReader.open(file.source_file) as reader:
        return "\n".join(line.message.labelled for line in reader.lines(START) if line.message)


MOST_LINE_BYTES = 16 << 20

_BLOCK_BYTES = 1 << 20
_BACKWARD_BYTES = 64 << 10
_USER = b'"user"'
_MARK_HEAD_BYTES = 4 << 10
_MARK_TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """A position in a transcript: bytes and lines from its beginning.

    It is after the line break of the last line read, or at the end of a last line without a line break.
    """

    offset: int
    lines: int


START = ReadPosition(0, 0)


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A line that was read: its message, if any, and the position after it."""

    message: Message | None
    after: ReadPosition


class TranscriptReader:
    """An open transcript; a context manager. `stat` is from the time of opening, and limits how much is read.

    `raw` is the unbuffered stream of the transcript's bytes, which can seek; the reader closes it. `skipped` is the
    number of lines that `lines` has skipped because they are too long.
    """

    def __init__(self, raw: io.RawIOBase, stat: FileStat, *, max_line_bytes: int = MOST_LINE_BYTES) -> None:
        self.stat = stat
        self.skipped = 0
        self._max_line_bytes = max_line_bytes
        self._raw = raw
        self._stream = io.BufferedReader(raw, _BLOCK_BYTES)
        self._hash, self._hashed_bytes = hashlib.sha256(), 0

    @classmethod
    def open(cls, file: SourceFile | Location, *, max_line_bytes: int = MOST_LINE_BYTES) -> Self:
        """Open the transcript in a file.

        Raises:
            FileNotFound: the file does not exist.
            PathNotAllowed: it is a link or a special file.
        """
        raw = os.fdopen(open_file(file.root, file.parts), "rb", 0)
        return cls(raw, file_stat(os.fstat(raw.fileno())), max_line_bytes=max_line_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def prefix_digest(self, position: ReadPosition) -> bytes:
        """Return a digest of every byte before `position`. If it is equal, that part has not changed.

        Bytes that `lines` has yielded are not read again: the digest is that of the text that was used, also if the
        file is changed during the reading. 100 MB that were not yielded take about 0.1 s.
        """
        self._hash_up_to(position.offset)
        digest = self._hash.copy()
        digest.update(f" {position.offset} {position.lines}".encode())
        return digest.digest()

    def _hash_line(self, data: bytes | None, end: int) -> None:
        """Hash the line up to `end`, of which nothing is used if it is too long for `data`."""
        if data is None:
            self._hash_up_to(end)
        else:
            self._hash.update(data)
            self._hashed_bytes = end

    def _hash_up_to(self, end: int) -> None:
        if end < self._hashed_bytes:
            self._hash, self._hashed_bytes = hashlib.sha256(), 0
        while self._hashed_bytes < end:
            at = self._hashed_bytes
            block = self._read_at(at, min(_BLOCK_BYTES, end - at))
            if not block:
                return
            self._hash.update(block)
            self._hashed_bytes += len(block)

    def _read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on; fewer only at the end. The position of `lines` stays."""
        before = self._raw.tell()
        self._raw.seek(offset)
        try:
            pieces: list[bytes] = []
            while size > 0 and (piece := self._raw.read(size)):
                pieces.append(piece)
                size -= len(piece)
        finally:
            # The buffer of the stream assumes that the position behind it has not changed.
            self._raw.seek(before)
        return b"".join(pieces)

    def ends_digest(self, position: ReadPosition) -> bytes:
        """Return the digest that earlier versions stored: of the first and last bytes before `position`."""
        digest = hashlib.sha256(f"{position.offset} {position.lines} ".encode())
        self._stream.seek(0)
        digest.update(self._stream.read(min(_MARK_HEAD_BYTES, position.offset)))
        self._stream.seek(max(0, position.offset - _MARK_TAIL_BYTES))
        digest.update(self._stream.read(min(_MARK_TAIL_BYTES, position.offset)))
        return digest.digest()

    def resume_position(self, position: ReadPosition) -> ReadPosition | None:
        """Return the position at which to continue after `position`; None if the line that ended there has grown.

        Only a line without a line break can grow: the next bytes are its line break, or belong to it.
        """
        if position.offset == 0 or position.offset >= self.stat.size_bytes:
            return position
        self._stream.seek(position.offset - 1)
        around = self._stream.read(3)
        if around.startswith(b"\n"):
            return position
        for line_break in (b"\n", b"\r\n"):
            if around[1:].startswith(line_break):
                after = replace(position, offset=position.offset + len(line_break))
                if self._hashed_bytes == position.offset:
                    self._hash_up_to(after.offset)
                return after
        return None

    def lines(self, start: ReadPosition) -> Iterator[TranscriptLine]:
        """Yield every line from `start` on.

        If `start` is in the middle, the lines before it are read backwards up to the last message of a user, to know
        whether a turn of the gateway has to be left out.
        """
        parser = TranscriptParser()
        parser.in_left_out_turn = self._is_in_left_out_turn(start.offset)
        self._stream.seek(start.offset)
        if start.offset == 0:
            self._hash, self._hashed_bytes = hashlib.sha256(), 0
        position = start
        while position.offset < self.stat.size_bytes:
            at = position.offset
            data, length, ended = self._next_line()
            if not length:
                return
            position = ReadPosition(at + length, position.lines + 1)
            message = None if data is None else parser.parse(position.lines, data.decode("utf-8", "replace"))
            if not ended and message is None:
                return
            if self._hashed_bytes == at:
                self._hash_line(data, position.offset)
            self.skipped += data is None
            yield TranscriptLine(message, position)

    def _is_in_left_out_turn(self, offset: int) -> bool:
        for line in self._lines_before(offset):
            if _USER in line and (state := turn_state(line.decode("utf-8", "replace"))) is not None:
                return state
        return False

    def _lines_before(self, offset: int) -> Iterator[bytes]:
        """Yield the lines before `offset`, the start of a line or the end of one, from the last to the first.

        Lines that are too long are yielded empty, as `lines` skips them.
        """
        pieces: list[bytes] = []
        length = 0
        while offset > 0:
            size = min(_BACKWARD_BYTES, offset)
            offset -= size
            first, *others = self._read_at(offset, size).split(b"\n")
            if others:
                *whole, last = others
                yield self._joined([*pieces, last], length + len(last))
                yield from (self._joined([line], len(line)) for line in reversed(whole))
                pieces, length = [], 0
            length += len(first)
            pieces = [*pieces, first] if length <= self._max_line_bytes else []
        yield self._joined(pieces, length)

    def _joined(self, pieces: list[bytes], length: int) -> bytes:
        return b"".join(reversed(pieces)) if length <= self._max_line_bytes else b""

    def position_after(self, lines: int) -> ReadPosition:
        """Return the position after the first `lines` lines, or the end of a file with fewer lines."""
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
            return ReadPosition(offset + end + 1, lines)
        return ReadPosition(offset, lines - left + self._has_open_line(offset))

    def count_lines_from(self, position: ReadPosition) -> int:
        """Return the number of lines from `position` on, including a last line without a line break."""
        size = self.stat.size_bytes
        if position.offset >= size:
            return 0
        return self.count_lines(position.offset, size - position.offset) + self._has_open_line(size)

    def _has_open_line(self, end: int) -> bool:
        """Return whether the line that ends at `end` has no line break."""
        self._stream.seek(max(0, end - 1))
        return end > 0 and self._stream.read(1) != b"\n"

    def tail_messages(self, length: int) -> Iterator[Message]:
        """Yield the messages of the lines that begin in the last `length` bytes. Their line numbers are 0."""
        first = max(0, self.stat.size_bytes - length)
        self._stream.seek(max(0, first - 1))
        if first:
            first += self._next_line()[1] - 1
        for line in self.lines(ReadPosition(first, 0)):
            if line.message is not None:
                yield replace(line.message, line=0)

    def count_lines(self, offset: int, most_bytes: int, enough: float = math.inf) -> int:
        """Return the number of line breaks in up to `most_bytes` bytes from `offset`. Stop at about `enough`."""
        self._stream.seek(offset)
        count, left = 0, most_bytes
        while left > 0 and count < enough and (block := self._stream.read(min(left, _BLOCK_BYTES))):
            count += block.count(b"\n")
            left -= len(block)
        return count

    def _next_line(self) -> tuple[bytes | None, int, bool]:
        """Return the next line, or None if it is too long; its length in bytes; and whether a line break ends it."""
        data = self._stream.readline(self._max_line_bytes + 1)
        ended = data.endswith(b"\n")
        if ended or len(data) <= self._max_line_bytes:
            return data, len(data), ended
        length = len(data)
        while not ended and (data := self._stream.readline(_BLOCK_BYTES)):
            length += len(data)
            ended = data.endswith(b"\n")
        return None, length, ended
