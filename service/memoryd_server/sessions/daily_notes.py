"""The daily notes that a session loads at its start: `memory/YYYY-MM-DD.md` and `memory/YYYY-MM-DD-<slug>.md`."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from heapq import nlargest

from memoryd_server.errors import MemorydError, PathNotAllowed
from memoryd_server.sources import (
    MEMORY_FOLDER,
    SUFFIX,
    IgnoreFileUnusable,
    Roots,
    open_directory,
    read_rules,
    resolve_path,
)

MOST_SLUGGED = 4
"""The most notes with a slug that are loaded of one day: the ones that were changed last. As in OpenClaw."""

_DAY_LENGTH = len("YYYY-MM-DD")


@dataclass(frozen=True, slots=True)
class StartupContext:
    """Which daily notes a session loads, and how much of them. A limit of None is no limit in addition to the others.

    `max_file_bytes` is the size of the largest file that is read. `max_file_chars` and `max_total_chars` limit the text
    of one note and of all notes, in code points.
    """

    enabled: bool = True
    daily_memory_days: int = 2
    max_file_bytes: int | None = None
    max_file_chars: int | None = None
    max_total_chars: int | None = None


def log_paths(today: date, days: int = 2) -> tuple[str, ...]:
    """Return the paths of the logs of the last days, oldest first. Days before the first possible date are omitted."""
    earlier = min(days, today.toordinal()) - 1
    return tuple(
        f"{MEMORY_FOLDER}/{(today - timedelta(days=ago)).isoformat()}{SUFFIX}" for ago in range(earlier, -1, -1)
    )


def note_paths(roots: Roots, today: date, days: int) -> tuple[str, ...]:
    """Return the paths of the notes of the last days, oldest first: of each day its log, then its notes with a slug.

    Logs are included even if they do not exist. Notes that `.memoryignore` excludes, links and other special files are
    not. Blocks: reads the folder `memory/`.
    """
    logs = log_paths(today, days)
    slugged = _slugged_notes(roots, {log.removeprefix(f"{MEMORY_FOLDER}/").removesuffix(SUFFIX) for log in logs})
    return tuple(path for log in logs for path in (log, *_last_changed(slugged, log.removesuffix(SUFFIX))))


@dataclass(frozen=True, slots=True, order=True)
class _Note:
    mtime_ns: int
    path: str


def _last_changed(notes: Iterable[_Note], start: str) -> list[str]:
    """Return the paths of the notes of one day that were changed last, in the order of their changes."""
    of_day = [note for note in notes if note.path.startswith(start)]
    return [note.path for note in sorted(nlargest(MOST_SLUGGED, of_day))]


def _slugged_notes(roots: Roots, days: set[str]) -> list[_Note]:
    try:
        rules = read_rules(roots.base(), ())
        folder = open_directory(roots.base(), (MEMORY_FOLDER,))
    except (IgnoreFileUnusable, MemorydError, OSError):
        return []
    try:
        with os.scandir(folder) as entries:
            dated = [entry for entry in entries if _is_slugged(entry.name, days)]
            kept = (entry for entry in dated if not rules.ignores_file((MEMORY_FOLDER, entry.name)))
            return [note for entry in kept for note in _as_note(entry, roots)]
    except OSError:
        return []
    finally:
        os.close(folder)


def _is_slugged(name: str, days: set[str]) -> bool:
    return name[:_DAY_LENGTH] in days and name[_DAY_LENGTH : _DAY_LENGTH + 1] == "-" and name.endswith(SUFFIX)


def _as_note(entry: "os.DirEntry[str]", roots: Roots) -> Iterator[_Note]:
    path = f"{MEMORY_FOLDER}/{entry.name}"
    try:
        resolve_path(roots, path)
        if entry.is_file(follow_symlinks=False):
            yield _Note(entry.stat(follow_symlinks=False).st_mtime_ns, path)
    except (PathNotAllowed, OSError):
        # The name is not valid text, or the file has disappeared.
        return
