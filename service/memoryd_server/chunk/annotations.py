"""Annotations of memory: comments at the end of a line that say how the line is to be used.

    - Keep the gateway on loopback. <!-- trigger: gateway, network --> <!-- importance: 9 -->
    - Use the release helper. <!-- project: github.com/acme/app; github.com/acme/lib -->

An annotation is removed from the indexed text wherever it is in its line, but counts only if its line ends with one. A
comment of more than 2,000 characters, or over several lines, is text. Values come from files that others may write, so
their number and lengths are bounded, and control characters are removed.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from memoryd_server.foreign_text import valid_text
from memoryd_server.model import NO_ANNOTATIONS, Annotations

MAX_TRIGGERS: Final = 16
MAX_TRIGGER_CHARS: Final = 100
MAX_PROJECTS: Final = 16
MAX_PROJECT_CHARS: Final = 256
INVALID_PROJECT: Final = "!invalid"
"""Stands for the projects of an annotation without a valid key, and is never active."""

_MAX_VALUE_CHARS = 2_000
_OPENING = re.compile(r"<!--[ \t]*(trigger|importance|project)[ \t]*:", re.IGNORECASE)
_CLOSING = "-->"
_LIST_SEPARATOR = re.compile("[,;]")
_IMPORTANCE = re.compile(r"0{0,8}([1-9]|10)", re.ASCII)


class _Comment(NamedTuple):
    start: int
    end: int
    kind: str
    value: str


def split_annotations(text: str) -> tuple[str, Mapping[int, Annotations]]:
    """Return `text` without annotations, and the annotations that count by their line, from 1.

    Lines keep their numbers. Linear in the length of `text`.
    """
    if _OPENING.search(text) is None:
        return text, {}
    lines = text.split("\n")
    found: dict[int, Annotations] = {}
    for number, line in enumerate(lines, 1):
        comments = list(_comments(line)) if "<!--" in line else []
        if comments:
            lines[number - 1] = _without(line, comments)
            annotations = _annotations(comments) if not line[comments[-1].end :].strip() else NO_ANNOTATIONS
            if annotations != NO_ANNOTATIONS:
                found[number] = annotations
    return "\n".join(lines), found


def _comments(line: str) -> Iterator[_Comment]:
    closing, done = -1, 0
    for opening in _OPENING.finditer(line):
        if opening.start() < done:
            continue
        if closing < opening.end():
            closing = line.find(_CLOSING, opening.end())
            if closing < 0:
                return
        if closing - opening.end() <= _MAX_VALUE_CHARS:
            done = closing + len(_CLOSING)
            yield _Comment(opening.start(), done, opening[1].lower(), line[opening.end() : closing])


def _without(line: str, comments: list[_Comment]) -> str:
    pieces: list[str] = []
    at = 0
    for comment in comments:
        pieces.append(line[at : comment.start])
        at = comment.end
    rest = line[at:]
    if rest.strip():
        return "".join((*pieces, rest))
    return "".join(pieces).rstrip() + ("\r" if line.endswith("\r") else "")


def _annotations(comments: Iterable[_Comment]) -> Annotations:
    joined = NO_ANNOTATIONS
    for comment in comments:
        if comment.kind == "importance":
            number = _IMPORTANCE.fullmatch(comment.value.strip())
            each = Annotations(importance=int(number[1]) if number else None)
        elif comment.kind == "trigger":
            phrases = (_cleaned(phrase) for phrase in _LIST_SEPARATOR.split(comment.value))
            each = Annotations(triggers=tuple(phrase[:MAX_TRIGGER_CHARS].rstrip() for phrase in phrases if phrase))
        else:
            keys = (project_key(key) for key in comment.value.split(";"))
            each = Annotations(projects=tuple(key for key in keys if key) or (INVALID_PROJECT,))
        joined = joined_annotations((joined, each))
    return joined


def joined_annotations(parts: Iterable[Annotations]) -> Annotations:
    """Return the annotations of several lines: the highest importance, and all triggers and projects once."""
    importance: int | None = None
    triggers: dict[str, None] = {}
    projects: dict[str, None] = {}
    for part in parts:
        if part.importance is not None:
            importance = max(importance or 0, part.importance)
        triggers |= dict.fromkeys(part.triggers)
        projects |= dict.fromkeys(part.projects)
    if not (importance or triggers or projects):
        return NO_ANNOTATIONS
    return Annotations(importance, tuple(triggers)[:MAX_TRIGGERS], tuple(projects)[:MAX_PROJECTS])


def project_key(text: str) -> str:
    """Return a project's key as it is compared, with the part before the first slash in lower case.

    Empty for a text that is no key: a blank or too long one, one with angle brackets, or one that begins with "!".
    """
    key = _cleaned(text)
    if not key or key.startswith("!") or "<" in key or ">" in key:
        return ""
    host, slash, path = key.partition("/")
    if host and slash and not key.startswith("path:"):
        key = f"{host.lower()}{slash}{path}"
    # Some letters are two characters in lower case.
    return key if len(key) <= MAX_PROJECT_CHARS else ""


def _cleaned(text: str) -> str:
    """Return `text` with white space folded and without control and formatting characters."""
    words = " ".join(valid_text(text).split())
    if words.isprintable():
        return words
    # Without them, nothing is left of some words.
    return " ".join("".join(c for c in words if unicodedata.category(c)[0] != "C").split())
