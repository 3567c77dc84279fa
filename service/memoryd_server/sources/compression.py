"""Zstandard: a bounded frame, and a compressed file as a stream. Input is foreign, so output and memory are bounded."""

import sys
from collections.abc import Mapping
from typing import IO

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A window of 8 MiB is the largest of the compression levels 1 to 19.
_OPTIONS: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: 23}


class DamagedFrame(ValueError):
    """The bytes are not a complete frame of the expected size."""


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


class CompressedLines:
    """The lines of a compressed stream, in order; at most `max_bytes` bytes in total, and `max_line_bytes` per line."""

    def __init__(self, stream: IO[bytes], *, max_bytes: int, max_line_bytes: int) -> None:
        self._stream = zstd.ZstdFile(stream, options=_OPTIONS)
        self._left = max_bytes
        self._max_line_bytes = max_line_bytes

    def __iter__(self) -> "CompressedLines":
        return self

    def __next__(self) -> bytes | None:
        """Return the next line; None in place of a line that is too long.

        Raises:
            OSError: the stream is damaged or too long.
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
        try:
            data: bytes = self._stream.readline(most)
        except (zstd.ZstdError, EOFError) as error:
            raise OSError(f"the compressed file is damaged: {error}") from error
        self._left -= len(data)
        if self._left < 0:
            raise OSError("the compressed file expands to more bytes than are read")
        return data
