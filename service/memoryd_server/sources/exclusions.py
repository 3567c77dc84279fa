"""The paths that discovery leaves out because of a rule, and the root that finds a file.

`ExcludedPaths` collects the paths, `ExclusionRules` finds their rules, and `RootFinder` finds the root of a file. A
rule is a line of `.memoryignore`, or the patterns of an extra path. Discovery collects paths only if its caller lists
excluded files.
"""

import posixpath
from dataclasses import dataclass
from typing import Final

from memoryd_server.foreign_text import shown_path
from memoryd_server.model import Source
from memoryd_server.sources.ignore import IGNORE_FILE, IgnoreFileUnusable, IgnoreRule, IgnoreRules, read_rules
from memoryd_server.sources.roots import Location, Roots, is_own_memory

MOST_EXCLUDED: Final = 100_000
"""The most files and folders in a list of what is excluded."""

LINK: Final = "symbolic links are not read"
SECOND_NAME: Final = "it is another name of a file that the index has under its first name"
OTHER_TRANSCRIPT: Final = (
    "it is the transcript of a scheduled run or of the gateway itself, or its session is in the database of sessions"
)
_BY_RULE: Final = ""


@dataclass(frozen=True, slots=True)
class ExcludedPlace:
    """A file, or a folder with all that is in it, that is not indexed, with the rule or another reason.

    `path` is a display path; that of a folder ends in "/".
    """

    path: str
    rule: str
    source: Source = Source.MEMORY


class ExcludedPaths:
    """The display paths of at most `most` files and folders that a discovery leaves out; those of folders end in "/".

    `cut_at` is the folder of the first path for which there was no room; None if there was room for all.
    """

    def __init__(self, most: int = MOST_EXCLUDED) -> None:
        self._most = most
        self._reasons: dict[str, str] = {}
        self.cut_at: str | None = None

    def add(self, path: str, reason: str = _BY_RULE) -> None:
        """Add a path that a rule excludes, or that is left out for another reason."""
        if len(self._reasons) < self._most:
            self._reasons.setdefault(path, reason)
        elif self.cut_at is None and path not in self._reasons:
            self.cut_at = posixpath.dirname(path.rstrip("/"))

    def places(self, roots: Roots) -> list[ExcludedPlace]:
        """Return the places that no root includes, in no order.

        Places in a root whose `.memoryignore` cannot be used are left out.
        """
        rules, places = ExclusionRules(roots), []
        for path, reason in self._reasons.items():
            absolute = posixpath.normpath(posixpath.join(roots.base(), path))
            try:
                rule = rules.rule_of(absolute, folder=path.endswith("/")) or reason
            except IgnoreFileUnusable:
                continue
            if rule:
                places.append(ExcludedPlace(shown_path(path), rule))
        if self.cut_at is not None:
            more = f"the list ends after {self._most:,} excluded files and folders; this folder has others"
            places.append(ExcludedPlace(shown_path(f"{self.cut_at or posixpath.curdir}/"), more))
        return places


def ignoring_rule(roots: Roots, file: Location) -> str:
    """Return the rule that keeps discovery from finding a file; empty if none does. Blocks.

    Raises:
        IgnoreFileUnusable: a `.memoryignore` cannot be used, so that its folder gets no new files.
    """
    return ExclusionRules(roots).rule_of(posixpath.join(file.root, *file.parts), folder=False)


def pattern_rule(roots: Roots, path: str) -> str:
    """Return the patterns of the extra paths that contain a file, if none of them matches its display path.

    Empty if the path is memory, or in no extra path with a pattern.
    """
    return shown_path(", ".join(roots.unmatched_patterns(path)))


