"""Zstandard: a bounded frame, and a compressed file as a stream. Input is foreign, so output and memory are bounded."""

import io
import sys
from collections.abc import Mapping
from typing import IO, Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A window of 8 MiB is the largest of the compression levels 1 to 19.
_OPTIONS: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: 23}

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES = 128 << 10


class DamagedFrame(ValueError):
    """The bytes are not a complete frame of the expected size."""


class DamagedArchive(OSError):
    """An archive is damaged or exceeds a limit. It fails again unless it changes."""


def decompress_frame(frame: bytes, size: int) -> bytes:
    """Return the contents of a frame that must have exactly `size` bytes. Never makes more than `size` + 1 bytes.

    Raises:
        DamagedFrame: the frame is damaged or incomplete, needs a dictionary, or has another size.
    """
    decompressor = zstd.ZstdDecompressor(options=_OPTIONS)
    try:
        data = decompressor.decompress(frame, max_length=size + 1)
    except zstd.ZstdError as error:
        raise DamagedFrame(str(error)) from error
    if len(data) != size or not decompressor.eof or decompressor.unused_data:
        raise DamagedFrame(f"the frame does not have exactly {size} bytes")
    return data


class BoundedLines:
    """The lines of a stream, in order; at most `max_bytes` bytes in total, and `max_line_bytes` per line."""

    def __init__(self, stream: IO[bytes] | io.BufferedIOBase, *, max_bytes: int, max_line_bytes: int) -> None:
        self._stream = stream
        self._left = max_bytes
        self._max_line_bytes = max_line_bytes

    def __iter__(self) -> "BoundedLines":
        return self

    def __next__(self) -> bytes | None:
        """Return the next line; None in place of a line that is too long.

        Raises:
            DamagedArchive: the stream is damaged or too long.
        """
        data = self._read(self._max_line_bytes + 1)
        if not data:
            raise StopIteration
        if len(data) <= self._max_line_bytes or data.endswith(b"\n"):
            return data
        while data and not data.endswith(b"\n"):
            data = self._read(1 << 20)
        return None

    def _read(self, most: int) -> bytes:
        data = self._stream.readline(most)
        self._left -= len(data)
        if self._left < 0:
            raise DamagedArchive("the archive has or expands to more bytes than are read")
        return data


class CompressedLines(BoundedLines):
    """The lines of a stream that is exactly one frame; see `BoundedLines`.

    OpenClaw writes one frame. Several frames, or frames that are skipped, could take time without yielding a line.
    """

    def __init__(self, stream: IO[bytes], *, max_bytes: int, max_line_bytes: int) -> None:
        frame = io.BufferedReader(_Frame(stream, max_bytes), _BLOCK_BYTES)
        super().__init__(frame, max_bytes=max_bytes, max_line_bytes=max_line_bytes)


class _Frame(io.RawIOBase):
    """The contents of a stream that is one frame of at most `max_bytes` compressed bytes. Does not own the stream."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self._stream = stream
        self._left = max_bytes
        self._decompressor = zstd.ZstdDecompressor(options=_OPTIONS)
        self._is_begun = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read contents into `buffer`; return their number, 0 at the end.

        Raises:
            DamagedArchive: the stream is not one complete frame, or is too long.
        """
        try:
            data = self._read(len(buffer))
        except zstd.ZstdError as error:
            raise DamagedArchive(f"the archive is damaged: {error}") from error
        buffer[: len(data)] = data
        return len(data)

    def _read(self, most: int) -> bytes:
        while not self._decompressor.eof:
            block = self._next_block() if self._decompressor.needs_input else b""
            data = self._decompressor.decompress(block, max_length=most)
            if data:
                return data
        if self._decompressor.unused_data or self._stream.read(1):
            raise DamagedArchive("the archive has more than one Zstandard frame")
        return b""

    def _next_block(self) -> bytes:
        block = self._stream.read(_BLOCK_BYTES)
        if not self._is_begun and not block.startswith(_MAGIC):
            raise DamagedArchive("the archive does not begin with a Zstandard frame")
        if not block:
            raise DamagedArchive("the archive ends within its Zstandard frame")
        self._is_begun = True
        self._left -= len(block)
        if self._left < 0:
            raise DamagedArchive("the archive has more bytes than are read")
        return block
