"""CopiedFolder: lists, hashes and writes the memory files in the folder of a copy. Follows no link below it."""

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memoryd_server.errors import FileBusy, FileNotFound, FileReplaced, MemorydError, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.sources import (
    CURATED_NAMES,
    DREAM_NAMES,
    IGNORE_FILE,
    MEMORY_FOLDER,
    MOST_FOLDERS,
    REPAIR_FOLDER,
    SUFFIX,
    Location,
    Roots,
    open_directory,
    open_file,
    resolve_for_append,
)
from memoryd_server.writing import write_new

NAMES_WITHOUT_HISTORY: Final = frozenset({IGNORE_FILE, *DREAM_NAMES})
"""Files that are copied although the API cannot write them. The history does not keep their replaced contents."""

_NAMES: Final = NAMES_WITHOUT_HISTORY | frozenset(CURATED_NAMES)

# Constant, so that the next export into the folder removes the temporary files of one that was killed.
_DRAFT: Final = ".memoryd-export"
_NEW_DRAFT: Final = ".memoryd-export.new"

_NOT_REGULAR: Final = "it is a link or a special file"


@dataclass(slots=True)
class FolderListing:
    """The files to copy, sorted; files that cannot be copied, with the reasons; and files that are not Markdown."""

    paths: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def open_folder(folder: Path) -> int:
    """Return a descriptor of a folder, which may be given as a link. The caller closes it.

    Raises:
        FileNotFound: it does not exist.
        PathNotAllowed: it is not a folder.
        PermissionError: it cannot be read.
    """
    try:
        return open_directory(str(folder), ())
    except FileNotFound as error:
        shown = shown_path(str(folder))
        raise FileNotFound(f"the folder {shown!r} does not exist", metadata={"path": shown}) from error
    except PathNotAllowed as error:
        raise PathNotAllowed(shown_path(str(folder)), "it is not a folder") from error


class CopiedFolder:
    """The memory files in a folder. Blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roots = Roots(str(folder))

    def files(self) -> FolderListing:
        """Return the files in the folder that can be memory, with the `.memoryignore`.

        Raises:
            FileNotFound, PathNotAllowed, PermissionError: as `open_folder`.
        """
        os.close(open_folder(self._folder))
        listing = FolderListing()
        waiting = self._add_folder((), listing)
        while waiting:
            waiting += self._add_folder(waiting.pop(), listing)
        listing.paths.sort()
        return listing

    def _add_folder(self, parts: tuple[str, ...], listing: FolderListing) -> list[tuple[str, ...]]:
        """Add the files of a folder to the listing; return the folders in it."""
        folders: list[tuple[str, ...]] = []
        try:
            folder = open_directory(str(self._folder), parts)
        except FileNotFound:
            return []
        except PathNotAllowed as error:
            listing.skipped[shown_path("/".join(parts))] = error.message
            return []
        except OSError as error:
            listing.skipped[shown_path("/".join(parts))] = f"it cannot be read: {error.strerror}"
            return []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if parts or entry.name in _NAMES or entry.name == MEMORY_FOLDER:
                        folders += self._add(parts, entry, listing)
        except OSError as error:
            listing.skipped[shown_path("/".join(parts))] = f"it cannot be read: {error.strerror}"
        finally:
            os.close(folder)
        return folders

    def _add(self, parts: tuple[str, ...], entry: "os.DirEntry[str]", listing: FolderListing) -> list[tuple[str, ...]]:
        path = "/".join((*parts, entry.name))
        if entry.is_dir(follow_symlinks=False):
            if entry.name == REPAIR_FOLDER or path in _NAMES:
                return []
            # Each folder is opened from the root, so the depth bounds the cost.
            if len(parts) >= MOST_FOLDERS:
                listing.skipped[shown_path(path)] = f"it is a folder below {MOST_FOLDERS} others"
                return []
            return [(*parts, entry.name)]
        if parts and not entry.name.endswith(SUFFIX) and not entry.is_symlink():
            listing.others.append(shown_path(path))
        elif not entry.is_file(follow_symlinks=False):
            listing.skipped[shown_path(path)] = _NOT_REGULAR
        elif problem := self.problem(path):
            listing.skipped[shown_path(path)] = problem
        else:
            listing.paths.append(path)
        return []

    def problem(self, path: str) -> str:
        """Return why a path cannot be that of a copied file; empty if it can."""
        if path in _NAMES:
            return ""
        try:
            resolve_for_append(self._roots, path)
        except PathNotAllowed as error:
            return error.message
        return ""

    def location(self, path: str) -> Location:
        """Return the location of a path without a `problem`."""
        return Location(path, str(self._folder), tuple(path.split("/")))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process export into the folder until the block ends, if the file system supports locks.

        Raises:
            FileBusy: another process exports into it.
            FileNotFound, PathNotAllowed, PermissionError: as `open_folder`.
        """
        folder = open_folder(self._folder)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                words = "is in use by another export; wait until it ends"
                raise FileBusy(shown_path(str(self._folder)), words) from error
            except OSError:
                pass
            yield
        finally:
            os.close(folder)

    def remove_drafts(self, paths: Iterable[str]) -> None:
        """Remove temporary files of an export that was killed, from the folders of some files."""
        for parts in {tuple(path.split("/")[:-1]) for path in paths}:
            with suppress(MemorydError, OSError):
                folder = open_directory(str(self._folder), parts)
                try:
                    for draft in (_DRAFT, _NEW_DRAFT):
                        with suppress(FileNotFoundError):
                            os.unlink(draft, dir_fd=folder)
                finally:
                    os.close(folder)

    def sha256(self, path: str) -> bytes | None:
        """Return the hash of a file, or None if it does not exist. Reads it in blocks.

        Raises:
            PathNotAllowed: it is a link, leads through one, or is not a regular file.
            OSError: it cannot be read.
        """
        location = self.location(path)
        try:
            descriptor = open_file(location.root, location.parts)
        except FileNotFound:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    def create(self, path: str, data: bytes, mtime_ns: int) -> bool:
        """Write a durable new file with a modification time; return False if it exists. A crash leaves no partial file.

        Raises:
            PathNotAllowed, FileNotFound, FileReplaced: a folder above it is a link or a file, or is being replaced.
            OSError: the file system refuses it.
        """
        return write_new(self.location(path), data, _DRAFT, mtime_ns=mtime_ns)

    def replace(self, path: str, data: bytes, mtime_ns: int) -> None:
        """Replace a file atomically and durably. Sets its time, and keeps its permissions.

        Raises:
            PathNotAllowed: the file has become a link or a special file.
            FileNotFound, FileReplaced, OSError: as `create`.
        """
        location = self.location(path)
        *folders, name = location.parts
        draft = Location(path, location.root, (*folders, _DRAFT))
        folder = open_directory(location.root, folders)
        try:
            # The permissions of a link would let everyone write.
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                raise PathNotAllowed(path, _NOT_REGULAR)
            with suppress(FileNotFoundError):
                os.unlink(_DRAFT, dir_fd=folder)
            if not write_new(draft, data, _NEW_DRAFT, mtime_ns=mtime_ns, mode=mode & 0o777):
                raise FileReplaced(path)
            os.rename(_DRAFT, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with suppress(OSError):
                os.unlink(_DRAFT, dir_fd=folder)
            os.close(folder)
