"""Discovery of memory files, and of places where files may be hidden.

Folders are listed through descriptors, files are only stat'ed, and symbolic links are never followed. The only files
that are read are `.memoryignore` files.

Candidates in order: MEMORY.md, memory.md, USER.md, memory/, then each extra path. A file that two candidates contain,
or that has two names, counts once, under the first name. Folders named `.openclaw-repair` are skipped, and so are
folders in which the patterns of extra paths match no file.

A missing file counts as deleted only if its folder could be read. An unmounted drive, an unresponsive server or a
folder without permission hides files without deleting them; `UnreadableFolder` describes such a place.
"""

import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.model import FileFailure, Source, SourceFile
from memoryd_server.sources.exclusions import LINK, MOST_EXCLUDED, SECOND_NAME, ExcludedPaths, ExcludedPlace
from memoryd_server.sources.files import file_stat, open_directory
from memoryd_server.sources.ignore import IGNORE_FILE, NO_RULES, IgnoreFileUnusable, IgnoreRules, read_rules
from memoryd_server.sources.roots import (
    CURATED_NAMES,
    MEMORY_FOLDER,
    MOST_FOLDERS,
    REPAIR_FOLDER,
    SUFFIX,
    Location,
    Roots,
    is_in_repair_folder,
    is_too_deep,
    path_problem,
)


@dataclass(frozen=True, slots=True)
class UnreadableFolder:
    """A place that could not be searched for files.

    `prefixes` are the display paths of the files in this place. A prefix that ends in "/", or is empty, covers all
    paths below it. If `device` (st_dev) is set, the place is an empty folder, possibly an unused mount point, and only
    files that were indexed on another device count as hidden. Only files of `source` are affected; of `database`, only
    the transcripts in a database, otherwise only files.
    """

    place: str
    reason: str
    prefixes: tuple[str, ...]
    device: int | None = None
    source: Source = Source.MEMORY
    database: bool = False

    def would_hold(self, path: str) -> bool:
        """Return whether this place would contain the file with this display path."""
        return any(_begins(path, prefix) for prefix in self.prefixes)


def below(folder: str) -> str:
    """Return the prefix of all files below a folder's display path."""
    return "" if folder == "." else f"{folder}/"


def _begins(path: str, prefix: str) -> bool:
    if not prefix:
        return not path.startswith("../")
    return path.startswith(prefix) if prefix.endswith("/") else path == prefix


