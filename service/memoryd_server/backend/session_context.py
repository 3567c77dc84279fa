"""What a session loads at its start: the long-term memory, where it is private, and the logs of two days."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.search.snippet import cut
from memoryd_server.sources import FileTooLarge, Roots, read_file, resolve
from memoryd_server.sources.roots import LONG_TERM_NAMES, MEMORY_FOLDER

MOST_CHARS = 65_536
"""What one file may add to a context, in code points, whatever the budget: so that a reply stays far below 4 MiB."""


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file of a session's context. The lines are 0 where there is no text; `problem` says why one was not read."""

    path: str
    text: str = ""
    start_line: int = 0
    end_line: int = 0
    truncated: bool = False
    exists: bool = True
    problem: str = ""


def load_context(
    roots: Roots, *, main_session: bool, today: date, max_total_chars: int | None, max_file_bytes: int
) -> tuple[ContextFile, ...]:
    """The files in the order in which to load them, their texts within the budget in code points.

    Of a text that does not fit, the long-term memory keeps its first lines and a log its last ones. Blocks.
    """
    long_term = [_long_term(roots, max_file_bytes)] if main_session else []
    logs = [_load(roots, path, max_file_bytes) for path in log_paths(today)]
    files = [*long_term, *logs]
    shares = _shares([min(len(file.text), MOST_CHARS) for file in files], max_total_chars)
    kept = [_within(file, share, keep_end=file in logs) for file, share in zip(files, shares, strict=True)]
    return tuple(kept)


def log_paths(today: date) -> tuple[str, ...]:
    """The logs of yesterday and today, as far as there is such a day."""
    days = ([today - timedelta(days=1)] if today > date.min else []) + [today]
    return tuple(f"{MEMORY_FOLDER}/{day.isoformat()}.md" for day in days)


def _long_term(roots: Roots, max_file_bytes: int) -> ContextFile:
    """The long-term memory under the first of its names that is there."""
    found = (_load(roots, name, max_file_bytes) for name in LONG_TERM_NAMES)
    return next((file for file in found if file.exists), ContextFile(LONG_TERM_NAMES[0], exists=False))


def _load(roots: Roots, path: str, max_file_bytes: int) -> ContextFile:
    try:
        data, _ = read_file(resolve(roots, path), max_file_bytes)
    except FileNotFound:
        return ContextFile(path, exists=False)
    except FileTooLarge:
        why = f"it has more than {max_file_bytes} bytes (memoryd.limits.maxFileBytes)"
        return ContextFile(path, truncated=True, problem=why)
    except PathNotAllowed as error:
        return ContextFile(path, truncated=True, problem=error.message)
    except OSError as error:
        return ContextFile(path, truncated=True, problem=error.strerror or str(error))
    text = data.decode("utf-8", "replace")
    return ContextFile(path, text, 1, text.count("\n") + 1) if text else ContextFile(path)


def _shares(sizes: Sequence[int], budget: int | None) -> list[int]:
    """How much each may take: an equal share, and of what others leave over, the smallest first, as much again."""
    if budget is None:
        return list(sizes)
    shares = [0] * len(sizes)
    for waiting, at in zip(range(len(sizes), 0, -1), sorted(range(len(sizes)), key=sizes.__getitem__), strict=True):
        shares[at] = min(sizes[at], budget // waiting)
        budget -= shares[at]
    return shares


def _within(file: ContextFile, room: int, *, keep_end: bool) -> ContextFile:
    """The file's text cut to `room`: whole lines from one of its ends, or the beginning of one where none fits."""
    if len(file.text) <= room:
        return file
    lines = file.text.split("\n")
    kept = _fitting(reversed(lines) if keep_end else lines, room)
    first = len(lines) - len(kept) if keep_end else 0
    if any(kept):
        text = "\n".join(lines[first : first + len(kept)])
        return replace(file, text=text, start_line=first + 1, end_line=first + len(kept), truncated=True)
    # The line that is too long stands behind the empty ones.
    at = first - 1 if keep_end else len(kept)
    number = at + 1 if room else 0
    return replace(file, text=cut(lines[at], room), start_line=number, end_line=number, truncated=True)


def _fitting(lines: Iterable[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + bool(kept)
        if room < 0:
            break
        kept.append(line)
    return kept
