"""Every file of the roots, and unreadable places.

Finds every memory file. Folders are listed through descriptors, files are only stat'ed, links are never followed.

Of files only those are read that say what a root leaves out.

Candidates in order: MEMORY.md, memory.md, memory/, then each extra path. A file that two of them reach, or that has
two names, counts once, under the name that comes first.

Where a missing file proves nothing, because the folder that would hold it could not be looked into.

A drive that is not mounted, a server that does not answer or a folder without permission hides files; nobody has
deleted them.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.model import FileFailure, Source, SourceFile
from memoryd_server.sources.files import file_stat, open_directory
from memoryd_server.sources.ignore import IGNORE_FILE, NO_RULES, IgnoreFileUnusable, IgnoreRules, read_rules
from memoryd_server.sources.roots import LONG_TERM_NAMES, MEMORY_FOLDER, SUFFIX, Roots, objection


@dataclass(frozen=True, slots=True)
class UnreadableFolder:
    """A place whose files could not be looked for.

    `prefixes` are the display paths it would hold: those that end in "/", or are empty, stand for all that begins so.
    With a `device` (st_dev), the place is there and empty, and only files indexed on another device are hidden: where
    a drive was mounted, an empty folder is left. Only files of `source` are meant.
    """

    place: str
    reason: str
    prefixes: tuple[str, ...]
    device: int | None = None
    source: Source = Source.MEMORY

    def would_hold(self, path: str) -> bool:
        """Tells whether the file with this display path would be found here."""
        return any(_begins(path, prefix) for prefix in self.prefixes)


def below(folder: str) -> str:
    """Returns the prefix that stands for all files below a folder's display path."""
    return "" if folder == "." else f"{folder}/"


def _begins(path: str, prefix: str) -> bool:
    if not prefix:
        return not path.startswith("../")
    return path.startswith(prefix) if prefix.endswith("/") else path == prefix


