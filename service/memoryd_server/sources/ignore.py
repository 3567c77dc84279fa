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

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.globs import FOLDERS, NamePattern
from memoryd_server.sources.files import read_file
from memoryd_server.sources.roots import Location

IGNORE_FILE = ".memoryignore"
MOST_IGNORE_BYTES = 64 * 1024
MOST_RULES = 500

_ESCAPED = re.compile(r"\\(.)|\[\^", re.DOTALL)
_ANY = re.compile(translate("*"))


class IgnoreFileUnusable(Exception):
    """`.memoryignore` exists but cannot be used."""


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line: its number, its text, its pattern, whether it matches folders only, and whether it re-includes."""

    line: int
    text: str
    pattern: NamePattern
    folders_only: bool
    negated: bool

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether the rule matches the path `names`."""
        return (False, *self.match_prefixes(names))[-1]

    def match_prefixes(self, names: Sequence[str]) -> Iterator[bool]:
        """Yield, for each prefix of `names`, whether the rule matches it."""
        whole = len(self.pattern.names)
        return (whole in places for places in self.pattern.match_prefixes(names))


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of one root. Without rules, no file is ignored."""

    rules: tuple[IgnoreRule, ...] = ()

    def ignores(self, names: Sequence[str], *, folder: bool) -> bool:
        """Return whether the path `names` below the root is ignored, if the folders above it are not.

        The last matching rule decides.
        """
        return self.rule_of(names, folder=folder) is not None

    def rule_of(self, names: Sequence[str], *, folder: bool) -> IgnoreRule | None:
        """Return the last rule that matches the path `names`; None if it re-includes the path, or none matches.

        Rules that match the folders above are left out.
        """
        matching = (rule for rule in reversed(self.rules) if (folder or not rule.folders_only) and rule.matches(names))
        last = next(matching, None)
        return None if last is None or last.negated else last

    def ignores_folder(self, names: Sequence[str]) -> bool:
        """Return whether the folder `names` below the root, or a folder that contains it, is ignored."""
        # The last rule that matches a folder decides. A long path is matched once per rule.
        backwards = self.rules[::-1]
        prefixes = zip(*(rule.match_prefixes(names) for rule in backwards), strict=True)
        for matched in prefixes:
            last = next(compress(backwards, matched), None)
            if last is not None and not last.negated:
                return True
        return False

    def ignores_file(self, names: Sequence[str]) -> bool:
        """Return whether the file `names` below the root, or a folder that contains it, is ignored."""
        return self.ignores_folder(names[:-1]) or self.ignores(names, folder=False)


NO_RULES = IgnoreRules()


def parse_rules(text: str) -> IgnoreRules:
    """Parse lines in the format of `.gitignore`. A meaningless line matches nothing.

    Raises:
        IgnoreFileUnusable: there are too many rules.
    """
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    parsed = (_parse_rule(number, line) for number, line in enumerate(lines, 1) if not line.startswith("#"))
    rules = tuple(rule for rule in parsed if rule is not None)
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
        data, _ = read_file(Location("/".join(parts), root, parts), MOST_IGNORE_BYTES)
    except FileNotFound:
        return NO_RULES
    except PathNotAllowed as error:
        raise IgnoreFileUnusable("it is a link or not a regular file") from error
    except OSError as error:
        raise IgnoreFileUnusable(error.strerror or str(error)) from error
    # The operating system returns names that are not UTF-8 in the same form.
    return parse_rules(data.decode("utf-8", "surrogateescape"))


def _parse_rule(number: int, line: str) -> IgnoreRule | None:
    pattern = _without_trailing_spaces(line)
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern:
        return None
    anchored = "/" in pattern
    parts = pattern.removeprefix("/").split("/")
    segments = [FOLDERS if part == "**" and anchored else _compile_segment(part) for part in parts]
    if segments[-1] is FOLDERS:
        # The pattern matches the contents of a folder, but not the folder itself.
        segments.append(_ANY)
    names = tuple(segments if anchored else [FOLDERS, *segments])
    return IgnoreRule(number, line, NamePattern(names), folders_only, negated)


def _without_trailing_spaces(line: str) -> str:
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if backslashes % 2 and len(kept) < len(line) else kept


def _compile_segment(part: str) -> re.Pattern[str]:
    """Return the pattern of one name. A character after a backslash is literal."""
    return re.compile(translate(_ESCAPED.sub(_escape_literal, part)))


def _escape_literal(match: re.Match[str]) -> str:
    if match[1] is None:
        return "[!"
    return f"[{match[1]}]" if match[1] in "*?[" else match[1]
