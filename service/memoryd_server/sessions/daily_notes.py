"""The daily notes that a session loads at its start: `memory/YYYY-MM-DD.md` and `memory/YYYY-MM-DD-<slug>.md`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from heapq import nlargest

from memoryd_server.model import SourceFile
from memoryd_server.sources import MEMORY_FOLDER, SUFFIX, Corpus

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


def note_paths(corpus: Corpus, today: date, days: int) -> tuple[str, ...]:
    """Return the paths of the notes of the last days, oldest first: of each day its log, then its notes with a slug.

    Logs are included even if they do not exist. Notes that `.memoryignore` excludes, links and other special files are
    not. Blocks: lists the folder `memory/`.
    """
    logs = log_paths(today, days)
    dates = {log.removeprefix(f"{MEMORY_FOLDER}/").removesuffix(SUFFIX) for log in logs}
    slugged = corpus.notes(lambda name: _is_slugged(name, dates))
    return tuple(path for log in logs for path in (log, *_last_changed(slugged, log.removesuffix(SUFFIX))))


def _last_changed(notes: Iterable[SourceFile], start: str) -> list[str]:
    """Return the paths of the notes of one day that were changed last, in the order of their changes."""
    of_day = [(note.stat.mtime_ns, note.path) for note in notes if note.path.startswith(start)]
    return [path for _, path in sorted(nlargest(MOST_SLUGGED, of_day))]


def _is_slugged(name: str, dates: set[str]) -> bool:
    return name[:_DAY_LENGTH] in dates and name[_DAY_LENGTH : _DAY_LENGTH + 1] == "-" and name.endswith(SUFFIX)