_DISAPPEARED = "disappeared while it was read"
_EMPTIED = "is empty, but its files were indexed on another drive"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a discovery: `files` to index, `failures` that cannot be indexed, and `issues` for the operator.

    A file that is not in `files` or `failures` was deleted, unless an `unseen` place would contain it.
    """

    files: tuple[SourceFile, ...]
    failures: tuple[FileFailure, ...]
    issues: tuple[str, ...]
    unseen: tuple[UnreadableFolder, ...] = ()


def discover_files(roots: Roots) -> Discovery:
    """Return the memory files of `roots` sorted by path, without ignored files.

    Reads folders and the `.memoryignore` of each root, and opens no other file. A file that disappears during the
    discovery is omitted.
    """
    scan = _Scan()
    _scan_roots(roots, scan)
    if not scan.files and not scan.failures:
        scan.issues.append("no memory files found")
    return scan.result()


def has_memory_files(workspace: str) -> bool:
    """Return whether a workspace has a memory file, also one that is ignored. Stops at the first one.

    Links are not followed, and folders that cannot be read are skipped.
    """
    for name in CURATED_NAMES:
        with suppress(OSError):
            if stat.S_ISREG(os.lstat(posixpath.join(workspace, name)).st_mode):
                return True
    below_memory = os.walk(posixpath.join(workspace, MEMORY_FOLDER))
    return any(name.endswith(SUFFIX) for _, _, names in below_memory for name in names)


def excluded_places(roots: Roots, most: int = MOST_EXCLUDED) -> list[ExcludedPlace]:
    """Return at most `most` files and folders that discovery leaves out because of a rule, and the rules; in no order.

    Also returned are second names of files, and symbolic links that have the name of a memory file or could be folders.
    Nothing is returned for a root whose `.memoryignore` cannot be used. Costs as much as a discovery.
    """
    excluded = ExcludedPaths(most)
    _scan_roots(roots, _Scan(excluded=excluded))
    return excluded.places(roots)


def _scan_roots(roots: Roots, scan: "_Scan") -> None:
    workspace = _stat_path(roots.base())
    if isinstance(workspace, os.stat_result) and stat.S_ISDIR(workspace.st_mode):
        _scan_workspace(roots, scan, workspace)
    else:
        scan.issues.append(f"workspace {shown_path(roots.base())} does not exist or is not a folder")
        if isinstance(workspace, OSError):
            scan.hide(roots.base(), f"cannot be found: {workspace.strerror}", (*CURATED_NAMES, below(MEMORY_FOLDER)))
    for extra in roots.extras():
        _scan_extra(roots, extra, scan)


def is_discoverable(roots: Roots, file: Location) -> bool:
    """Return whether discovery finds an existing file below the workspace's memory/, without looking at other files.

    False if only discovery can decide this. It finds a file that has several names under one of them only. Reads
    `.memoryignore`.
    """
    if file.root != roots.base() or file.parts[0] != MEMORY_FOLDER or REPAIR_FOLDER in file.parts:
        return False
    try:
        rules = read_rules(file.root, ())
    except IgnoreFileUnusable:
        return False
    return not (rules.ignores_folder(file.parts[:-1]) or rules.ignores(file.parts, folder=False))


@dataclass(slots=True)
class _Scan:
    """The state of a discovery. Files and folders are identified by device and inode.

    `excluded` collects what is left out because of a rule, if it is not None.
    """

    files: dict[tuple[int, int], SourceFile] = field(default_factory=dict)
    failures: list[FileFailure] = field(default_factory=list)
    issues: list[str] = field(default_factory=list)
    folders: set[tuple[int, int]] = field(default_factory=set)
    unseen: list[UnreadableFolder] = field(default_factory=list)
    excluded: ExcludedPaths | None = None

    def exclude(self, path: str, reason: str = "") -> None:
        if self.excluded is not None:
            self.excluded.add(path, reason)

    def add(self, found: list[SourceFile]) -> None:
        # Sorted, so that one of two hard links is chosen independently of the folder's listing order.
        for file in sorted(found, key=lambda file: file.path):
            first = self.files.setdefault((file.stat.device, file.stat.inode), file)
            if first is not file and _absolute(first) != _absolute(file):
                self.exclude(file.path, SECOND_NAME)

    def fail(self, path: str, error: str) -> None:
        self.failures.append(FileFailure(shown_path(path), Source.MEMORY, error))

    def fail_unseen(self, path: str, error: str) -> None:
        """Record a file or folder as failed. Files below it count as hidden, not as deleted."""
        self.fail(path, error)
        self.hide(path, error, (path, below(path)))

    def hide(self, place: str, reason: str, prefixes: tuple[str, ...]) -> None:
        self.unseen.append(UnreadableFolder(shown_path(place), reason, prefixes))

    def hide_if_empty(self, root: UnreadableFolder) -> None:
        """Record a root without files as a possible mount point."""
        # The files of this root are the last ones.
        if not any(root.would_hold(file.path) for file in reversed(self.files.values())):
            self.unseen.append(root)

    def enter(self, descriptor: int) -> bool:
        """Return whether this folder is new.

        Without this check, a folder mounted into itself would be listed forever.
        """
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        known = key in self.folders
        self.folders.add(key)
        return not known

    def result(self) -> Discovery:
        files = sorted(self.files.values(), key=lambda file: file.path)
        failures = sorted(set(self.failures), key=lambda failure: failure.path)
        return Discovery(tuple(files), tuple(failures), tuple(self.issues), tuple(self.unseen))


def _absolute(file: SourceFile) -> str:
    return posixpath.join(file.root, *file.parts)


@dataclass(frozen=True, slots=True)
class _Place:
    """A file or folder during discovery: its display path, and its location for `sources.files`.

    `rules` are the rules of the folder `depth` parts below the root. `extras` is set below an extra path if there are
    patterns.
    """

    path: str
    root: str
    parts: tuple[str, ...]
    rules: IgnoreRules = NO_RULES
    depth: int = 0
    extras: Roots | None = None

    def child(self, name: str) -> "_Place":
        path = name if self.path == os.curdir else f"{self.path}/{name}"
        return replace(self, path=path, parts=(*self.parts, name))

    def is_ignored(self, *, folder: bool) -> bool:
        return self.rules.ignores(self.parts[self.depth :], folder=folder)

    def is_selected(self, *, folder: bool) -> bool:
        """Return whether the file is memory, or the folder may contain memory."""
        if folder and self.parts[-1] == REPAIR_FOLDER:
            return False
        if self.extras is None:
            return True
        absolute = posixpath.join(self.root, *self.parts)
        return self.extras.may_include_below(absolute) if folder else self.extras.includes(absolute)


def _scan_workspace(roots: Roots, scan: _Scan, before: os.stat_result) -> None:
    workspace = _with_rules(_Place(os.curdir, roots.base(), ()), (*CURATED_NAMES, below(MEMORY_FOLDER)), scan)
    if workspace is None:
        return
    for name in CURATED_NAMES:
        status = _status(workspace.child(name), scan)
        if status is not None and stat.S_ISREG(status.st_mode):
            _add_file(workspace.child(name), status, scan)
        elif status is not None:
            scan.issues.append(f"{name} is {_describe_kind(status)}: skipped")
            if stat.S_ISLNK(status.st_mode):
                scan.exclude(name, LINK)
    # If the workspace is an extra path as well, its notes are in folders of the user's own.
    memory = _scan_memory(workspace.child(MEMORY_FOLDER), scan, is_expected=roots.base() not in roots.extras())
    after = _stat_path(roots.base())
    if not isinstance(after, os.stat_result) or not os.path.samestat(before, after):
        scan.hide(roots.base(), _DISAPPEARED, (*CURATED_NAMES, below(MEMORY_FOLDER)))
    elif not scan.files:
        # An existing memory/ has been checked already; it may be a separate mount point.
        own = CURATED_NAMES if memory else (*CURATED_NAMES, below(MEMORY_FOLDER))
        scan.unseen.append(UnreadableFolder(shown_path(roots.base()), _EMPTIED, own, before.st_dev))


def _scan_memory(folder: _Place, scan: _Scan, *, is_expected: bool) -> bool:
    """Scan memory/ and return whether a file or folder with this name exists. If it is missing but expected, say so."""
    status = _status(folder, scan)
    if status is None:
        if is_expected:
            scan.issues.append(f"the workspace has no {MEMORY_FOLDER} folder")
        return False
    if stat.S_ISDIR(status.st_mode):
        if folder.is_ignored(folder=True):
            scan.exclude(below(folder.path))
        else:
            _scan_folder(folder, status, scan)
    else:
        if stat.S_ISLNK(status.st_mode):
            scan.exclude(folder.path, LINK)
        scan.issues.append(f"{MEMORY_FOLDER} is {_describe_kind(status)}, not a folder: skipped")
    return True


def _scan_extra(roots: Roots, extra: str, scan: _Scan) -> None:
    place = _Place(roots.display(extra), *roots.anchor(extra), extras=roots if roots.has_patterns() else None)
    if is_in_repair_folder(extra):
        scan.issues.append(f"extra path {shown_path(extra)} is in a folder named {REPAIR_FOLDER}: skipped")
        return
    status = _status(place, scan)
    if status is None:
        scan.issues.append(f"extra path {shown_path(extra)} is missing, unreadable or reached through a link")
        _hide_missing(place, extra, scan)
    elif stat.S_ISDIR(status.st_mode):
        folder = _with_rules(place, (below(place.path),), scan)
        if folder is not None:
            _scan_folder(folder, status, scan)
            _check_patterns(roots, extra, scan)
    elif not stat.S_ISREG(status.st_mode):
        scan.issues.append(f"extra path {shown_path(extra)} is {_describe_kind(status)}: skipped")
    elif is_too_deep(place.parts):
        scan.issues.append(f"extra path {shown_path(extra)} is below more than {MOST_FOLDERS} folders: skipped")
    elif extra.endswith(SUFFIX):
        _add_file(place, status, scan)
    else:
        scan.issues.append(f"extra path {shown_path(extra)} is a file that does not end in {SUFFIX}: skipped")


def _check_patterns(roots: Roots, extra: str, scan: _Scan) -> None:
    patterns, files = roots.patterns(extra), below(roots.display(extra))
    if patterns and not any(_begins(file.path, files) for file in scan.files.values()):
        shown = ", ".join(shown_path(pattern.text) for pattern in patterns)
        scan.issues.append(f"no file of extra path {shown_path(extra)} matches its pattern: {shown}")


def _with_rules(top: _Place, prefixes: tuple[str, ...], scan: _Scan) -> _Place | None:
    """Return the root with the rules of its `.memoryignore`.

    Return None if the file cannot be used. Then no new file of the root is indexed, because it may be an ignored one,
    and the indexed files are kept.
    """
    try:
        return replace(top, rules=read_rules(top.root, top.parts), depth=len(top.parts))
    except IgnoreFileUnusable as error:
        scan.fail(top.child(IGNORE_FILE).path, f"no new files next to it are indexed: {error}")
        scan.hide(top.path, f"its {IGNORE_FILE} cannot be used: {error}", prefixes)
        return None


def _hide_missing(place: _Place, extra: str, scan: _Scan) -> None:
    """Record the files of a missing extra path as hidden.

    An extra path that was a file counts as deleted if its folder exists.
    """
    found = _stat_path(extra, follow=False)
    if isinstance(found, FileNotFoundError):
        held = () if isinstance(_stat_path(os.path.dirname(extra)), os.stat_result) else (place.path,)  # noqa: PTH120
        scan.hide(extra, f"cannot be found: {found.strerror}", (*held, below(place.path)))


def _scan_folder(folder: _Place, before: os.stat_result, scan: _Scan) -> None:
    _walk(folder, scan)
    after = _status(folder, scan)
    if after is None or not os.path.samestat(before, after):
        scan.hide(folder.path, _DISAPPEARED, (below(folder.path),))
    else:
        scan.hide_if_empty(UnreadableFolder(shown_path(folder.path), _EMPTIED, (below(folder.path),), before.st_dev))


def _stat_path(path: str, *, follow: bool = True) -> os.stat_result | OSError:
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


def _add_file(place: _Place, status: os.stat_result, scan: _Scan) -> None:
    if place.is_ignored(folder=False):
        scan.exclude(place.path)
        return
    problem = path_problem(place.path)
    if problem:
        scan.fail(place.path, f"its name cannot be used: {problem}")
    else:
        scan.add([SourceFile(place.path, Source.MEMORY, place.root, place.parts, file_stat(status))])


def _walk(top: _Place, scan: _Scan) -> None:
    # Each folder is opened from the root, so that few descriptors are open at a time. `MOST_FOLDERS` bounds the cost.
    found: list[SourceFile] = []
    too_deep: list[_Place] = []
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        if len(folder.parts) > MOST_FOLDERS:
            too_deep.append(folder)
            continue
        try:
            waiting.extend(_list(folder, found, scan))
        except (FileNotFound, FileNotFoundError, PathNotAllowed):
            continue
        except OSError as error:
            scan.fail_unseen(folder.path, f"folder cannot be read: {error.strerror}")
    scan.add(found)
    if too_deep:
        scan.issues.append(
            f"{len(too_deep)} folders are more than {MOST_FOLDERS} levels deep, and their files are not indexed; the "
            f"first is {shown_path(min(each.path for each in too_deep))}"
        )


def _list(folder: _Place, found: list[SourceFile], scan: _Scan) -> list[_Place]:
    descriptor = open_directory(folder.root, folder.parts)
    try:
        if not scan.enter(descriptor):
            return []
        with os.scandir(descriptor) as entries:
            folders = [folder.child(entry.name) for entry in entries if not _is_leaf(entry, folder, found, scan)]
    finally:
        os.close(descriptor)
    selected = [each for each in folders if each.is_selected(folder=True) and not each.is_ignored(folder=True)]
    if scan.excluded is not None:
        entered = {each.path for each in selected}
        for each in folders:
            if each.path not in entered:
                scan.exclude(below(each.path))
    return selected


def _is_leaf(entry: os.DirEntry[str], folder: _Place, found: list[SourceFile], scan: _Scan) -> bool:
    """Add `entry` to `found` if it is a memory file. Return whether it is not a folder."""
    if entry.is_dir(follow_symlinks=False):
        return False
    if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
        found.extend(_source_file(entry, folder.child(entry.name), scan))
    elif scan.excluded is not None and entry.is_symlink() and _could_be_memory(entry.name):
        scan.exclude(folder.child(entry.name).path, LINK)
    return True


def _could_be_memory(name: str) -> bool:
    """Return whether a link with this name could be one to a memory file or a folder. The link is not followed."""
    return name.endswith(SUFFIX) or not posixpath.splitext(name)[1]


def _source_file(entry: os.DirEntry[str], place: _Place, scan: _Scan) -> Iterator[SourceFile]:
    if not place.is_selected(folder=False) or place.is_ignored(folder=False):
        scan.exclude(place.path)
        return
    problem = path_problem(place.path)
    if problem:
        scan.fail(place.path, f"its name cannot be used: {problem}")
        return
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    yield SourceFile(place.path, Source.MEMORY, place.root, place.parts, file_stat(status))


def _describe_kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device, a pipe or a socket")
