"""The texts of the memory tool: lists of files, lines with numbers, sizes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memoryd._memory_paths import MemoryPath, printable, shown_name

MOST_LINES = 999_999
_NUMBER_WIDTH = len(str(MOST_LINES))
_CONTEXT_LINES = 2
_MOST_NAMED_LINES = 100
_KIBI = 1024
# A list contains the items of a directory and those of its directories.
_LEVELS = 2


@dataclass(slots=True)
class _Directory:
    """A directory of a list. `size` is the combined size of all files below it, in bytes."""

    size: int = 0
    directories: dict[str, "_Directory"] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)


def listing(directory: MemoryPath, files: Iterable[tuple[str, int]]) -> str:
    """Return the list of a directory. `files` are the paths of all memory files below it and their sizes in bytes."""
    top = _Directory()
    for path, size in files:
        names = printable(path.removeprefix(directory.prefix)).split("/")
        if not any(name.startswith(".") or name == "node_modules" for name in names):
            _add(top, names, size)
    shown = directory.given.rstrip("/")
    header = (
        f"Here're the files and directories up to {_LEVELS} levels deep in {shown}, excluding hidden items and "
        "node_modules:"
    )
    return "\n".join([header, f"{human_size(top.size)}\t{shown}", *_rows(top, shown, _LEVELS)])


def _add(directory: _Directory, names: Sequence[str], size: int) -> None:
    directory.size += size
    for name in names[:-1]:
        directory = directory.directories.setdefault(f"{name}/", _Directory())
        directory.size += size
    directory.files[shown_name(names[-1])] = size


def _rows(directory: _Directory, shown: str, levels: int) -> Iterator[str]:
    sizes = {name: below.size for name, below in directory.directories.items()} | directory.files
    for name in sorted(sizes):
        yield f"{human_size(sizes[name])}\t{shown}/{name}"
        if name in directory.directories and levels > 1:
            yield from _rows(directory.directories[name], f"{shown}/{name[:-1]}", levels - 1)


def human_size(size: int) -> str:
    """Return a number of bytes as `512B`, `5.5K`, `1.2M` or `3G`."""
    scaled, unit = float(size), "B"
    for larger in "KMG":
        if scaled < _KIBI:
            break
        scaled, unit = scaled / _KIBI, larger
    return f"{scaled:.1f}".removesuffix(".0") + unit


def split_lines(text: str) -> list[str]:
    """Return the lines of a text. The empty string after a line feed at the end is not a line."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def numbered(lines: Iterable[str], first: int) -> str:
    """Return lines with their numbers, of which the first is `first`."""
    return "\n".join(f"{number:{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def snippet(text: str, start: int, length: int) -> str:
    """Return the lines that contain the `length` characters from `start`, two lines before and two after, numbered."""
    first = text.count("\n", 0, start)
    last = first + text.count("\n", start, start + length)
    begin = max(0, first - _CONTEXT_LINES)
    return numbered(split_lines(text)[begin : last + _CONTEXT_LINES + 1], begin + 1)


def lines_of_occurrences(text: str, part: str) -> str:
    """Return the numbers of the lines in which an occurrence of `part` begins, separated by commas.

    At most a hundred are returned, followed by "and others" if there are more.
    """
    numbers: list[str] = []
    line, counted, found = 1, 0, text.find(part)
    while found >= 0 and len(numbers) < _MOST_NAMED_LINES:
        line += text.count("\n", counted, found)
        numbers.append(str(line))
        counted = found
        end_of_line = text.find("\n", found)
        found = text.find(part, end_of_line + 1) if end_of_line >= 0 else -1
    return ", ".join(numbers) + (" and others" if found >= 0 else "")
