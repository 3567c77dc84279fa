"""Path rules: which paths are memory. Pure string operations without access to the file system.

Allowed are `MEMORY.md`, `memory.md`, paths below `memory/`, and extra paths with everything below them. A path has one
canonical form, its display path; "memory/../MEMORY.md" and "memory//a.md" are refused rather than normalized.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memoryd_server.errors import PathNotAllowed
from memoryd_server.model import Source

LONG_TERM_NAMES = ("MEMORY.md", "memory.md")
MEMORY_FOLDER = "memory"
SUFFIX = ".md"

MOST_FOLDERS = 64
"""The most folders between a root and a memory file. Deeper files are not memory: each step of a path is opened."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders of one agent. `workspace` is absolute.

    `extra_paths` may be relative to the workspace, with "~" already expanded.
    """

    workspace: str
    extra_paths: tuple[str, ...] = ()
    _base: str = field(init=False, repr=False, compare=False)
    # The normalized extra paths, in the configured order.
    _extras: Mapping[str, None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = posixpath.normpath(self.workspace)
        absolute = (posixpath.normpath(posixpath.join(base, extra)) for extra in self.extra_paths)
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_extras", dict.fromkeys(absolute))

    def base(self) -> str:
        """Return the workspace without "..", "//" or a trailing slash. Links are not resolved."""
        return self._base

    def extras(self) -> tuple[str, ...]:
        """Return the extra paths, absolute and normalized, without duplicates, in the configured order."""
        return tuple(self._extras)

    def outermost_extra(self, absolute: str) -> str:
        """Return the outermost extra path that is or contains the normalized path `absolute`; empty if there is none.

        The cost depends on the length of the path, not on the number of extra paths.
        """
        end = absolute.find("/") + 1 if self._extras else 0
        while end:
            # The root folder is the only one whose name ends in a slash.
            folder = absolute[: max(end - 1, 1)]
            if folder in self._extras:
                return folder
            end = absolute.find("/", end) + 1
        return absolute if absolute in self._extras else ""

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

    `database` is the gateway's database that contains the transcript with this name; empty for a file.
    """

    path: str
    root: str
    parts: tuple[str, ...]
    source: Source = Source.MEMORY
    database: str = ""


def resolve_path(roots: Roots, path: str) -> Location:
    """Return the location of a display path, or of an absolute path inside the roots. Touches no file.

    Raises:
        PathNotAllowed: the path is not a memory file, is outside the roots, too deep or not in canonical form.
    """
    absolute = _absolute(roots, path)
    if not (_is_memory(roots, absolute) or roots.outermost_extra(absolute)):
        raise PathNotAllowed(path, "only MEMORY.md, memory.md, memory/ and the extra paths can be read")
    return _location(roots, absolute, path)


def resolve_for_append(roots: Roots, path: str) -> Location:
    """Return the location of a path in the workspace's own memory. Extra paths are never written.

    Raises:
        PathNotAllowed: the path is not MEMORY.md, memory.md or a Markdown file under memory/, or is too deep.
    """
    absolute = _absolute(roots, path)
    if not _is_memory(roots, absolute):
        raise PathNotAllowed(path, "only MEMORY.md, memory.md and memory/ of the workspace can be appended to")
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


def _is_memory(roots: Roots, absolute: str) -> bool:
    if not is_within(absolute, roots.base()):
        return False
    parts = _components(absolute, roots.base())
    return parts in {(name,) for name in LONG_TERM_NAMES} or (len(parts) > 1 and parts[0] == MEMORY_FOLDER)


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
