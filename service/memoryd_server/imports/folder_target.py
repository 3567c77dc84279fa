"""FolderNotes and FolderTranscripts: the notes of an import in a workspace, and its transcripts in a folder.

Each file is written in one step, below its root and without following links. A process that is killed leaves whole
files, and at most one temporary file, which the next import removes. The names of new files are made durable together,
at the end of the import: after a power failure before it, a repeated import writes what is missing.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from memoryd_server.errors import ContentChanged, FileBusy, FileNotFound, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.model import Source
from memoryd_server.renames import Renames
from memoryd_server.sources import (
    SESSIONS_FOLDER,
    SUFFIX,
    FileTooLarge,
    Location,
    Roots,
    open_directory,
    open_for_append,
    read_file,
    resolve_for_append,
)
from memoryd_server.writing import EditedFile, file_errors, open_for_edit, sync_folders, write_new

# Constant, so that the next import removes the temporary files of one that was killed.
_DRAFT: Final = ".memoryd-import"

_MOST_BYTES: Final = 1 << 30


class FolderNotes:
    """The notes in an agent's workspace, as `NoteStore` describes it. Use it within `locked`.

    With `dry_run`, temporary files of an earlier import are not removed.
    """

    def __init__(self, roots: Roots, max_file_bytes: int, *, dry_run: bool = False) -> None:
        self._roots = roots
        self._max_file_bytes = max_file_bytes
        self._dry_run = dry_run
        self._folders: set[tuple[str, ...]] = set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process import into the workspace until the block ends, if the file system supports locks.

        The new files are durable at the end of the block.

        Raises:
            FileBusy: another process imports into it.
            FileNotFound, PathNotAllowed: the workspace does not exist, or is not a folder.
        """
        with _locked(self._roots.base()):
            try:
                yield
            finally:
                with file_errors(self._roots.base()), suppress(FileNotFoundError):
                    for folders in sorted(self._folders):
                        sync_folders(self._roots.base(), folders)

    def paths(self, folder: str) -> list[str]:
        """Return the display paths of the Markdown files in a folder, none if it does not exist.

        Raises:
            PathNotAllowed: the folder is a link, or leads through one.
        """
        try:
            descriptor = open_directory(self._roots.base(), folder.split("/"))
        except FileNotFound:
            return []
        try:
            if not self._dry_run:
                _remove_drafts(descriptor)
            with os.scandir(descriptor) as entries:
                return sorted(f"{folder}/{entry.name}" for entry in entries if entry.name.endswith(SUFFIX))
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist.

        Raises:
            PathNotAllowed: it is a link or a special file, leads through a link, or is too large.
        """
        return _read(resolve_for_append(self._roots, path), self._max_file_bytes)

    def create(self, path: str, data: bytes, mtime_ns: int | None) -> bool:
        """Write a new file, and the folders above it; return False if the path is taken. Raises as `NoteStore`."""
        location = resolve_for_append(self._roots, path)
        is_new = _create(location, data, mtime_ns)
        if is_new:
            self._folders.add(location.parts[:-1])
        return is_new

    def replace(self, path: str, data: bytes, expected: bytes, mtime_ns: int | None) -> bool:
        """Replace a file; return False if its SHA-256 is not `expected`. Raises as `NoteStore`."""
        location = resolve_for_append(self._roots, path)
        return _change(location, expected, lambda file: file.replace(data, _DRAFT, mtime_ns=mtime_ns))

    def delete(self, path: str, expected: bytes) -> bool:
        """Delete a file; return False if its SHA-256 is not `expected`. Raises as `NoteStore`."""
        return _change(resolve_for_append(self._roots, path), expected, lambda file: file.delete(_DRAFT))


class FolderTranscripts:
    """The transcripts in an agent's folder of sessions, as `TranscriptStore` describes it. Use it within `locked`."""

    def __init__(self, folder: Path, *, dry_run: bool = False) -> None:
        self._folder = folder
        self._dry_run = dry_run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and let no other process import into it until the block ends.

        A dry run creates and locks nothing.

        Raises:
            FileBusy: another process imports into it.
            PathNotAllowed: it is not a folder.
            WorkspaceReadOnly: it cannot be created.
        """
        if self._dry_run:
            yield
            return
        with file_errors(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(str(self._folder)) as descriptor:
            _remove_drafts(descriptor)
            try:
                yield
            finally:
                os.fsync(descriptor)

    def read(self, session_id: str) -> bytes | None:
        """Return the bytes of a transcript; None if it does not exist. Raises as `FolderNotes.read`."""
        return _read(self._location(session_id), _MOST_BYTES)

    def create(self, session_id: str, data: bytes, mtime_ns: int | None) -> bool:
        """Write a new transcript; return False if it exists. Raises as `NoteStore`."""
        return _create(self._location(session_id), data, mtime_ns, mode=0o600)

    def replace(self, session_id: str, data: bytes, before: bytes, mtime_ns: int | None) -> bool:
        """Replace a transcript, or extend it; return False if its content is not `before`. Raises as `NoteStore`.

        A transcript that is extended keeps its inode, so that only the new part is indexed.
        """
        location = self._location(session_id)
        if not data.startswith(before):
            expected = sha256(before).digest()
            return _change(location, expected, lambda file: file.replace(data, _DRAFT, mtime_ns=mtime_ns))
        with file_errors(location.path), os.fdopen(open_for_append(location), "ab") as file:
            if os.fstat(file.fileno()).st_size != len(before):
                return False
            file.write(data[len(before) :])
            file.flush()
            if mtime_ns is not None:
                os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
            os.fsync(file.fileno())
        return True

    def _location(self, session_id: str) -> Location:
        name = f"{session_id}.jsonl"
        return Location(f"{SESSIONS_FOLDER}/{name}", str(self._folder), (name,), Source.SESSIONS)


@contextmanager
def _locked(folder: str) -> Iterator[int]:
    try:
        descriptor = open_directory(folder, ())
    except FileNotFound as error:
        shown = shown_path(folder)
        why = "does not exist; run `memoryd init` to set up a memory, or create the folder"
        raise FileNotFound(f"the folder {shown!r} {why}", metadata={"path": shown}) from error
    except PathNotAllowed as error:
        raise PathNotAllowed(shown_path(folder), "it is not a folder") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileBusy(folder, "is in use by another import; wait until it ends") from error
        except OSError:
            # The file system has no locks.
            pass
        yield descriptor
    finally:
        os.close(descriptor)


def _read(location: Location, most_bytes: int) -> bytes | None:
    try:
        return read_file(location, most_bytes)[0]
    except FileNotFound:
        return None
    except FileTooLarge as error:
        raise PathNotAllowed(location.path, f"the file has more than {most_bytes} bytes") from error


def _create(location: Location, data: bytes, mtime_ns: int | None, mode: int | None = None) -> bool:
    with file_errors(location.path):
        return write_new(location, data, _DRAFT, mtime_ns=mtime_ns, mode=mode, durable_name=False)


def _change(location: Location, expected: bytes, change: Callable[[EditedFile], None]) -> bool:
    """Change a file if it has the expected SHA-256; return whether it was changed."""
    with (
        file_errors(location.path),
        suppress(ContentChanged),
        open_for_edit(location, _MOST_BYTES, Renames()) as file,
    ):
        if file is not None and sha256(file.data).digest() == expected:
            change(file)
            return True
    return False


def _remove_drafts(folder: int) -> None:
    for draft in (_DRAFT, f"{_DRAFT}-old"):
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
