"""What qmd printed, as rows. Pure.

A search prints one JSON array on stdout. Around it there may be what libraries log, brackets included; where nothing
was found some versions say so in words instead.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memoryd_server.backend.qmd.failure import QmdFailure, Reason
from memoryd_server.foreign_text import valid_tree

# Brackets that are looked at, besides those that begin a line: noise must not cost more than the answer.
_MOST_BRACKETS = 64
# Searched in the part of a line after its last colon: a logger's name may precede the words.
_NOTHING = re.compile(r"(?:^|\])\s*no results found\b", re.IGNORECASE)
_HEADER = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*\n?")
_LINE_START = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
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
    raise QmdFailure(Reason.NOT_JSON, f"qmd printed no array of results, but {shown!r}")


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


def as_row(fields: dict[str, Any]) -> Row | None:
    """A row of an object; None for one that names no file."""
    uri, snippet = fields.get("file"), fields.get("snippet")
    if not isinstance(uri, str) or not uri:
        return None
    text = snippet if isinstance(snippet, str) else ""
    header = _HEADER.match(text)
    start, count = (int(header[1]), int(header[2])) if header else (0, 0)
    return Row(uri, _share(fields.get("score")), text[header.end() :] if header else text, start, count, _line(fields))


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