class RootFinder:
    """Finds the roots of files. `root_of` reads `.memoryignore` files, and blocks, only if roots contain each other."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._rules = ExclusionRules(roots)
        self._parents = frozenset(map(posixpath.dirname, roots.extras()))
        self._folders: dict[str, str] = {}

    def root_of(self, path: str) -> str:
        """Return the display path of the root whose discovery finds the file with a display path.

        It is the workspace if the path is in no root.
        """
        folder = posixpath.dirname(path)
        known = self._folders.get(folder)
        if known is not None:
            return known
        absolute = posixpath.normpath(posixpath.join(self._roots.base(), path))
        root = self._roots.display(self._rules.finding_root(absolute))
        # In the folder of the workspace, some files are its own memory; and a file can be a root.
        if folder and posixpath.dirname(absolute) not in self._parents:
            self._folders[folder] = root
        return root


_Top = tuple[str, tuple[str, ...]]
"""A root: an absolute folder, and the names below it."""


class ExclusionRules:
    """The rules that exclude files and folders. Reads each `.memoryignore` once. The methods block.

    Discovery lists a folder once. Of the roots that contain a file, the first one that enters its folder decides.
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._order = {extra: place for place, extra in enumerate(roots.extras())}
        self._rules: dict[_Top, IgnoreRules] = {}
        self._unusable: dict[_Top, str] = {}
        self._folders: dict[tuple[_Top, tuple[str, ...]], str] = {}
        # A line can have 64 KiB, and can exclude any number of files.
        self._texts: dict[tuple[_Top, int], str] = {}
        self._patterns: dict[str, str] = {}

    def rule_of(self, absolute: str, *, folder: bool) -> str:
        """Return the rule that excludes a normalized path; empty if none does.

        Raises:
            IgnoreFileUnusable: a `.memoryignore` cannot be used, and no rule of another root excludes the path.
        """
        if absolute in self._order:
            return ""
        texts, unusable = [], None
        for top in self._tops(absolute, folder=folder):
            names = tuple(absolute.removeprefix(posixpath.join(top[0], *top[1])).strip("/").split("/"))
            try:
                if text := self._folder_rule(top, names[:-1]):
                    texts.append(text)
                    continue
                texts = [self._own_rule(top, names, folder=folder)]
                break
            except IgnoreFileUnusable as error:
                unusable = error
        rule = next(iter(texts), "")
        if unusable is not None and not rule:
            raise unusable
        return rule

    def finding_root(self, absolute: str) -> str:
        """Return the absolute path of the root whose discovery finds a file.

        If none finds it, this is the first one that contains the path; the workspace if none contains it.
        """
        tops = self._tops(absolute, folder=False) or [(self._roots.base(), ())]
        for top in tops if len(tops) > 1 else ():
            if self._finds(top, absolute):
                return posixpath.join(top[0], *top[1])
        return posixpath.join(tops[0][0], *tops[0][1])

    def _finds(self, top: _Top, absolute: str) -> bool:
        """Return whether the discovery of a root enters the folder of a file, and if the file is a root, adds it."""
        folder = posixpath.join(top[0], *top[1])
        if folder == absolute:
            return True
        names = tuple(absolute.removeprefix(folder).strip("/").split("/"))
        try:
            if self._folder_rule(top, names[:-1]):
                return False
            return absolute not in self._order or not self._own_rule(top, names, folder=False)
        except IgnoreFileUnusable:
            return False

    def _tops(self, absolute: str, *, folder: bool) -> list[_Top]:
        """Return the roots that contain a path, in the order of discovery."""
        roots = self._roots
        is_own = is_own_memory(roots, posixpath.join(absolute, posixpath.curdir) if folder else absolute)
        extras = sorted(roots.extras_above(absolute), key=self._order.__getitem__)
        return [*([(roots.base(), ())] if is_own else []), *map(roots.anchor, extras)]

    def _folder_rule(self, top: _Top, names: tuple[str, ...]) -> str:
        """Return the rule that keeps the discovery of a root from entering a folder below it; empty if it enters it."""
        if not names:
            self._read(top)
            return ""
        if (top, names) not in self._folders:
            above = self._folder_rule(top, names[:-1])
            self._folders[top, names] = above or self._own_rule(top, names, folder=True)
        return self._folders[top, names]

    def _own_rule(self, top: _Top, names: tuple[str, ...], *, folder: bool) -> str:
        """Return the rule of a root that excludes a path below it; rules of the folders above are left out."""
        roots, absolute = self._roots, posixpath.join(top[0], *top[1], *names)
        # The patterns of extra paths do not apply to the workspace's own memory.
        if top != (roots.base(), ()) or not is_own_memory(roots, posixpath.join(absolute, posixpath.curdir)):
            is_selected = roots.may_include_below(absolute) if folder else roots.includes(absolute)
            if not is_selected:
                patterns = pattern_rule(roots, absolute)
                return self._patterns.setdefault(patterns, patterns)
        rule = self._read(top).rule_of(names, folder=folder)
        return "" if rule is None else self._text(top, rule)

    def _read(self, top: _Top) -> IgnoreRules:
        if top in self._unusable:
            raise IgnoreFileUnusable(self._unusable[top])
        if top not in self._rules:
            try:
                self._rules[top] = read_rules(*top)
            except IgnoreFileUnusable as error:
                self._unusable[top] = str(error)
                raise
        return self._rules[top]

    def _text(self, top: _Top, rule: IgnoreRule) -> str:
        if (top, rule.line) not in self._texts:
            file = self._roots.display(posixpath.join(top[0], *top[1], IGNORE_FILE))
            self._texts[top, rule.line] = shown_path(f"{file}:{rule.line}: {rule.text}")
        return self._texts[top, rule.line]
