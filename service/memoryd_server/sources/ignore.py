"""The rules of `.memoryignore`, in the format of `.gitignore`. Pure, except for `read_rules`.

A root is the workspace or an extra folder. Its `.memoryignore` is in the root folder, and its patterns are relative to
that folder; names of folders above the root never match. The time of matching depends only on the lengths of rules and
paths, not on the patterns.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import compress
from typing import Final

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.files import read_file
from memoryd_server.sources.roots import Location

IGNORE_FILE = ".memoryignore"
MOST_BYTES = 64 * 1024
MOST_RULES = 500

_ESCAPED = re.compile(r"\\(.)|\[\^", re.DOTALL)
# Matches any number of folders, including none.
_FOLDERS: Final = None
_ANY = re.compile(translate("*"))


class IgnoreFileUnusable(Exception):
    """`.memoryignore` exists but cannot be used."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line: the patterns of path segments, whether it matches folders only, and whether it re-includes matches."""

    segments: tuple[re.Pattern[str] | None, ...]
    folders_only: bool
    takes_back: bool

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether the rule matches the path `names`."""
        return (False, *self.matches_on_the_way(names))[-1]

    def matches_on_the_way(self, names: Sequence[str]) -> Iterator[bool]:
        """Yield, for each prefix of `names`, whether the rule matches it."""
        places = self._onward({0})
        for name in names:
            places = self._onward({place for at in places for place in self._after(at, name)})
            yield len(self.segments) in places

    def _onward(self, places: set[int]) -> set[int]:
        """Add the places that are reached without consuming a name, because `**` may match no folder."""
        for at, segment in enumerate(self.segments):
            if segment is _FOLDERS and at in places:
                places.add(at + 1)
        return places

    def _after(self, at: int, name: str) -> tuple[int, ...]:
        if at == len(self.segments):
            return ()
        segment = self.segments[at]
        if segment is _FOLDERS:
            return (at,)
        return (at + 1,) if segment.match(name) else ()


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of one root. Without rules, no file is ignored."""

    rules: tuple[_Rule, ...] = ()

    def leaves_out(self, names: Sequence[str], *, folder: bool) -> bool:
        """Return whether the path `names` below the root is ignored, if the folders above it are not.

        The last matching rule decides.
        """
        speaking = (rule for rule in reversed(self.rules) if (folder or not rule.folders_only) and rule.matches(names))
        last = next(speaking, None)
        return last is not None and not last.takes_back

    def leaves_out_folders(self, names: Sequence[str]) -> bool:
        """Return whether the folder `names` below the root, or a folder that contains it, is ignored."""
        # The last rule that matches a folder decides. A long path is matched once per rule.
        backwards = self.rules[::-1]
        on_the_way = zip(*(rule.matches_on_the_way(names) for rule in backwards), strict=True)
        for spoken in on_the_way:
            last = next(compress(backwards, spoken), None)
            if last is not None and not last.takes_back:
                return True
        return False

    def leaves_out_file(self, names: Sequence[str]) -> bool:
        """Return whether the file `names` below the root, or a folder that contains it, is ignored."""
        return self.leaves_out_folders(names[:-1]) or self.leaves_out(names, folder=False)


NO_RULES = IgnoreRules()


def parse_rules(text: str) -> IgnoreRules:
    """Parse lines in the format of `.gitignore`. A meaningless line matches nothing.

    Raises:
        IgnoreFileUnusable: there are too many rules.
    """
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    rules = tuple(rule for line in lines if not line.startswith("#") and (rule := _rule(line)) is not None)
    if len(rules) > MOST_RULES:
        raise IgnoreFileUnusable(f"it has {len(rules)} rules, more than the {MOST_RULES} allowed")
    return IgnoreRules(rules)


def read_rules(root: str, folder: tuple[str, ...]) -> IgnoreRules:
    """Return the rules of the folder below `root`; no rules if it has no `.memoryignore`. A link is not followed.

    Raises:
        IgnoreFileUnusable: the file cannot be read, is too long or has too many rules.
    """
    parts = (*folder, IGNORE_FILE)
    try:
        data, _ = read_file(Location("/".join(parts), root, parts), MOST_BYTES)
    except FileNotFound:
        return NO_RULES
    except PathNotAllowed as error:
        raise IgnoreFileUnusable("it is a link, or no plain file") from error
    except OSError as error:
        raise IgnoreFileUnusable(error.strerror or str(error)) from error
    # The operating system returns names that are not UTF-8 in the same form.
    return parse_rules(data.decode("utf-8", "surrogateescape"))


def _rule(line: str) -> _Rule | None:
    pattern = _without_trailing_spaces(line)
    takes_back = pattern.startswith("!")
    pattern = pattern[takes_back:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern:
        return None
    anchored = "/" in pattern
    parts = pattern.removeprefix("/").split("/")
    segments = [_FOLDERS if part == "**" and anchored else _segment(part) for part in parts]
    if segments[-1] is _FOLDERS:
        # The pattern matches the contents of a folder, but not the folder itself.
        segments.append(_ANY)
    return _Rule(tuple(segments if anchored else [_FOLDERS, *segments]), folders_only, takes_back)


def _without_trailing_spaces(line: str) -> str:
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if backslashes % 2 and len(kept) < len(line) else kept


def _segment(part: str) -> re.Pattern[str]:
    """Return the pattern of one name. A character after a backslash is literal."""
    return re.compile(translate(_ESCAPED.sub(_plain, part)))


def _plain(found: re.Match[str]) -> str:
    if found[1] is None:
        return "[!"
    return f"[{found[1]}]" if found[1] in "*?[" else found[1]
