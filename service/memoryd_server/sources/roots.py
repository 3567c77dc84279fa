"""Path rules: which paths are memory. Pure string operations without access to the file system.

Memory are `MEMORY.md`, `memory.md` and `USER.md`, paths below `memory/`, and extra paths with the files below them that
their patterns match. Files in folders named `.openclaw-repair` are not memory. `DREAMS.md` can be read, but is not
memory. A path has one canonical form, its display path; "memory/../MEMORY.md" and "memory//a.md" are refused rather
than normalized.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memoryd_server.errors import PathNotAllowed
from memoryd_server.globs import Glob
from memoryd_server.model import Source

LONG_TERM_NAMES = ("MEMORY.md", "memory.md")
USER_FILE = "USER.md"
CURATED_NAMES = (*LONG_TERM_NAMES, USER_FILE)
"""The files of the workspace's folder that are memory."""

DREAM_NAMES = ("DREAMS.md", "dreams.md")
"""Files of the workspace's folder in which OpenClaw describes its consolidation of memory. Readable, never indexed."""

MEMORY_FOLDER = "memory"
REPAIR_FOLDER = ".openclaw-repair"
"""The name of folders in which OpenClaw keeps copies of the files that it repaired. Their files are not memory."""

SUFFIX = ".md"

MOST_FOLDERS = 64
"""The most folders between a root and a memory file. Deeper files are not memory: each step of a path is opened."""


@dataclass(frozen=True, slots=True)
class ExtraPath:
    """A file or folder outside the workspace's own memory. An empty `pattern` selects every file of a folder."""

    path: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders of one agent. `workspace` is absolute.

    `extra_paths` may be relative to the workspace, with "~" already expanded. A string is a path without a pattern. One
    folder may have several patterns; its files are those that one of them matches.

    Raises:
        GlobError: a pattern cannot be used.
    """

    workspace: str
    extra_paths: tuple[str | ExtraPath, ...] = ()
    _base: str = field(init=False, repr=False, compare=False)
    # The normalized extra paths, in the configured order, with their patterns. Without patterns, all files are memory.
    _extras: Mapping[str, tuple[Glob, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = posixpath.normpath(self.workspace)
        patterns: dict[str, dict[str, None]] = {}
        for extra in self.extra_paths:
            path, pattern = (extra, "") if isinstance(extra, str) else (extra.path, extra.pattern)
            patterns.setdefault(posixpath.normpath(posixpath.join(base, path)), {})[pattern] = None
        extras = {path: () if "" in each else tuple(map(Glob.parse, each)) for path, each in patterns.items()}
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_extras", extras)

    def base(self) -> str:
        """Return the workspace without "..", "//" or a trailing slash. Links are not resolved."""
        return self._base

    def extras(self) -> tuple[str, ...]:
        """Return the extra paths, absolute and normalized, without duplicates, in the configured order."""
        return tuple(self._extras)

    def extras_above(self, absolute: str) -> tuple[str, ...]:
        """Return the extra paths that are or contain a normalized path, the outermost first."""
        return tuple(self._extras_above(absolute))

    def patterns(self, extra: str) -> tuple[Glob, ...]:
        """Return the patterns of an extra path of `extras`; none if all its files are memory."""
        return self._extras[extra]

    def has_patterns(self) -> bool:
        """Return whether an extra path has a pattern."""
        return any(self._extras.values())

    def outermost_extra(self, absolute: str) -> str:
        """Return the outermost extra path that is or contains the normalized path `absolute`; empty if there is none.

        The cost depends on the length of the path, not on the number of extra paths.
        """
        return next(self._extras_above(absolute), "")

    def includes(self, absolute: str) -> bool:
        """Return whether the file at this normalized path is memory, if it is a Markdown file."""
        return is_own_memory(self, absolute) or any(
            self._selects(extra, absolute) for extra in self._extras_above(absolute)
        )

    def unmatched_patterns(self, path: str) -> tuple[str, ...]:
        """Return the patterns of the extra paths that contain a display path, none of which matches it.

        Empty if the path is memory, or in no extra path with a pattern.
        """
        absolute = posixpath.normpath(posixpath.join(self.base(), path))
        if self.includes(absolute):
            return ()
        return tuple(glob.text for extra in self._extras_above(absolute) for glob in self._extras[extra])

    def may_include_below(self, absolute: str) -> bool:
        """Return whether a file below this normalized folder may be memory because of an extra path that contains it.

        Used to skip folders during discovery. Extra paths below the folder are not considered.
        """
        for extra in self._extras_above(absolute):
            globs, names = self._extras[extra], _components(absolute, extra)
            if not globs or any(glob.may_match_below(names) for glob in globs):
                return True
        return False

    def _selects(self, extra: str, absolute: str) -> bool:
        globs = self._extras[extra]
        if is_in_repair_folder(absolute):
            return False
        return not globs or absolute == extra or any(glob.matches(_components(absolute, extra)) for glob in globs)

    def _extras_above(self, absolute: str) -> Iterator[str]:
        """Yield the extra paths that are or contain a normalized path, the outermost first."""
        end = absolute.find("/") + 1 if self._extras else 0
        while end:
            # The root folder is the only one whose name ends in a slash.
            folder = absolute[: max(end - 1, 1)]
            if folder in self._extras:
                yield folder
            end = absolute.find("/", end) + 1
        if absolute in self._extras and absolute != "/":
            yield absolute

    def display(self, absolute: str) -> str:
        """Return `absolute` as a display path: relative to the workspace, "." for the workspace itself."""
        return posixpath.relpath(absolute, self.base())

    def anchor(self, absolute: str) -> tuple[str, tuple[str, ...]]:
        """Split `absolute` into the folder that the owner configured and the components that must not be links.

        The folder is the workspace, or the parent of the outermost extra path. A process that can write inside a root
        can therefore not replace a folder below it, or an extra path itself, by a link.
        """
        base, extra = self.base(), self.outermost_extra(absolute)
        if is_within(absolute, base) or not extra:
            return base, _components(absolute, base)
        root = posixpath.dirname(extra)
        return root, _components(absolute, root)


@dataclass(frozen=True, slots=True)
class Location:
    """The location of an allowed path: `parts` are the components below the absolute folder `root`.

    `database` is the gateway's database that contains the transcript with this name, and `agent_id`
    the agent to which it must belong; both are empty for a file.
    """

    path: str
    root: str
    parts: tuple[str, ...]
    source: Source = Source.MEMORY
    database: str = ""
    agent_id: str = ""


def resolve_path(roots: Roots, path: str) -> Location:
    """Return the location of a display path, or of an absolute path inside the roots. Touches no file.

    Raises:
        PathNotAllowed: the path is not a memory file, is outside the roots, too deep or not in canonical form.
    """
    absolute = _absolute(roots, path)
    if not roots.includes(absolute):
        raise _not_memory(path)
    return _location(roots, absolute, path)


def resolve_dreams(roots: Roots, path: str) -> Location | None:
    """Return the location of `DREAMS.md` in the workspace's folder, which can be read; None for any other path."""
    name = path.removeprefix(f"{roots.base()}/")
    return Location(name, roots.base(), (name,)) if name in DREAM_NAMES else None


