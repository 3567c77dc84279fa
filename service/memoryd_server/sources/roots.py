"""Which paths are memory, decided on strings alone: nothing here asks the file system.

Allowed are `MEMORY.md`, `memory.md`, what lies under `memory/`, and what lies under (or is) an extra path. A path has
one spelling, its display path; "memory/../MEMORY.md" or "memory//a.md" are refused rather than tidied up.
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
    """The folders of one agent: `workspace` is absolute, `extra_paths` may be relative to it and "~" is expanded."""

    workspace: str
    extra_paths: tuple[str, ...] = ()

    def base(self) -> str:
        """Returns the workspace without "..", "//" or a trailing slash; links in it are left alone."""
        return posixpath.normpath(self.workspace)

    def extras(self) -> tuple[str, ...]:
        """Returns the extra paths, absolute and normal, each once, in the order configured."""
        absolute = (posixpath.normpath(posixpath.join(self.base(), extra)) for extra in self.extra_paths)
        return tuple(dict.fromkeys(absolute))

    def display(self, absolute: str) -> str:
        """Returns `absolute` as hits show it: relative to the workspace, "." for the workspace itself."""
        return posixpath.relpath(absolute, self.base())

    def anchor(self, absolute: str) -> tuple[str, tuple[str, ...]]:
        """Splits `absolute` into the folder the owner vouches for and the components that must not be links.

        The folder is the workspace, or the parent of the outermost extra path: whoever can write inside a root can
        then not swap any folder below it, nor an extra path itself, for a link.
        """
        base = self.base()
        holders = [extra for extra in self.extras() if is_within(absolute, extra)]
        if is_within(absolute, base) or not holders:
            return base, _components(absolute, base)
        root = posixpath.dirname(min(holders, key=len))
        return root, _components(absolute, root)


@dataclass(frozen=True, slots=True)
class Location:
    """Where an allowed path points: `parts` are the components below the absolute folder `root`."""

    path: str
    root: str
    parts: tuple[str, ...]
    source: Source = Source.MEMORY


def resolve_path(roots: Roots, path: str) -> Location:
    """Returns where a display path, or an absolute path inside the roots, points. Touches no file.

    Raises:
        PathNotAllowed: the path is no memory file, lies outside the roots or is not in its one spelling.
    """
    absolute = _absolute(roots, path)
    if not (_is_memory(roots, absolute) or any(is_within(absolute, extra) for extra in roots.extras())):
        raise PathNotAllowed(path, "only MEMORY.md, memory.md, memory/ and the extra paths can be read")
    return _location(roots, absolute, path)


def resolve_for_append(roots: Roots, path: str) -> Location:
    """Returns where a path of the workspace's own memory points; extra paths are never written.

    Raises:
        PathNotAllowed: the path is not MEMORY.md, memory.md or a Markdown file under memory/.
    """
    absolute = _absolute(roots, path)
    if not _is_memory(roots, absolute):
        raise PathNotAllowed(path, "only MEMORY.md, memory.md and memory/ of the workspace can be appended to")
    return _location(roots, absolute, path)


def objection(path: str) -> str:
    """Returns why `path` can be no memory path whatever the roots are, "" when nothing speaks against it."""
    if not path:
        return "it is empty"
    if "\0" in path:
        return "it contains a NUL character"
    if not path.endswith(SUFFIX):
        return f"it does not end in {SUFFIX}"
    if not _is_utf8(path):
        return "it is not valid UTF-8"
    if any(_climbs_by_backslash(part) for part in path.split("/")):
        return "it uses backslashes to climb"
    return ""


def is_within(absolute: str, folder: str) -> bool:
    """Tells whether the normal path `absolute` is `folder` or lies below it."""
    return absolute == folder or absolute.startswith(folder.rstrip("/") + "/")


def _absolute(roots: Roots, path: str) -> str:
    why = objection(path)
    if why:
        raise PathNotAllowed(path, why)
    if _is_plain(path):
        return posixpath.join(roots.base(), path)
    absolute = posixpath.normpath(posixpath.join(roots.base(), path))
    spelling = absolute if posixpath.isabs(path) else roots.display(absolute)
    # POSIX lets exactly two leading slashes mean something of their own, and normpath keeps them.
    if path != spelling or path.startswith("//"):
        raise PathNotAllowed(path, 'it is not in its plain form, without ".", ".." or "//" inside')
    return absolute


def _is_plain(path: str) -> bool:
    """Whether a path is relative, in its one spelling, and does not climb: the rule, and quickly told."""
    return not path.startswith(("/", "..")) and path == posixpath.normpath(path)


def _is_memory(roots: Roots, absolute: str) -> bool:
    if not is_within(absolute, roots.base()):
        return False
    parts = _components(absolute, roots.base())
    return parts in {(name,) for name in LONG_TERM_NAMES} or (len(parts) > 1 and parts[0] == MEMORY_FOLDER)


def _location(roots: Roots, absolute: str, path: str) -> Location:
    root, parts = roots.anchor(absolute)
    # One that is relative is in its one spelling, which is the display path.
    return Location(roots.display(absolute) if posixpath.isabs(path) else path, root, parts)


def _components(absolute: str, folder: str) -> tuple[str, ...]:
    return tuple(part for part in absolute[len(folder) :].split("/") if part)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _climbs_by_backslash(component: str) -> bool:
    # A backslash is an ordinary character of a name here, but a reader elsewhere may take it for a separator.
    pieces = component.split("\\")
    return len(pieces) > 1 and any(piece in {"", ".", ".."} for piece in pieces)
