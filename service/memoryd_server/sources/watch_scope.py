"""The scope of a watch, the state of a watched root, and mounts without file events.

A scope decides which folders are watched and whose changes count. Ignored folder names apply below the watched folder
only: a workspace that is itself below ".venv" is watched. Files that `.memoryignore` excludes are not watched.

The protocols between `Watcher` and the native and polling watches are here too.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from memoryd_server.errors import MemorydError
from memoryd_server.globs import Glob
from memoryd_server.sources.files import open_directory
from memoryd_server.sources.ignore import IGNORE_FILE, NO_RULES, IgnoreFileUnusable, IgnoreRules, read_rules
from memoryd_server.sources.roots import (
    CURATED_NAMES,
    MEMORY_FOLDER,
    MOST_FOLDERS,
    REPAIR_FOLDER,
    SUFFIX,
    Roots,
    is_in_repair_folder,
    is_within,
)
from memoryd_server.sources.transcripts import SESSIONS_FOLDER, is_transcript

IGNORED_FOLDERS = frozenset(
    {".git", "node_modules", ".pnpm-store", ".venv", "venv", ".tox", "__pycache__", REPAIR_FOLDER}
)


@dataclass(frozen=True, slots=True)
class WatchScope:
    """A folder to watch. `files` and `folders` are the names that count directly in it; None means all.

    If `transcripts` is set, only transcripts count. Paths that `ignored` excludes are neither entered nor counted, nor
    are those that none of the `patterns` of an extra path matches.

    `identity` is the device and inode of the folder, so that a folder that was deleted and re-created is another scope.
    """

    top: str
    identity: tuple[int, int]
    files: frozenset[str] | None = None
    folders: frozenset[str] | None = None
    transcripts: bool = False
    ignored: IgnoreRules = NO_RULES
    patterns: tuple[Glob, ...] = ()

    def enters(self, parts: tuple[str, ...]) -> bool:
        """Return whether the folder `parts` below the top is watched."""
        if len(parts) > MOST_FOLDERS or any(part.lower() in IGNORED_FOLDERS for part in parts):
            return False
        if self.patterns and not any(pattern.may_match_below(parts) for pattern in self.patterns):
            return False
        wanted = not parts or self.folders is None or parts[0] in self.folders
        return wanted and not self.ignored.ignores_folder(parts)

    def counts(self, parts: tuple[str, ...]) -> bool:
        """Return whether a change of the file `parts` below the top, in a watched folder, requires a sync."""
        if self.transcripts:
            return len(parts) == 1 and is_transcript(parts[0])
        if parts == (IGNORE_FILE,):
            return True
        wanted = parts[-1].endswith(SUFFIX) and (len(parts) > 1 or self.files is None or parts[0] in self.files)
        if self.patterns and not any(pattern.matches(parts) for pattern in self.patterns):
            return False
        return wanted and not self.ignored.ignores(parts, folder=False)

    def covers(self, absolute: str) -> bool:
        """Return whether a change of the file at this normalized path counts. Links above the top must be resolved."""
        if not is_within(absolute, self.top):
            return False
        parts = tuple(part for part in absolute[len(self.top) :].split("/") if part)
        return bool(parts) and self.enters(parts[:-1]) and self.counts(parts)


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """A root by its display path, with its scope or, if it cannot be watched, the reason."""

    display: str
    scope: WatchScope | None
    reason: str = ""

    def is_same_folder(self, other: "WatchTarget") -> bool:
        """Return whether both are the same folder on disk, independently of its ignore rules."""
        if self.scope is None or other.scope is None:
            return self == other
        return self == replace(other, scope=replace(other.scope, ignored=self.scope.ignored))


def targets(roots: Roots) -> Iterator[WatchTarget]:
    """Yield the workspace (its curated files and memory/), then each extra path, in their current state."""
    files, folders = frozenset(CURATED_NAMES), frozenset({MEMORY_FOLDER})
    yield _with_rules(_make_target(os.curdir, roots.base(), (), files, folders), roots.base(), ())
    for extra in roots.extras():
        root, parts = roots.anchor(extra)
        display = roots.display(extra)
        if is_in_repair_folder(extra):
            yield WatchTarget(display, None, f"it is in a folder named {REPAIR_FOLDER}, which is not memory")
        elif parts and _is_plain_file(extra):
            yield _make_target(display, root, parts[:-1], frozenset({parts[-1]}), frozenset())
        else:
            target = _make_target(display, root, parts, None, None)
            yield _with_rules(_with_patterns(target, roots.patterns(extra)), root, parts)


def sessions_target(folder: str) -> WatchTarget:
    """Return the folder of an agent's transcripts in its current state."""
    target = _make_target(SESSIONS_FOLDER, folder, (), None, frozenset())
    return target if target.scope is None else replace(target, scope=replace(target.scope, transcripts=True))


def _with_patterns(target: WatchTarget, patterns: tuple[Glob, ...]) -> WatchTarget:
    return target if target.scope is None else replace(target, scope=replace(target.scope, patterns=patterns))


def _with_rules(target: WatchTarget, root: str, parts: tuple[str, ...]) -> WatchTarget:
    if target.scope is None:
        return target
    try:
        return replace(target, scope=replace(target.scope, ignored=read_rules(root, parts)))
    except IgnoreFileUnusable:
        # Discovery reports the error. Until it is fixed, everything is watched.
        return target