def resolve_for_append(roots: Roots, path: str) -> Location:
    """Return the location of a path in the workspace's own memory. Extra paths are never written.

    Raises:
        PathNotAllowed: the path is not MEMORY.md, memory.md, USER.md or a Markdown file under memory/, or is too deep.
    """
    absolute = _absolute(roots, path)
    if not is_own_memory(roots, absolute):
        raise PathNotAllowed(path, "only MEMORY.md, memory.md, USER.md and memory/ of the workspace can be written")
    return _location(roots, absolute, path)


def path_problem(path: str) -> str:
    """Return why `path` cannot be a memory path under any roots, or "" if it can."""
    if not path:
        return "it is empty"
    if "\0" in path:
        return "it contains a NUL character"
    if not path.endswith(SUFFIX):
        return f"it does not end in {SUFFIX}"
    if not _is_utf8(path):
        return "it is not valid UTF-8"
    if any(_climbs_with_backslashes(part) for part in path.split("/")):
        return 'it has "", "." or ".." between backslashes'
    return ""


def is_too_deep(parts: Sequence[str]) -> bool:
    """Return whether a file at `parts`, the components below its root, is below more than `MOST_FOLDERS` folders."""
    return len(parts) - 1 > MOST_FOLDERS


def is_within(absolute: str, folder: str) -> bool:
    """Return whether the normalized path `absolute` is `folder` or is below it."""
    return absolute == folder or absolute.startswith(folder.rstrip("/") + "/")


def _absolute(roots: Roots, path: str) -> str:
    problem = path_problem(path)
    if problem:
        raise PathNotAllowed(path, problem)
    if _is_canonical(path):
        return posixpath.join(roots.base(), path)
    absolute = posixpath.normpath(posixpath.join(roots.base(), path))
    spelling = absolute if posixpath.isabs(path) else roots.display(absolute)
    # POSIX gives two leading slashes an implementation-defined meaning, and normpath keeps them.
    if path != spelling or path.startswith("//"):
        raise PathNotAllowed(path, 'it is not in canonical form, without ".", ".." and "//"')
    return absolute


def _is_canonical(path: str) -> bool:
    """Return whether a path is relative, canonical and without "..": a fast check for the common case."""
    return not path.startswith(("/", "..")) and path == posixpath.normpath(path)


def is_own_memory(roots: Roots, absolute: str) -> bool:
    """Return whether the file at this normalized path is memory of the workspace, independently of extra paths."""
    if not is_within(absolute, roots.base()):
        return False
    parts = _components(absolute, roots.base())
    if parts[:1] != (MEMORY_FOLDER,):
        return len(parts) == 1 and parts[0] in CURATED_NAMES
    return len(parts) > 1 and REPAIR_FOLDER not in parts


def is_in_repair_folder(absolute: str) -> bool:
    """Return whether a component of an absolute path is the name of OpenClaw's folder of repaired files."""
    return f"/{REPAIR_FOLDER}/" in f"{absolute}/"


def _not_memory(path: str) -> PathNotAllowed:
    return PathNotAllowed(
        path,
        "only MEMORY.md, memory.md, USER.md, DREAMS.md, memory/ and the extra paths can be read, and of an extra path "
        "with a pattern only the files that match it",
    )


def _location(roots: Roots, absolute: str, path: str) -> Location:
    root, parts = roots.anchor(absolute)
    if is_too_deep(parts):
        raise PathNotAllowed(path, f"it leads through {len(parts) - 1} folders, more than the {MOST_FOLDERS} allowed")
    # A relative path is canonical here, so it is the display path.
    return Location(roots.display(absolute) if posixpath.isabs(path) else path, root, parts)


def _components(absolute: str, folder: str) -> tuple[str, ...]:
    return tuple(part for part in absolute[len(folder) :].split("/") if part)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _climbs_with_backslashes(component: str) -> bool:
    # A backslash is an ordinary character of a name here, but other systems may read it as a separator.
    pieces = component.split("\\")
    return len(pieces) > 1 and any(piece in {"", ".", ".."} for piece in pieces)
