"""Arguments, runs, output, failures.

The command as a function: finds it, runs it in its home, and makes of every ending an answer or a failure.

What is asked of the command, as arguments. Pure.

Every call names its index and its collections: without the first, a `.qmd` folder above the working directory would
replace ours, and without the second an empty configuration would be no filter at all.

What qmd printed, as rows. Pure.

A search prints one JSON array on stdout. Around it there may be what libraries log, brackets included; where nothing
was found some versions say so in words instead.

Why qmd did not answer: one reason a cause, so that whoever reads it knows what to do.
"""

import json
import math
import re
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from memoryd_server.foreign_text import valid_tree
from memoryd_server.qmd.home import QmdHome
from memoryd_server.qmd.process import Command, CommandResult, CommandRun, ExitKind, ProcessGuard

# In these, `index` is the name of the default index, whose files are where the environment says.
_INDEX = ("--index", "index")
# At the start of a question qmd would take these for its query language.
_TYPED = re.compile(r"^(lex|vec|hyde|intent|expand):", re.IGNORECASE)
_BREAKS = re.compile(r"[\0\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class QmdSearchMode(StrEnum):
    """How qmd searches: by words, by meaning, or by both with its models' help."""

    SEARCH = "search"
    VSEARCH = "vsearch"
    QUERY = "query"


UPDATE = (*_INDEX, "update")
EMBED = (*_INDEX, "embed")
CLEANUP = (*_INDEX, "cleanup")
STATUS = (*_INDEX, "status")
VERSION = ("--version",)


def search(verb: QmdSearchMode, question: str, collections: Sequence[str], limit: int) -> tuple[str, ...]:
    """The arguments of a search. The question is one argument after `--`, so that nothing in it is an option."""
    named = [part for name in collections for part in ("-c", name)]
    return (*_INDEX, verb.value, "--json", "-n", str(limit), *named, "--", one_line(verb, question))


def one_line(verb: QmdSearchMode, question: str) -> str:
    """The question as qmd takes it: one line, and no query language of its own at the start."""
    line = _BREAKS.sub(" ", question).strip()
    return _TYPED.sub(r"\1 :", line) if verb is QmdSearchMode.QUERY else line


# Brackets that are looked at, besides those that begin a line: noise must not cost more than the answer.
_MOST_BRACKETS = 64
# Searched in the part of a line after its last colon: a logger's name may precede the words.
_NOTHING = re.compile(r"(?:^|\])\s*no results found\b", re.IGNORECASE)
_HEADER = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n?")
_LINE_START = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class QmdRow:
    """One hit as qmd tells it: `uri` is `qmd://<collection>/<path>`, `snippet` the text below the header.

    `start_line` and `line_count` are the snippet's range, from its header; 0 where it has none. `line` is the best
    line, 0 where it is not told.
    """

    uri: str
    score: float
    snippet: str
    start_line: int
    line_count: int
    line: int


def parse_rows(stdout: str, stderr: str) -> list[dict[str, Any]]:
    """The array's objects, as they stand.

    Raises:
        QmdFailure: NOT_JSON, there is neither an array nor the words for an empty one.
    """
    objects = find_objects(stdout)
    if objects is not None:
        return objects
    said = stdout if stdout.strip() else stderr
    if any(_NOTHING.search(line.strip().rpartition(":")[2]) for line in said.splitlines()):
        return []
    shown = stdout.strip()[:120] or "nothing"
    raise QmdFailure(QmdFailureReason.NOT_JSON, f"qmd printed no array of results, but {shown!r}")


def find_objects(stdout: str) -> list[dict[str, Any]] | None:
    """The first array of objects in the text, an empty one only where there is no other; None when there is none."""
    decoder = json.JSONDecoder()
    empty = False
    for at in _brackets(stdout):
        try:
            value, _ = decoder.raw_decode(stdout, at)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            if value:
                return [valid_tree(item) for item in value]
            empty = True
    return [] if empty else None


def _brackets(text: str) -> Iterator[int]:
    """Where an array may begin: first the starts of lines, as qmd prints it, then anywhere."""
    for count, found in enumerate(_LINE_START.finditer(text)):
        if count == _MOST_BRACKETS:
            break
        yield found.end() - 1
    at = text.find("[")
    for _ in range(_MOST_BRACKETS):
        if at < 0:
            return
        yield at
        at = text.find("[", at + 1)


def as_row(fields: dict[str, Any]) -> QmdRow | None:
    """A row of an object; None for one that names no file."""
    uri, snippet = fields.get("file"), fields.get("snippet")
    if not isinstance(uri, str) or not uri:
        return None
    text = snippet if isinstance(snippet, str) else ""
    header = _HEADER.match(text)
    start, count = (int(header[1]), int(header[2])) if header else (0, 0)
    return QmdRow(
        uri, _share(fields.get("score")), text[header.end() :] if header else text, start, count, _line(fields)
    )


def _share(value: object) -> float:
    """A score as the wire takes it; anything but a number is 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    if isinstance(value, float) and not math.isfinite(value):
        return 0.0
    # Bounded first: an integer may be too large for a float.
    return float(min(1, max(0, value)))


def _line(fields: dict[str, Any]) -> int:
    line = fields.get("line")
    return line if isinstance(line, int) and not isinstance(line, bool) and line > 0 else 0


class QmdFailureReason(StrEnum):
    """The cause. What stands behind it is told in the failure's message."""

    MISSING = "the command is missing"
    TOO_OLD = "the command is too old"
    SIGNAL = "the command was ended by a signal"
    EXIT_CODE = "the command failed"
    TIMEOUT = "the command took too long"
    NOT_JSON = "the answer is not what qmd prints"
    TOO_LARGE = "the answer is too large"
    UNKNOWN_COLLECTION = "qmd does not know a collection"
    BUSY = "qmd is busy"
    NOT_READY = "qmd has nothing to search yet"
    NO_TIME = "the caller's time was too short"
    CANCELLED = "the call was cancelled"


# These say nothing against the next call.
PASSING = frozenset(
    {QmdFailureReason.BUSY, QmdFailureReason.NOT_READY, QmdFailureReason.NO_TIME, QmdFailureReason.CANCELLED}
)


class QmdFailure(Exception):
    """qmd did not do what was asked. The message says what happened, and what to do where something can be done."""

    def __init__(self, reason: QmdFailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


# What a search may print: fifty results are some 50 KB.
MOST_BYTES = 2**20
# The versions whose interface this is.
LEAST_VERSION = (2, 0, 0)

INSTALL_QMD = "install it with `npm install -g @tobilu/qmd` on Node 22 or newer, or name it in memory.qmd.command"

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
class QmdResults:
    """Rows, best first, and how many documents had no vectors yet."""

    rows: tuple[QmdRow, ...]
    pending: int = 0


class QmdClient:
    """The command of one agent. `start` only makes a run; whoever runs it can cancel it."""

    def __init__(self, command: str, home: QmdHome, guard: ProcessGuard) -> None:
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
            raise QmdFailure(QmdFailureReason.MISSING, f"{self._command} {where}; {INSTALL_QMD}")
        return path

    def start(self, arguments: Sequence[str], seconds: float) -> CommandRun:
        """Return a run of the command with these arguments. Blocks while the command is looked for.

        Raises:
            QmdFailure: MISSING.
        """
        return self.run_of(self.locate(), arguments, seconds)

    def run_of(self, path: str, arguments: Sequence[str], seconds: float, most_bytes: int | None = None) -> CommandRun:
        """Return a run of the command at `path` with these arguments."""
        command, home = (path, *arguments), self.home
        return CommandRun(Command(command, home.environment, str(home.folder), seconds, most_bytes), self._guard)


def first_word(command: str) -> str:
    """The command of a setting that may hold options, and quotes around a path with blanks."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    return words[0] if words else "qmd"


def found(finished: CommandResult, verb: QmdSearchMode) -> QmdResults:
    """What a search found. Results that were printed whole count, whatever became of the command afterwards.

    Raises:
        QmdFailure: there is no answer, or none that can be believed.
    """
    objects = None if finished.ending in (ExitKind.TOO_MUCH, ExitKind.CANCELLED) else find_objects(finished.stdout)
    pending, share = _pending(finished.stderr)
    if not objects:
        check(finished)
        objects = parse_rows(finished.stdout, finished.stderr)
        if not objects and share == _WHOLE and verb is not QmdSearchMode.SEARCH:
            raise QmdFailure(QmdFailureReason.NOT_READY, f"none of qmd's {pending} documents has a vector yet")
    return QmdResults(tuple(row for fields in objects if (row := as_row(fields)) is not None), pending)


def check(finished: CommandResult) -> None:
    """Returns for a command that did what it was asked.

    Raises:
        QmdFailure: it did not.
    """
    said = last_words(finished)
    match finished.ending:
        case ExitKind.CANCELLED:
            raise QmdFailure(QmdFailureReason.CANCELLED, "the command was ended because nobody waits for it any more")
        case ExitKind.TIMED_OUT:
            raise QmdFailure(
                QmdFailureReason.TIMEOUT, f"qmd gave no answer within {finished.elapsed_seconds:.1f} s{said}"
            )
        case ExitKind.TOO_MUCH:
            raise QmdFailure(
                QmdFailureReason.TOO_LARGE, f"qmd printed more than {MOST_BYTES:,} bytes and was ended{said}"
            )
    if finished.code:
        raise _failure(finished, said)


def _failure(finished: CommandResult, said: str) -> QmdFailure:
    code = finished.code
    if code < 0 or code > _SIGNALLED:
        name = _signal_name(-code if code < 0 else code - _SIGNALLED)
        advice = "; a Node older than 22 does this" if name == "SIGSEGV" else ""
        return QmdFailure(QmdFailureReason.SIGNAL, f"qmd was ended by {name}{advice}{said}")
    if code in _NOT_RUNNABLE:
        return QmdFailure(QmdFailureReason.MISSING, f"qmd cannot be run{said}; {INSTALL_QMD}")
    if _UNKNOWN_COLLECTION.search(finished.stderr):
        return QmdFailure(QmdFailureReason.UNKNOWN_COLLECTION, f"qmd does not know a collection of ours{said}")
    if _BUSY.search(finished.stderr):
        return QmdFailure(QmdFailureReason.BUSY, f"qmd's index is busy{said}")
    return QmdFailure(QmdFailureReason.EXIT_CODE, f"qmd ended with exit code {code}{said}")


def last_words(finished: CommandResult) -> str:
    """The line that tells most of what went wrong, to be added to a message; empty where nothing was said."""
    lines = [line.strip() for line in _ESCAPES.sub("", finished.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    line = (telling or lines[-1:] or [""])[0]
    return f": {line[:_MOST_SHOWN]}" if line else ""


def is_conflict(finished: CommandResult) -> bool:
    """Whether a writer met another one; the next try may succeed."""
    return bool(finished.code) and bool(_BUSY.search(finished.stderr) or _CONSTRAINT.search(finished.stderr))


def read_version(finished: CommandResult) -> str:
    """The version that the command told.

    Raises:
        QmdFailure: TOO_OLD, or what kept it from telling.
    """
    check(finished)
    numbers = _VERSION.search(finished.stdout)
    if numbers is None:
        raise QmdFailure(
            QmdFailureReason.TOO_OLD, f"{finished.stdout.strip()[:80]!r} is no version of qmd; {INSTALL_QMD}"
        )
    version = ".".join(numbers.groups())
    if tuple(map(int, numbers.groups())) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise QmdFailure(QmdFailureReason.TOO_OLD, f"qmd {version} is older than {least}; {INSTALL_QMD}")
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
