"""The qmd command: its arguments and runs, its output as rows, and its failures.

Every call names the index and the collections. Without the index name, a `.qmd` folder above the working directory
would replace the agent's index; without collection names, an empty configuration would not filter anything.

A search prints one JSON array on stdout. Log lines of libraries may surround it, with brackets in them. Some versions
print a sentence instead of an empty array.
"""

import math
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memoryd_server.foreign_text import scan_json
from memoryd_server.qmd.home import QmdHome
from memoryd_server.qmd.process import Command, CommandResult, CommandRun, ExitKind, ProcessGuard

# `index` is the name of the default index. The environment sets the location of its files.
_INDEX = ("--index", "index")
# At the start of a query, these are qmd's query language.
_QUERY_PREFIX = re.compile(r"^(lex|vec|hyde|intent|expand):", re.IGNORECASE)
_LINE_BREAKS = re.compile(r"[\0\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class QmdSearchMode(StrEnum):
    """qmd's search verbs: by words, by vectors, or by both with query expansion and reranking by qmd's models."""

    SEARCH = "search"
    VSEARCH = "vsearch"
    QUERY = "query"


UPDATE = (*_INDEX, "update")
EMBED = (*_INDEX, "embed")
CLEANUP = (*_INDEX, "cleanup")
STATUS = (*_INDEX, "status")
VERSION = ("--version",)


def search_arguments(search_mode: QmdSearchMode, text: str, collections: Sequence[str], limit: int) -> tuple[str, ...]:
    """Return the arguments of a search. The query is one argument after `--`, so that no part of it is an option."""
    filters = [part for name in collections for part in ("-c", name)]
    return (*_INDEX, search_mode.value, "--json", "-n", str(limit), *filters, "--", one_line(search_mode, text))


def one_line(search_mode: QmdSearchMode, text: str) -> str:
    """Return the query as one line that does not begin with qmd's query language."""
    line = _LINE_BREAKS.sub(" ", text).strip()
    return _QUERY_PREFIX.sub(r"\1 :", line) if search_mode is QmdSearchMode.QUERY else line


# At most this number of brackets at the start of a line is tried, and as many elsewhere, so that log lines cost little.
_MAX_BRACKETS = 64
# Matched against the part of a line after its last colon, because a logger's name may precede the sentence.
_NO_RESULTS = re.compile(r"(?:^|\])\s*no results found\b", re.IGNORECASE)
_HEADER = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n?")
_LINE_START = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class QmdRow:
    """One row of qmd's output: `uri` is `qmd://<collection>/<path>`, `snippet` the text below the snippet's header.

    `start_line` and `line_count` are the range in the header; 0 if the snippet has no header. `line` is the best line;
    0 if the row has none.
    """

    uri: str
    score: float
    snippet: str
    start_line: int
    line_count: int
    line: int


def parse_rows(stdout: str, stderr: str) -> list[dict[str, Any]]:
    """Return the objects of the printed array, unchanged.

    Raises:
        QmdFailure: NOT_JSON, qmd printed neither an array nor that there are no results.
    """
    objects = find_objects(stdout)
    if objects is not None:
        return objects
    text = stdout if stdout.strip() else stderr
    if any(_NO_RESULTS.search(line.strip().rpartition(":")[2]) for line in text.splitlines()):
        return []
    printed = repr(stdout.strip()[:120]) if stdout.strip() else "nothing"
    raise QmdFailure(QmdFailureReason.NOT_JSON, f"qmd printed {printed} instead of an array of results")


def find_objects(stdout: str) -> list[dict[str, Any]] | None:
    """Return the first array of objects in the text, an empty one only if there is no other; None if there is none."""
    empty = False
    for at in _brackets(stdout):
        try:
            value = scan_json(stdout, at)
        except ValueError:
            continue
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            if value:
                return value
            empty = True
    return [] if empty else None


def _brackets(text: str) -> Iterator[int]:
    """Yield the positions at which an array may begin: first the starts of lines, as qmd prints it, then anywhere."""
    for count, match in enumerate(_LINE_START.finditer(text)):
        if count == _MAX_BRACKETS:
            break
        yield match.end() - 1
    at = text.find("[")
    for _ in range(_MAX_BRACKETS):
        if at < 0:
            return
        yield at
        at = text.find("[", at + 1)


ScoreOf = Callable[[Mapping[str, Any]], float]
"""Returns the score of an object that qmd printed, 0..1."""


def printed_score(fields: Mapping[str, Any]) -> float:
    """Return the score that qmd printed for an object, limited to 0..1; 0 for anything but a finite number."""
    value = fields.get("score")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    if isinstance(value, float) and not math.isfinite(value):
        return 0.0
    return float(min(1, max(0, value)))


def as_row(fields: dict[str, Any], score_of: ScoreOf = printed_score) -> QmdRow | None:
    """Return an object as a row; None if it names no file."""
    uri, snippet = fields.get("file"), fields.get("snippet")
    if not isinstance(uri, str) or not uri:
        return None
    text = snippet if isinstance(snippet, str) else ""
    header = _HEADER.match(text)
    start, count = (int(header[1]), int(header[2])) if header else (0, 0)
    return QmdRow(uri, score_of(fields), text[header.end() :] if header else text, start, count, _line(fields))


def _line(fields: dict[str, Any]) -> int:
    line = fields.get("line")
    return line if isinstance(line, int) and not isinstance(line, bool) and line > 0 else 0


class QmdFailureReason(StrEnum):
    """Why qmd did not answer. The failure's message has the details."""

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


# Failures that do not predict that the next call fails.
TRANSIENT = frozenset(
    {QmdFailureReason.BUSY, QmdFailureReason.NOT_READY, QmdFailureReason.NO_TIME, QmdFailureReason.CANCELLED}
)


class QmdFailure(Exception):
    """A call of qmd failed. The message says what happened and, if the user can fix it, how."""

    def __init__(self, reason: QmdFailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


# The most that a search may print. Fifty results are about 50 KB.
MAX_SEARCH_BYTES = 2**20
# The first version with the arguments and the output of this module.
MIN_VERSION = (2, 0, 0)

INSTALL_QMD = "install it with `npm install -g @tobilu/qmd` on Node 22 or newer, or set memory.qmd.command"

_VERSION = re.compile(r"\bqmd v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})\b", re.IGNORECASE)
# Only the first "collection" of a line is tried: text that follows a later one follows the first as well.
_UNKNOWN_COLLECTION = re.compile(
    r"^(?>.*?collection\b).*\b(?:not found|does not exist|missing)", re.IGNORECASE | re.MULTILINE
)
_BUSY = re.compile(r"SQLITE_BUSY|database is (?:locked|busy)|already running", re.IGNORECASE)
_CONSTRAINT = re.compile(r"SQLITE_CONSTRAINT|constraint failed", re.IGNORECASE)
_PENDING = re.compile(r"(?<!\d)(\d{1,9}) documents? (?:\((\d{1,9})%\) )?need embeddings")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERROR_WORDS = re.compile(r"error|not found|disabled|failed|cannot|denied|missing|unknown|unsupported", re.IGNORECASE)
# A shell's exit code is this plus the signal's number if a signal ended the command, or one of the two codes below if
# the command cannot be run.
_SIGNAL_BASE = 128
_NOT_RUNNABLE = (126, 127)
_MAX_ERROR_CHARS = 300
_ALL_PENDING = 100


@dataclass(frozen=True, slots=True)
class QmdResults:
    """Rows, best first, and the number of documents without vectors.

    `matched_any_word` is whether the rows are those of a second search, for any word of the query. `second_failure` is
    why that search failed; empty if it did not.
    """

    rows: tuple[QmdRow, ...]
    pending: int = 0
    matched_any_word: bool = False
    second_failure: str = ""


class QmdClient:
    """Makes the runs of the command for one agent."""

    def __init__(self, command: str, home: QmdHome, guard: ProcessGuard) -> None:
        self._command = executable_of(command)
        self.home = home
        self._guard = guard

    def locate(self) -> str:
        """Return the command's path. Blocks.

        Raises:
            QmdFailure: MISSING.
        """
        path = shutil.which(str(Path(self._command).expanduser()), path=self.home.environment["PATH"])
        if path is None:
            problem = "does not exist or is not executable" if "/" in self._command else "is not on the PATH"
            raise QmdFailure(QmdFailureReason.MISSING, f"{self._command} {problem}; {INSTALL_QMD}")
        return path

    def make_run(self, arguments: Sequence[str], seconds: float) -> CommandRun:
        """Return a run of the command with these arguments, not started yet. Blocks while the command is located.

        Raises:
            QmdFailure: MISSING.
        """
        return self.make_run_at(self.locate(), arguments, seconds)

    def make_run_at(
        self,
        path: str,
        arguments: Sequence[str],
        seconds: float,
        max_bytes: int | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> CommandRun:
        """Return a run of the command at `path`, not started yet. `variables` are added to its environment."""
        environment = {**self.home.environment, **variables}
        command = Command((path, *arguments), environment, str(self.home.folder), seconds, max_bytes)
        return CommandRun(command, self._guard)


def executable_of(command: str) -> str:
    """Return the executable in a setting, which may have options, and quotes around a path with blanks."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    return words[0] if words else "qmd"


def read_results(result: CommandResult, search_mode: QmdSearchMode, score_of: ScoreOf = printed_score) -> QmdResults:
    """Return the results of a search. A completely printed array counts, even if the command failed afterwards.

    Raises:
        QmdFailure: the command failed, or its output is not valid.
    """
    objects = None if result.ending in (ExitKind.OVERFLOWED, ExitKind.CANCELLED) else find_objects(result.stdout)
    pending, percent = read_pending(result.stderr)
    if not objects:
        check(result)
        objects = parse_rows(result.stdout, result.stderr)
        if not objects and percent == _ALL_PENDING and search_mode is not QmdSearchMode.SEARCH:
            raise QmdFailure(QmdFailureReason.NOT_READY, f"none of qmd's {pending} documents has a vector yet")
    rows = (as_row(fields, score_of) for fields in objects)
    return QmdResults(tuple(row for row in rows if row is not None), pending)


def check(result: CommandResult) -> None:
    """Raise if the command did not succeed.

    Raises:
        QmdFailure: why it did not.
    """
    error = error_line(result)
    match result.ending:
        case ExitKind.CANCELLED:
            raise QmdFailure(QmdFailureReason.CANCELLED, "qmd was ended because the call was cancelled")
        case ExitKind.TIMED_OUT:
            raise QmdFailure(
                QmdFailureReason.TIMEOUT, f"qmd gave no answer within {result.elapsed_seconds:.1f} s{error}"
            )
        case ExitKind.OVERFLOWED:
            raise QmdFailure(
                QmdFailureReason.TOO_LARGE, f"qmd printed more than {MAX_SEARCH_BYTES:,} bytes and was ended{error}"
            )
    if result.code:
        raise _failure(result, error)


def _failure(result: CommandResult, error: str) -> QmdFailure:
    code = result.code
    if code < 0 or code > _SIGNAL_BASE:
        name = _signal_name(-code if code < 0 else code - _SIGNAL_BASE)
        advice = "; a Node older than 22 does this" if name == "SIGSEGV" else ""
        return QmdFailure(QmdFailureReason.SIGNAL, f"qmd was ended by {name}{advice}{error}")
    if code in _NOT_RUNNABLE:
        return QmdFailure(QmdFailureReason.MISSING, f"qmd cannot be run{error}; {INSTALL_QMD}")
    if _UNKNOWN_COLLECTION.search(result.stderr):
        return QmdFailure(QmdFailureReason.UNKNOWN_COLLECTION, f"qmd does not know a configured collection{error}")
    if _BUSY.search(result.stderr):
        return QmdFailure(QmdFailureReason.BUSY, f"qmd's index is busy{error}")
    return QmdFailure(QmdFailureReason.EXIT_CODE, f"qmd ended with exit code {code}{error}")


def error_line(result: CommandResult) -> str:
    """Return the most informative line of stderr, to be appended to a message; empty if stderr is empty."""
    lines = [line.strip() for line in _ESCAPES.sub("", result.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_WORDS.search(line)]
    line = (errors or lines[-1:] or [""])[0]
    return f": {line[:_MAX_ERROR_CHARS]}" if line else ""


def is_conflict(result: CommandResult) -> bool:
    """Return whether the command failed because another process was writing, so that a retry may succeed."""
    return bool(result.code) and bool(_BUSY.search(result.stderr) or _CONSTRAINT.search(result.stderr))


def read_version(result: CommandResult) -> str:
    """Return the version that the command printed.

    Raises:
        QmdFailure: TOO_OLD, or why the command did not succeed.
    """
    check(result)
    numbers = _VERSION.search(result.stdout)
    if numbers is None:
        raise QmdFailure(
            QmdFailureReason.TOO_OLD, f"{result.stdout.strip()[:80]!r} is not a version of qmd; {INSTALL_QMD}"
        )
    version = ".".join(numbers.groups())
    if tuple(map(int, numbers.groups())) < MIN_VERSION:
        minimum = ".".join(map(str, MIN_VERSION))
        raise QmdFailure(QmdFailureReason.TOO_OLD, f"qmd {version} is older than {minimum}; {INSTALL_QMD}")
    return version


def read_pending(stderr: str) -> tuple[int, int]:
    """Return the number of documents without vectors, and their percentage, from qmd's warning; else zeros."""
    warning = _PENDING.search(stderr)
    return (int(warning[1]), int(warning[2] or 0)) if warning else (0, 0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