def _make_target(
    display: str, root: str, parts: tuple[str, ...], files: frozenset[str] | None, folders: frozenset[str] | None
) -> WatchTarget:
    try:
        descriptor = open_directory(root, parts)
    except (MemorydError, OSError):
        return WatchTarget(display, None, "the folder is missing, unreadable or reached through a link")
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    # inotify needs a path. Links above the root are the owner's choice; `open_directory` found none below it.
    top = str(Path(os.path.realpath(root), *parts))
    return WatchTarget(display, WatchScope(top, (status.st_dev, status.st_ino), files, folders))


def _is_plain_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


class WatcherMode(StrEnum):
    """How changes of a root are detected; the names of the wire's enum. A missing root is DEAD."""

    NATIVE = "NATIVE"
    POLLING = "POLLING"
    DEAD = "DEAD"
    OFF = "OFF"


@dataclass(frozen=True, slots=True)
class WatchedRoot:
    """The state of one root. `reason` is why it is not NATIVE, and `present` is whether the folder exists."""

    root: str
    mode: WatcherMode
    reason: str = ""
    present: bool = True


class ScopeWatch(Protocol):
    """The watch of one scope."""

    def start(self) -> None:
        """Start to report changes.

        Raises:
            OSError: the scope cannot be watched.
        """

    def stop(self) -> None:
        """Stop, and release all resources."""

    def problem(self) -> str:
        """Return why changes are no longer seen, or "" while they are."""


class NativeReader(Protocol):
    """The shared part of the native watches of one watcher."""

    def watch(self, scope: WatchScope, on_change: Callable[[], None]) -> ScopeWatch:
        """Return a watch of `scope`, not started."""

    def is_alive(self) -> bool:
        """Return whether events still arrive."""

    def stop(self) -> None:
        """Stop all watches."""


@dataclass(frozen=True, slots=True)
class RootWatch:
    """A root and its watch; `reason` is why the mode is not NATIVE."""

    target: WatchTarget
    watch: ScopeWatch | None
    mode: WatcherMode
    reason: str = ""

    def is_healthy(self) -> bool:
        """Return whether changes of the root are seen."""
        return self.watch is not None and not self.watch.problem()

    def status(self) -> WatchedRoot:
        """Return the state of the root according to its watch."""
        problem = self.watch.problem() if self.watch else ""
        if problem:
            return WatchedRoot(self.target.display, WatcherMode.DEAD, problem)
        return WatchedRoot(self.target.display, self.mode, self.reason, present=self.target.scope is not None)

    def status_at(self, now: WatchTarget) -> WatchedRoot:
        """Return the state of the root, given its current state `now` on disk."""
        if now.scope is None:
            return WatchedRoot(now.display, WatcherMode.DEAD, now.reason, present=False)
        if not now.is_same_folder(self.target):
            return WatchedRoot(
                now.display, WatcherMode.DEAD, "the folder was replaced; the next reconcile pass watches the new one"
            )
        return self.status()

    def stop(self) -> None:
        """Stop the watch of the root, if any."""
        if self.watch:
            # A watch that cannot be removed no longer exists.
            with suppress(OSError):
                self.watch.stop()


MOUNT_TABLE = Path("/proc/self/mountinfo")

_WITHOUT_EVENTS = frozenset({"9p", "afs", "ceph", "cifs", "drvfs", "fakeowner", "lustre", "ncpfs", "nfs", "nfs4"}) | {
    *("fuse.grpcfuse", "fuse.osxfs", "fuse.sshfs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs")
}


def file_system_of(path: Path, table: Path = MOUNT_TABLE) -> str:
    """Return the type of the file system that holds `path`, such as "ext4", or "" if the table does not list it."""
    real = str(path.resolve())
    holders = [mount for mount in _mounts(table) if is_within(real, mount[0])]
    # Of several mounts on one mount point, the last one is visible.
    return max(reversed(holders), key=lambda mount: len(mount[0]), default=("", ""))[1]


def is_remote(file_system: str) -> bool:
    """Return whether files on such a file system are stored on another machine, or on the host of a virtual machine."""
    return file_system in _WITHOUT_EVENTS or file_system.startswith("fuse.")


def mount_without_events(scope: WatchScope, table: Path = MOUNT_TABLE) -> str:
    """Return the type of a mount without events that holds the scope's top, or a folder it enters; "" if none."""
    mounts = list(_mounts(table))
    holder = max(
        (mount for mount in mounts if is_within(scope.top, mount[0])), key=lambda mount: len(mount[0]), default=None
    )
    inside = [mount for mount in mounts if is_within(mount[0], scope.top) and scope.enters(_below(mount[0], scope.top))]
    kinds = [kind for _, kind in [*inside, *([holder] if holder else [])] if kind in _WITHOUT_EVENTS]
    return kinds[0] if kinds else ""


def _below(path: str, top: str) -> tuple[str, ...]:
    return tuple(part for part in path[len(top) :].split("/") if part)


def _mounts(table: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        # "36 35 98:0 /root /mount/point rw,... [optional fields] - type source options", blanks as \\040.
        fields, _, tail = line.partition(" - ")
        point = fields.split(" ")[4:5]
        kind = tail.split(" ")[:1]
        if point and kind:
            yield point[0].replace("\\040", " "), kind[0]
