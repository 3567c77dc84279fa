"""Path rules: which paths are memory. Pure string operations without access to the file system.

Allowed are `MEMORY.md`, `memory.md`, paths below `memory/`, and extra paths with everything below them. A path has one
canonical form, its display path; "memory/../MEMORY.md" and "memory//a.md" are refused rather than normalized.
"""

import posixpath
from dataclasses import dataclass

from memoryd_server.errors import PathNotAllowed
from memoryd_server.model import Source

LONG_TERM_NAMES = ("MEMORY.md", "memory.md")
MEMORY_FOLDER = "memory"
SUFFIX = ".md"


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders of one agent. `workspace` is absolute.

    `extra_paths` may be relative to the workspace, with "~" already expanded.
    """

    workspace: str
    extra_paths: tuple[str, ...] = ()

    def base(self) -> str:
        """Return the workspace without "..", "//" or a trailing slash. Links are not resolved."""
        return posixpath.normpath(self.workspace)

    def extras(self) -> tuple[str, ...]:
        """Return the extra paths, absolute and normalized, without duplicates, in the configured order."""
        absolute = (posixpath.normpath(posixpath.join(self.base(), extra)) for extra in self.extra_paths)
        return tuple(dict.fromkeys(absolute))

    def display(self, absolute: str) -> str:
        """Return `absolute` as a display path: relative to the workspace, "." for the workspace itself."""
        return posixpath.relpath(absolute, self.base())

    def anchor(self, absolute: str) -> tuple[str, tuple[str, ...]]:
        """Split `absolute` into the folder that the owner configured and the components that must not be links.

        The folder is the workspace, or the parent of the outermost extra path. A process that can write inside a root
        can therefore not replace a folder below it, or an extra path itself, by a link.
        """
        base = self.base()
        holders = [extra for extra in self.extras() if is_within(absolute, extra)]
        if is_within(absolute, base) or not holders:
            return base, _components(absolute, base)
        root = posixpath.dirname(min(holders, key=len))
        return root, _components(absolute, root)


@dataclass(frozen=True, slots=True)
class Location:
    """The location of an allowed path: `parts` are the components below the absolute folder `root`."""

    path: str
    root: str
    parts: tuple[str, ...]
    source: Source = Source.MEMORY


def resolve_path(roots: Roots, path: str) -> Location:
    """Return the location of a display path, or of an absolute path inside the roots. Touches no file.

    Raises:
        PathNotAllowed: the path is not a memory file, is outside the roots or not in canonical form.
    """
    absolute = _absolute(roots, path)
    if not (_is_memory(roots, absolute) or any(is_within(absolute, extra) for extra in roots.extras())):
        raise PathNotAllowed(path, "only MEMORY.md, memory.md, memory/ and the extra paths can be read")
    return _location(roots, absolute, path)


def resolve_for_append(roots: Roots, path: str) -> Location:
    """Return the location of a path in the workspace's own memory. Extra paths are never written.

    Raises:
        PathNotAllowed: the path is not MEMORY.md, memory.md or a Markdown file under memory/.
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
