"""Reads a line range of a memory file."""

from dataclasses import dataclass

from memoryd_server.chunk import split_utf8
from memoryd_server.errors import PathNotAllowed
from memoryd_server.sources import FileTooLarge, Location, Roots, read_file, resolve

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


def read_range(roots: Roots, path: str, start_line: int, line_count: int, max_file_bytes: int) -> FileRange:
    """The lines from `start_line`, at most `line_count` of them and at most 256 KiB.

    Raises:
        PathNotAllowed: the path is outside the roots, leads through a link, or is not a memory file; or the file is
            too large, or not ours to read.
        FileNotFound: the path is allowed, and no file is there.
    """
    return read_location(resolve(roots, path), start_line, line_count, max_file_bytes)


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
    wanted = lines[start_line - 1 : start_line - 1 + line_count]
    shown, truncated = _within_bytes(wanted)
    end_line = start_line + len(shown) - 1
    following = end_line + 1 if shown and end_line < len(lines) else 0
    return FileRange(location.path, "\n".join(shown), start_line, end_line, len(lines), following, truncated)


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
