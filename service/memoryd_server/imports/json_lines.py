"""Session files of coding agents: one JSON object per line, written by another program and possibly cut off.

A session file can have hundreds of megabytes, most of them output of tools. It is read line by line. A reader keeps the
text of messages only, and only as much of it as `TextBudget` allows.
"""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

from memoryd_server.foreign_text import parse_json
from memoryd_server.imports.conversation import Unreadable
from memoryd_server.imports.input_files import MAX_RATIO, InputFile
from memoryd_server.sources import MOST_LINE_BYTES, BoundedLines, CompressedLines

COMPRESSED_SUFFIX: Final = ".zst"

MOST_TEXT_BYTES: Final = 64 << 20
"""Maximum memory of the messages of one session."""

MOST_PROJECT_CHARS: Final = 1000
"""A longer path of a working directory is cut off."""

# A compressed file may expand to `MAX_RATIO` times its size and this much more.
_EXTRA_BYTES = 1 << 20
_MOST_ID_CHARS = 200
_MOST_REASON_CHARS = 200
_MIB = 1 << 20

_TOO_LONG = f"is longer than {MOST_LINE_BYTES // _MIB} MiB"
_CUT_OFF = "is cut off"
_NO_JSON = "is not a JSON object"


class SessionTooLarge(Exception):
    """A session exceeds a limit on what is held in memory. The text says which one."""


class TextBudget:
    """Counts the memory of texts that are kept. A text with characters beyond Latin-1 takes 2 or 4 bytes for each."""

    def __init__(self, most_bytes: int = MOST_TEXT_BYTES) -> None:
        self._most_bytes = self._left = most_bytes

    def take(self, text: str) -> None:
        """Count a text.

        Raises:
            SessionTooLarge: it does not fit.
        """
        self._left -= sys.getsizeof(text)
        if self._left < 0:
            raise SessionTooLarge(f"the session has more than {self._most_bytes // _MIB} MiB of messages")

    def give_back(self, text: str) -> None:
        """Count a text no longer."""
        self._left += sys.getsizeof(text)


class JsonLines:
    """The JSON objects in a file, with the numbers of their lines, from 1. Can be iterated once.

    A line that cannot be read is left out, and so is the rest of a file after an error. `unreadable` lists them after
    the iteration, one item for each kind of problem. `count` is the number of objects.
    """

    def __init__(self, file: InputFile) -> None:
        self.count = 0
        self._file = file
        self._problems: dict[str, list[int]] = {}
        self._error: Unreadable | None = None

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            with self._file.open() as stream:
                for line in self._lines(stream):
                    number += 1
                    if (record := self._parse(number, line)) is not None:
                        self.count += 1
                        yield number, record
        except OSError as error:
            reason = str(error)[:_MOST_REASON_CHARS] or type(error).__name__
            self._error = Unreadable(self._file.name, f"reading stopped after line {number}: {reason}")

    @property
    def unreadable(self) -> list[Unreadable]:
        """What has been left out so far."""
        found = [
            Unreadable(f"{self._file.name}:{first}", f"the line {problem}" + _more(count))
            for problem, (first, count) in self._problems.items()
        ]
        return found if self._error is None else [*found, self._error]

    def _lines(self, stream: BinaryIO) -> BoundedLines:
        if not self._file.name.endswith(COMPRESSED_SUFFIX):
            return BoundedLines(stream, max_bytes=sys.maxsize, max_line_bytes=MOST_LINE_BYTES)
        most_bytes = self._file.size_bytes * MAX_RATIO + _EXTRA_BYTES
        return CompressedLines(stream, max_bytes=most_bytes, max_line_bytes=MOST_LINE_BYTES)

    def _parse(self, number: int, line: bytes | None) -> dict[str, Any] | None:
        if line is None:
            self._add_problem(number, _TOO_LONG)
            return None
        if not line.strip():
            return None
        try:
            record = parse_json(line)
        except ValueError:
            self._add_problem(number, _NO_JSON if line.endswith(b"\n") else _CUT_OFF)
            return None
        if isinstance(record, dict):
            return record
        self._add_problem(number, _NO_JSON)
        return None

    def _add_problem(self, number: int, problem: str) -> None:
        self._problems.setdefault(problem, [number, 0])[1] += 1


def _more(count: int) -> str:
    others = count - 1
    return f", and so {'is' if others == 1 else 'are'} {others} more line{'s' * (others > 1)}" if others else ""


def time_of(value: Any) -> datetime | None:
    """Return the time in an ISO 8601 text, in UTC; None for everything else. A time without a zone is in UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def text_of(value: Any) -> str:
    """Return a foreign value if it is a text; empty for everything else."""
    return value if isinstance(value, str) else ""


def id_of(value: Any) -> str:
    """Return a foreign value if it can be an id: printable, not empty, at most 200 characters. Else an empty text."""
    return value if isinstance(value, str) and 0 < len(value) <= _MOST_ID_CHARS and value.isprintable() else ""


def texts_of(content: Any, types: frozenset[str]) -> list[str]:
    """Return the texts of a message's content: a text, or a list of blocks of which those of `types` count."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    blocks = (block for block in content if isinstance(block, dict) and text_of(block.get("type")) in types)
    return [text for block in blocks if (text := text_of(block.get("text")))]


def without_elements(text: str, opening: re.Pattern[str]) -> str:
    """Return a text without the generated elements at its start, and without white space around the rest.

    `opening` matches white space and an opening tag, whose name is group 1.

    An element that is not closed is ordinary text. So is one within a text, which people may have quoted.
    """
    start = 0
    while match := opening.match(text, start):
        closing = f"</{match[1]}>"
        end = text.find(closing, match.end())
        if end < 0:
            break
        start = end + len(closing)
    return text[start:].strip()
