"""What a watcher looks at: which folders it enters and whose changes count.

Ignored names are judged below the watched folder only: a workspace that itself lives under ".venv" is watched all the
same. What a root's `.memoryignore` leaves out is not watched either.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from memoryd_server.errors import MemorydError
from memoryd_server.sources.contained import open_directory
from memoryd_server.sources.ignoring import IGNORE_FILE, NO_RULES, IgnoreFileUnusable, IgnoreRules, read_rules
from memoryd_server.sources.roots import LONG_TERM_NAMES, MEMORY_FOLDER, SUFFIX, Roots, is_within
from memoryd_server.sources.transcripts import SESSIONS_FOLDER, is_transcript

IGNORED_FOLDERS = frozenset({".git", "node_modules", ".pnpm-store", ".venv", "venv", ".tox", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Scope:
    """A folder to watch. `files` and `folders` name what counts directly in it; None stands for everything.

    In one of `transcripts` these count, and nothing else. What `ignored` leaves out is neither entered nor counted.

    `identity` is the device and inode of the folder, so that one deleted and made again is another scope.
    """

    top: str
    identity: tuple[int, int]
    files: frozenset[str] | None = None
    folders: frozenset[str] | None = None
    transcripts: bool = False
    ignored: IgnoreRules = NO_RULES

    def enters(self, parts: tuple[str, ...]) -> bool:
        """Tells whether the folder `parts` below the top is watched."""
        if any(part.lower() in IGNORED_FOLDERS for part in parts):
            return False
        wanted = not parts or self.folders is None or parts[0] in self.folders
        return wanted and not self.ignored.leaves_out_folders(parts)

    def counts(self, parts: tuple[str, ...]) -> bool:
        """Tells whether a change of the file `parts` below the top, in a watched folder, is worth a sync."""
        if self.transcripts:
            return len(parts) == 1 and is_transcript(parts[0])
        if parts == (IGNORE_FILE,):
            return True
        wanted = parts[-1].endswith(SUFFIX) and (len(parts) > 1 or self.files is None or parts[0] in self.files)
        return wanted and not self.ignored.leaves_out(parts, folder=False)

    def covers(self, absolute: str) -> bool:
        """Tells whether a change of the file at this normal path, links above the top resolved, is one to be told."""
        if not is_within(absolute, self.top):
            return False
        parts = tuple(part for part in absolute[len(self.top) :].split("/") if part)
        return bool(parts) and self.enters(parts[:-1]) and self.counts(parts)


@dataclass(frozen=True, slots=True)
class Target:
    """A root by its display path, with its scope or, while it cannot be watched, the reason."""

    display: str
    scope: Scope | None
    reason: str = ""

    def is_same_folder(self, other: "Target") -> bool:
        """Tells whether both are one folder on disk, whatever its rules leave out."""
        if self.scope is None or other.scope is None:
            return self == other
        return self == replace(other, scope=replace(other.scope, ignored=self.scope.ignored))


def targets(roots: Roots) -> Iterator[Target]:
    """Yields the workspace (its long-term files and memory/), then each extra path, as they stand now."""
    files, folders = frozenset(LONG_TERM_NAMES), frozenset({MEMORY_FOLDER})
    yield _ruled(_target(os.curdir, roots.base(), (), files, folders), roots.base(), ())
    for extra in roots.extras():
        root, parts = roots.anchor(extra)
        display = roots.display(extra)
        if parts and _is_plain_file(extra):
            yield _target(display, root, parts[:-1], frozenset({parts[-1]}), frozenset())
        else:
            yield _ruled(_target(display, root, parts, None, None), root, parts)


def sessions_target(folder: str) -> Target:
    """The folder of an agent's transcripts, as it stands now."""
    found = _target(SESSIONS_FOLDER, folder, (), None, frozenset())
    return found if found.scope is None else replace(found, scope=replace(found.scope, transcripts=True))


def _ruled(target: Target, root: str, parts: tuple[str, ...]) -> Target:
    if target.scope is None:
        return target
    try:
        return replace(target, scope=replace(target.scope, ignored=read_rules(root, parts)))
    except IgnoreFileUnusable:
        # Discovery tells of it; meanwhile everything is watched.
        return target


def _target(
    display: str, root: str, parts: tuple[str, ...], files: frozenset[str] | None, folders: frozenset[str] | None
) -> Target:
    try:
        descriptor = open_directory(root, parts)
    except (MemorydError, OSError):
        return Target(display, None, "the folder is missing, unreadable or reached through a link")
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    # inotify wants a path; above the root links are the owner's choice, below it `open_directory` found none.
    top = str(Path(os.path.realpath(root), *parts))
    return Target(display, Scope(top, (status.st_dev, status.st_ino), files, folders))


def _is_plain_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
