"""The command as a function: finds it, runs it in its home, and makes of every ending an answer or a failure."""

import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.backend.qmd.commands import Verb
from memoryd_server.backend.qmd.failure import QmdFailure, Reason
from memoryd_server.backend.qmd.guard import Guard
from memoryd_server.backend.qmd.home import QmdHome
from memoryd_server.backend.qmd.output import Row, as_row, find_objects, parse_rows
from memoryd_server.backend.qmd.process import Ending, Finished, Invocation, Run

# What a search may print: fifty results are some 50 KB.
MOST_BYTES = 2**20
# The versions whose interface this is.
LEAST_VERSION = (2, 0, 0)
INSTALL = "install it with `npm install -g @tobilu/qmd` on Node 22 or newer, or name it in memory.qmd.command"

_VERSION = re.compile(r"\bqmd v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})\b", re.IGNORECASE)
# Only a line's first "collection" is tried: whatever follows a later one follows it as well.
_UNKNOWN_COLLECTION = re.compile(
    r"^(?>.*?collection\b).*\b(?:not found|does not exist|missing)", re.IGNORECASE | re.MULTILINE
)
_BUSY = re.compile(r"SQLITE_BUSY|database is (?:locked|busy)|already running", re.IGNORECASE)
_CONSTRAINT = re.compile(r"SQLITE_CONSTRAINT|constraint failed", re.IGNORECASE)
_PENDING = re.compile(r"(?<!\d)(\d{1,9}) documents? (?:\((\d{1,9})%\) )?need embeddings")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TELLING = re.compile(r"error|not found|disabled|failed|cannot|denied|missing|unknown|unsupported", re.IGNORECASE)
# A shell tells of a signal by a code of this and its number; these two by a command that it cannot run.
_SIGNALLED = 128
_NOT_RUNNABLE = (126, 127)
_MOST_SHOWN = 300
_WHOLE = 100


@dataclass(frozen=True, slots=True)
class Found:
    """Rows, best first, and how many documents had no vectors yet."""

    rows: tuple[Row, ...]
    pending: int = 0


class QmdClient:
    """The command of one agent. `start` only makes a run; whoever runs it can cancel it."""

    def __init__(self, command: str, home: QmdHome, guard: Guard) -> None:
        self._command = first_word(command)
        self.home = home
        self._guard = guard

    def locate(self) -> str:
        """Return the command's path. Blocks.

        Raises:
            QmdFailure: MISSING.
        """
        path = shutil.which(str(Path(self._command).expanduser()), path=self.home.environment["PATH"])
        if path is None:
            where = "is not there or cannot be run" if "/" in self._command else "is not on the PATH"
            raise QmdFailure(Reason.MISSING, f"{self._command} {where}; {INSTALL}")
        return path

    def start(self, arguments: Sequence[str], seconds: float) -> Run:
        """Return a run of the command with these arguments. Blocks while the command is looked for.

        Raises:
            QmdFailure: MISSING.
        """
        return self.run_of(self.locate(), arguments, seconds)

    def run_of(self, path: str, arguments: Sequence[str], seconds: float, most_bytes: int | None = None) -> Run:
        """Return a run of the command at `path` with these arguments."""
        command, home = (path, *arguments), self.home
        return Run(Invocation(command, home.environment, str(home.folder), seconds, most_bytes), self._guard)


def first_word(command: str) -> str:
    """The command of a setting that may hold options, and quotes around a path with blanks."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    return words[0] if words else "qmd"


def found(finished: Finished, verb: Verb) -> Found:
    """What a search found. Results that were printed whole count, whatever became of the command afterwards.

    Raises:
        QmdFailure: there is no answer, or none that can be believed.
    """
    objects = None if finished.ending in (Ending.TOO_MUCH, Ending.CANCELLED) else find_objects(finished.stdout)
    pending, share = _pending(finished.stderr)
    if not objects:
        check(finished)
        objects = parse_rows(finished.stdout, finished.stderr)
        if not objects and share == _WHOLE and verb is not Verb.SEARCH:
            raise QmdFailure(Reason.NOT_READY, f"none of qmd's {pending} documents has a vector yet")
    return Found(tuple(row for fields in objects if (row := as_row(fields)) is not None), pending)


def check(finished: Finished) -> None:
    """Returns for a command that did what it was asked.

    Raises:
        QmdFailure: it did not.
    """
    said = last_words(finished)
    match finished.ending:
        case Ending.CANCELLED:
            raise QmdFailure(Reason.CANCELLED, "the command was ended because nobody waits for it any more")
        case Ending.TIMED_OUT:
            raise QmdFailure(Reason.TIMEOUT, f"qmd gave no answer within {finished.elapsed_seconds:.1f} s{said}")
        case Ending.TOO_MUCH:
            raise QmdFailure(Reason.TOO_LARGE, f"qmd printed more than {MOST_BYTES:,} bytes and was ended{said}")
    if finished.code:
        raise _failure(finished, said)


def _failure(finished: Finished, said: str) -> QmdFailure:
    code = finished.code
    if code < 0 or code > _SIGNALLED:
        name = _signal_name(-code if code < 0 else code - _SIGNALLED)
        advice = "; a Node older than 22 does this" if name == "SIGSEGV" else ""
        return QmdFailure(Reason.SIGNAL, f"qmd was ended by {name}{advice}{said}")
    if code in _NOT_RUNNABLE:
        return QmdFailure(Reason.MISSING, f"qmd cannot be run{said}; {INSTALL}")
    if _UNKNOWN_COLLECTION.search(finished.stderr):
        return QmdFailure(Reason.UNKNOWN_COLLECTION, f"qmd does not know a collection of ours{said}")
    if _BUSY.search(finished.stderr):
        return QmdFailure(Reason.BUSY, f"qmd's index is busy{said}")
    return QmdFailure(Reason.EXIT_CODE, f"qmd ended with exit code {code}{said}")


def last_words(finished: Finished) -> str:
    """The line that tells most of what went wrong, to be added to a message; empty where nothing was said."""
    lines = [line.strip() for line in _ESCAPES.sub("", finished.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    line = (telling or lines[-1:] or [""])[0]
    return f": {line[:_MOST_SHOWN]}" if line else ""


def is_conflict(finished: Finished) -> bool:
    """Whether a writer met another one; the next try may succeed."""
    return bool(finished.code) and bool(_BUSY.search(finished.stderr) or _CONSTRAINT.search(finished.stderr))


def read_version(finished: Finished) -> str:
    """The version that the command told.

    Raises:
        QmdFailure: TOO_OLD, or what kept it from telling.
    """
    check(finished)
    numbers = _VERSION.search(finished.stdout)
    if numbers is None:
        raise QmdFailure(Reason.TOO_OLD, f"{finished.stdout.strip()[:80]!r} is no version of qmd; {INSTALL}")
    version = ".".join(numbers.groups())
    if tuple(map(int, numbers.groups())) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise QmdFailure(Reason.TOO_OLD, f"qmd {version} is older than {least}; {INSTALL}")
    return version


def _pending(stderr: str) -> tuple[int, int]:
    """Documents without vectors, and their share in percent, from qmd's warning; zeros where there is none."""
    warned = _PENDING.search(stderr)
    return (int(warned[1]), int(warned[2] or 0)) if warned else (0, 0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
