"""Glob patterns of files below a folder. A pattern is matched name by name, in time proportional to pattern and path.

`NamePattern` is a sequence of names and `**`; `.memoryignore` uses it as well. `Glob` is the pattern of an extra path,
with `*`, `?`, `[...]`, `**` and `{a,b}`. It matches as OpenClaw does: a wildcard does not match a name that begins with
a dot, and a backslash is a separator.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from typing import Final

MOST_CHARS = 512
MOST_ALTERNATIVES = 64
MOST_NAMES = 32
MOST_NESTED = 8
"""The bounds of a `Glob`: characters, alternatives after all braces are expanded, names in a row, nested braces."""

FOLDERS: Final = None
"""The element of a `NamePattern` that matches any number of folders, including none."""

_EXTENDED = re.compile(r"[@!+*?]\(|\[:")
_RANGE = re.compile(r"(?:-?\d+|\w)\.\.(?:-?\d+|\w)(?:\.\.-?\d+)?")


class GlobError(ValueError):
    """The pattern cannot be used."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern of a path: one regular expression for each name, or `FOLDERS`.

    The time of matching depends only on the lengths of pattern and path. With `visible_only`, `FOLDERS` does not match
    a name that begins with a dot.
    """

    names: tuple[re.Pattern[str] | None, ...]
    visible_only: bool = False

    def match_prefixes(self, path: Sequence[str]) -> Iterator[set[int]]:
        """Yield, for each prefix of `path`, how many elements of the pattern may have matched it; empty if none."""
        places = self._skip_folders({0})
        for name in path:
            places = self._skip_folders({place for at in places for place in self._next_places(at, name)})
            yield places

    def _skip_folders(self, places: set[int]) -> set[int]:
        """Add the places that are reached without consuming a name, because `**` may match no folder."""
        for at, name in enumerate(self.names):
            if name is FOLDERS and at in places:
                places.add(at + 1)
        return places

    def _next_places(self, at: int, name: str) -> tuple[int, ...]:
        if at == len(self.names):
            return ()
        pattern = self.names[at]
        if pattern is FOLDERS:
            return () if self.visible_only and name.startswith(".") else (at,)
        return (at + 1,) if pattern.match(name) else ()


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern of files, relative to a folder. Create it with `parse`."""

    text: str
    _alternatives: tuple[NamePattern, ...] = field(repr=False, compare=False)

    @classmethod
    @lru_cache(maxsize=1_000)
    def parse(cls, text: str) -> "Glob":
        """Return the glob of `text`.

        Raises:
            GlobError: the pattern exceeds a bound, or has an extended form such as `!(a)`, `[:alpha:]` or `{1..9}`.
        """
        if not text:
            raise GlobError("the pattern is empty")
        if len(text) > MOST_CHARS:
            raise GlobError(f"the pattern has {len(text)} characters, more than the {MOST_CHARS} allowed")
        extended = _EXTENDED.search(text)
        if extended:
            raise GlobError(f'the pattern has "{extended[0]}"; only *, ?, [...], ** and {{a,b}} are supported')
        return cls(text, tuple(map(_compile, _Braces(text.replace("\\", "/")).expand())))

    def matches(self, path: Sequence[str]) -> bool:
        """Return whether the pattern matches the file `path`, the names below the folder."""
        return any(len(each.names) in last for each, last in self._last_places(path))

    def may_match_below(self, path: Sequence[str]) -> bool:
        """Return whether the pattern may match a file below the folder `path`; true for the top folder, ()."""
        unmatched = MOST_NAMES
        return not path or any(min(last, default=unmatched) < len(each.names) for each, last in self._last_places(path))

    def _last_places(self, path: Sequence[str]) -> Iterator[tuple[NamePattern, set[int]]]:
        for each in self._alternatives:
            places: set[int] = set()
            for places in each.match_prefixes(path):
                if not places:
                    break
            yield each, places


def _compile(text: str) -> NamePattern:
    """Return the pattern of a glob without braces to expand.

    Raises:
        GlobError: it has too many names.
    """
    names: list[re.Pattern[str] | None] = []
    parts = text.split("/")
    for at, part in enumerate(parts):
        if part == "**":
            names += [FOLDERS] if names[-1:] != [FOLDERS] else []
        elif part or at in (0, len(parts) - 1):
            # An empty first or last name, of an absolute path or a folder, matches no file. "a//b" means "a/b".
            names.append(_compile_name(part))
    if names[-1] is FOLDERS:
        # The pattern matches the contents of a folder, but not the folder itself.
        names.append(_compile_name("*"))
    if len(names) > MOST_NAMES:
        raise GlobError(f"the pattern has {len(names)} names in a row, more than the {MOST_NAMES} allowed")
    return NamePattern(tuple(names), visible_only=True)


def _compile_name(part: str) -> re.Pattern[str]:
    visible = "" if part.startswith(".") else r"(?!\.)"
    return re.compile(visible + translate(part.replace("[^", "[!")))


class _Braces:
    """The alternatives of a text with braces, such as `{a,b/{c,d}}.md`.

    As in a shell, braces without a comma and braces without a partner are ordinary characters.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # The end and the commas of each pair of braces, by its start.
        self._ends: dict[int, int] = {}
        self._commas: dict[int, list[int]] = {}
        opened: list[int] = []
        for at, character in enumerate(text):
            if character == "{":
                opened.append(at)
                self._commas[at] = []
            elif character == "," and opened:
                self._commas[opened[-1]].append(at)
            elif character == "}" and opened:
                self._ends[opened.pop()] = at
            if len(opened) > MOST_NESTED:
                raise GlobError(f"the pattern has more than {MOST_NESTED} nested braces")

    def expand(self) -> list[str]:
        """Return the alternatives, without duplicates.

        Raises:
            GlobError: there are too many, or braces contain a range.
        """
        return list(dict.fromkeys(self._expand(0, len(self._text))))

    def _expand(self, at: int, end: int) -> list[str]:
        found = [""]
        while at < end:
            close = self._ends.get(at)
            options = [self._text[at]] if close is None else self._options(at, close)
            found = [before + option for before in found for option in options]
            if len(found) > MOST_ALTERNATIVES:
                raise GlobError(f"the braces have more than {MOST_ALTERNATIVES} alternatives")
            at = (at if close is None else close) + 1
        return found

    def _options(self, start: int, end: int) -> list[str]:
        bounds = [start, *self._commas[start], end]
        if len(bounds) == 2:  # noqa: PLR2004 -- the braces themselves
            if _RANGE.fullmatch(self._text, start + 1, end):
                raise GlobError(f'the pattern has the range "{self._text[start : end + 1]}"; list its values instead')
            return [f"{{{inside}}}" for inside in self._expand(start + 1, end)]
        return [option for before, after in pairwise(bounds) for option in self._expand(before + 1, after)]