_WENT_AWAY = "went away while it was looked at"
_EMPTIED = "is empty, and its files were on another drive"


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found, by display path: `files` to index, `failures` that could not be, `issues` for the operator.

    A file that is not among them has been deleted, unless one of `unseen` would hold it.
    """

    files: tuple[SourceFile, ...]
    failures: tuple[FileFailure, ...]
    issues: tuple[str, ...]
    unseen: tuple[UnreadableFolder, ...] = ()


def discover_files(roots: Roots) -> Discovery:
    """Returns the memory files of `roots` in the order of their paths, but for those that a root leaves out.

    Reads folders and each root's `.memoryignore`, and opens no other file.

    What vanishes while it looks is left out without a word.
    """
    scan = _Scan()
    workspace = _look_up(roots.base())
    if isinstance(workspace, os.stat_result) and stat.S_ISDIR(workspace.st_mode):
        _scan_workspace(roots, scan, workspace)
    else:
        scan.issues.append(f"workspace {shown_path(roots.base())} does not exist or is not a folder")
        if isinstance(workspace, OSError):
            scan.hide(roots.base(), f"cannot be found: {workspace.strerror}", (*LONG_TERM_NAMES, below(MEMORY_FOLDER)))
    for extra in roots.extras():
        _scan_extra(roots, extra, scan)
    if not scan.files and not scan.failures:
        scan.issues.append("no memory files found")
    return scan.result()


@dataclass(slots=True)
class _Scan:
    """What has been found so far; folders and files are known by device and inode."""

    files: dict[tuple[int, int], SourceFile] = field(default_factory=dict)
    failures: list[FileFailure] = field(default_factory=list)
    issues: list[str] = field(default_factory=list)
    folders: set[tuple[int, int]] = field(default_factory=set)
    unseen: list[UnreadableFolder] = field(default_factory=list)

    def add(self, found: list[SourceFile]) -> None:
        # Sorted, so that of two hard links the same one wins whatever order the folder lists them in.
        for file in sorted(found, key=lambda file: file.path):
            self.files.setdefault((file.stat.device, file.stat.inode), file)

    def fail(self, path: str, error: str) -> None:
        self.failures.append(FileFailure(shown_path(path), Source.MEMORY, error))

    def fail_unseen(self, path: str, error: str) -> None:
        """Notes a file or folder as failed; what is below it is hidden, not gone."""
        self.fail(path, error)
        self.hide(path, error, (path, below(path)))

    def hide(self, place: str, reason: str, prefixes: tuple[str, ...]) -> None:
        self.unseen.append(UnreadableFolder(shown_path(place), reason, prefixes))

    def hide_if_empty(self, root: UnreadableFolder) -> None:
        """Notes an empty root: it may be where a drive is mounted at other times."""
        if not any(root.would_hold(file.path) for file in self.files.values()):
            self.unseen.append(root)

    def enter(self, descriptor: int) -> bool:
        """Tells whether this folder is new; a mount of a folder into itself would otherwise never end."""
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        known = key in self.folders
        self.folders.add(key)
        return not known

    def result(self) -> Discovery:
        files = sorted(self.files.values(), key=lambda file: file.path)
        failures = sorted(set(self.failures), key=lambda failure: failure.path)
        return Discovery(tuple(files), tuple(failures), tuple(self.issues), tuple(self.unseen))


@dataclass(frozen=True, slots=True)
class _Place:
    """A file or folder on the way: how it is shown, and how `contained` reaches it.

    `rules` are those of the folder that is `depth` parts below the root.
    """

    path: str
    root: str
    parts: tuple[str, ...]
    rules: IgnoreRules = NO_RULES
    depth: int = 0

    def child(self, name: str) -> "_Place":
        path = name if self.path == os.curdir else f"{self.path}/{name}"
        return replace(self, path=path, parts=(*self.parts, name))

    def left_out(self, *, folder: bool) -> bool:
        return self.rules.leaves_out(self.parts[self.depth :], folder=folder)


def _scan_workspace(roots: Roots, scan: _Scan, before: os.stat_result) -> None:
    workspace = _ruled(_Place(os.curdir, roots.base(), ()), (*LONG_TERM_NAMES, below(MEMORY_FOLDER)), scan)
    if workspace is None:
        return
    for name in LONG_TERM_NAMES:
        status = _status(workspace.child(name), scan)
        if status is not None and stat.S_ISREG(status.st_mode):
            _take(workspace.child(name), status, scan)
        elif status is not None:
            scan.issues.append(f"{name} is {_kind(status)}: skipped")
    memory = _scan_memory(workspace.child(MEMORY_FOLDER), scan)
    after = _look_up(roots.base())
    if not isinstance(after, os.stat_result) or not os.path.samestat(before, after):
        scan.hide(roots.base(), _WENT_AWAY, (*LONG_TERM_NAMES, below(MEMORY_FOLDER)))
    elif not scan.files:
        # A memory/ that is there has been judged by itself: it may be a drive of its own.
        own = LONG_TERM_NAMES if memory else (*LONG_TERM_NAMES, below(MEMORY_FOLDER))
        scan.unseen.append(UnreadableFolder(shown_path(roots.base()), _EMPTIED, own, before.st_dev))


def _scan_memory(folder: _Place, scan: _Scan) -> bool:
    """Looks into memory/; tells whether anything of that name is there."""
    status = _status(folder, scan)
    if status is None:
        scan.issues.append(f"the workspace has no {MEMORY_FOLDER} folder")
        return False
    if stat.S_ISDIR(status.st_mode):
        if not folder.left_out(folder=True):
            _scan_folder(folder, status, scan)
    else:
        scan.issues.append(f"{MEMORY_FOLDER} is {_kind(status)}, not a folder: skipped")
    return True


def _scan_extra(roots: Roots, extra: str, scan: _Scan) -> None:
    place = _Place(roots.display(extra), *roots.anchor(extra))
    status = _status(place, scan)
    if status is None:
        scan.issues.append(f"extra path {shown_path(extra)} is missing, unreadable or reached through a link")
        _hide_missing(place, extra, scan)
    elif stat.S_ISDIR(status.st_mode):
        folder = _ruled(place, (below(place.path),), scan)
        if folder is not None:
            _scan_folder(folder, status, scan)
    elif not stat.S_ISREG(status.st_mode):
        scan.issues.append(f"extra path {shown_path(extra)} is {_kind(status)}: skipped")
    elif extra.endswith(SUFFIX):
        _take(place, status, scan)
    else:
        scan.issues.append(f"extra path {shown_path(extra)} is a file that does not end in {SUFFIX}: skipped")


def _ruled(top: _Place, prefixes: tuple[str, ...], scan: _Scan) -> _Place | None:
    """Gives a root the rules that stand in it.

    None where they cannot be gone by: then nothing new of it is indexed, as it may be what is to be left out, and what
    is indexed stays.
    """
    try:
        return replace(top, rules=read_rules(top.root, top.parts), depth=len(top.parts))
    except IgnoreFileUnusable as error:
        scan.fail(top.child(IGNORE_FILE).path, f"nothing new beside it is indexed, as {error}")
        scan.hide(top.path, f"its {IGNORE_FILE} cannot be used: {error}", prefixes)
        return None


def _hide_missing(place: _Place, extra: str, scan: _Scan) -> None:
    """Notes that the files of an extra path cannot be looked for.

    An extra path that was a file is merely deleted while the folder that held it is there.
    """
    found = _look_up(extra, follow=False)
    if isinstance(found, FileNotFoundError):
        held = () if isinstance(_look_up(os.path.dirname(extra)), os.stat_result) else (place.path,)  # noqa: PTH120
        scan.hide(extra, f"cannot be found: {found.strerror}", (*held, below(place.path)))


def _scan_folder(folder: _Place, before: os.stat_result, scan: _Scan) -> None:
    _walk(folder, scan)
    after = _status(folder, scan)
    if after is None or not os.path.samestat(before, after):
        scan.hide(folder.path, _WENT_AWAY, (below(folder.path),))
    else:
        scan.hide_if_empty(UnreadableFolder(shown_path(folder.path), _EMPTIED, (below(folder.path),), before.st_dev))


def _look_up(path: str, *, follow: bool = True) -> os.stat_result | OSError:
    try:
        return os.stat(path, follow_symlinks=follow)  # noqa: PTH116 -- the error is an answer here
    except OSError as error:
        return error


def _status(place: _Place, scan: _Scan) -> os.stat_result | None:
    try:
        parent = open_directory(place.root, place.parts[:-1])
        try:
            return os.stat(place.parts[-1], dir_fd=parent, follow_symlinks=False) if place.parts else os.fstat(parent)
        finally:
            os.close(parent)
    except (FileNotFound, FileNotFoundError, PathNotAllowed):
        return None
    except OSError as error:
        scan.fail_unseen(place.path, f"cannot be read: {error.strerror}")
        return None


def _take(place: _Place, status: os.stat_result, scan: _Scan) -> None:
    if place.left_out(folder=False):
        return
    why = objection(place.path)
    if why:
        scan.fail(place.path, f"its name cannot be used: {why}")
    else:
        scan.add([SourceFile(place.path, Source.MEMORY, place.root, place.parts, file_stat(status))])


def _walk(top: _Place, scan: _Scan) -> None:
    # Each folder is opened afresh from the root: one descriptor at a time, however deep the tree.
    found: list[SourceFile] = []
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            waiting.extend(_list(folder, found, scan))
        except (FileNotFound, FileNotFoundError, PathNotAllowed):
            continue
        except OSError as error:
            scan.fail_unseen(folder.path, f"folder cannot be read: {error.strerror}")
    scan.add(found)


def _list(folder: _Place, found: list[SourceFile], scan: _Scan) -> list[_Place]:
    descriptor = open_directory(folder.root, folder.parts)
    try:
        if not scan.enter(descriptor):
            return []
        with os.scandir(descriptor) as entries:
            folders = [folder.child(entry.name) for entry in entries if not _is_leaf(entry, folder, found, scan)]
            return [each for each in folders if not each.left_out(folder=True)]
    finally:
        os.close(descriptor)


def _is_leaf(entry: os.DirEntry[str], folder: _Place, found: list[SourceFile], scan: _Scan) -> bool:
    """Notes `entry` if it is a memory file; tells whether it is anything but a folder."""
    if entry.is_dir(follow_symlinks=False):
        return False
    if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
        found.extend(_source_file(entry, folder.child(entry.name), scan))
    return True


def _source_file(entry: os.DirEntry[str], place: _Place, scan: _Scan) -> Iterator[SourceFile]:
    if place.left_out(folder=False):
        return
    why = objection(place.path)
    if why:
        scan.fail(place.path, f"its name cannot be used: {why}")
        return
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    yield SourceFile(place.path, Source.MEMORY, place.root, place.parts, file_stat(status))


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device, a pipe or a socket")
