"""Reads a line range of a memory file or a transcript."""

from dataclasses import dataclass

from memoryd_server.backend.reading_transcript import read_said
from memoryd_server.chunk import split_utf8
from memoryd_server.errors import PathNotAllowed
from memoryd_server.model import Source
from memoryd_server.sources import FileTooLarge, Location, read_file
from memoryd_server.sources.corpus import Corpus

# What one reply may hold, so that it stays far below gRPC's 4 MiB.
MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class FileRange:
    """Lines of a file. `next_start_line` is 0 at the end; an empty range ends one line before it starts."""

    path: str
    text: str
    start_line: int
    end_line: int
    total_lines: int
    next_start_line: int
    truncated: bool


def read_range(corpus: Corpus, path: str, start_line: int, line_count: int, max_file_bytes: int) -> FileRange:
    """The lines from `start_line`, at most `line_count` of them and at most 256 KiB.

    Of a transcript these are what was said in each line, secrets masked; a line that holds no message is empty.

    Raises:
        PathNotAllowed: the path is outside the roots, leads through a link, or is not a memory file; or the file is
            too large, or not ours to read.
        FileNotFound: the path is allowed, and no file is there.
    """
    location = corpus.resolve(path)
    if location.source is Source.MEMORY:
        return read_location(location, start_line, line_count, max_file_bytes)
    said = read_said(location, start_line, line_count)
    return _range(location, said.lines, start_line, said.total_lines)


def read_location(location: Location, start_line: int, line_count: int, max_file_bytes: int) -> FileRange:
    """The same of a place that is known to be allowed.

    Raises:
        PathNotAllowed: it leads through a link, is too large, or is not ours to read.
        FileNotFound: no file is there.
    """
    try:
        data, _ = read_file(location, max_file_bytes)
    except FileTooLarge as error:
        raise PathNotAllowed(
            location.path, f"the file has more than {max_file_bytes} bytes (memoryd.limits.maxFileBytes)"
        ) from error
    except PermissionError as error:
        raise PathNotAllowed(location.path, "the daemon's user may not read the file") from error
    lines = data.decode("utf-8", "replace").split("\n") if data else []
    return _range(location, lines[start_line - 1 : start_line - 1 + line_count], start_line, len(lines))


def _range(location: Location, wanted: list[str], start_line: int, total_lines: int) -> FileRange:
    shown, truncated = _within_bytes(wanted)
    end_line = start_line + len(shown) - 1
    following = end_line + 1 if shown and end_line < total_lines else 0
    return FileRange(location.path, "\n".join(shown), start_line, end_line, total_lines, following, truncated)


def _within_bytes(lines: list[str]) -> tuple[list[str], bool]:
    """The lines that fit, at least one; and whether that one had to be cut."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > MOST_BYTES + 1:
            if count == 0:
                return [split_utf8(line, MOST_BYTES)[0]], True
            return lines[:count], False
    return lines, False
