"""FolderWriter: writes an agent's memory files in its workspace, which people and other programs edit too."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from memoryd_server.errors import MemorydError
from memoryd_server.sources import MEMORY_FOLDER, Location, Roots, open_directory, resolve_for_append
from memoryd_server.store import WriteHistory
from memoryd_server.writing.append import Appender, AppendJob, AppendReceipt
from memoryd_server.writing.deletion import SeenFile, delete_file, restore_files
from memoryd_server.writing.edit_jobs import EditJob, WriteReceipt
from memoryd_server.writing.editor import Editor
from memoryd_server.writing.files import file_errors, write_new
from memoryd_server.writing.memory_writer import PAUSE_SECONDS

_DRAFT_SUFFIX: Final = "archive.tmp"
# No file takes so long to create. A younger temporary file can be that of another daemon with the same workspace.
_ABANDONED_MS: Final = 3_600_000


class FolderWriter:
    """Write the memory files of one agent. Thread-safe, and safe with other processes.

    `ledger_path` is the file in which appends are recorded. `new_id` returns a new random name, of letters, digits, "-"
    and "_", at each call; `now_ms` is the wall clock.
    """

    def __init__(
        self,
        agent_id: str,
        roots: Roots,
        history: WriteHistory,
        *,
        ledger_path: str,
        max_file_bytes: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._agent_id = agent_id
        self._roots = roots
        self._now_ms = now_ms
        self._new_id = new_id
        self._appender = Appender(roots, ledger_path)
        self._editor = Editor(roots, history, max_file_bytes=max_file_bytes, now_ms=now_ms, new_id=new_id)

    def recover(self) -> None:
        """Settle the appends and edits that a crash interrupted. Called before the files are edited."""
        self._appender.recover()
        self._editor.recover()

    def release_memory(self) -> None:
        """Drop the ledger's entries from memory, unless a write is running. The next append reads them again."""
        self._appender.release_memory()

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator about appends, edits and their history."""
        return (*self._appender.issues(), *self._editor.issues())

    def append(self, job: AppendJob) -> AppendReceipt:
        """Append the text of a job, once per key. Raises as `Appender.append`."""
        return self._appender.append(job)

    def edit(self, job: EditJob) -> WriteReceipt:
        """Perform a job, and keep what it replaces. Raises as `Editor.edit`."""
        return self._editor.edit(job)

    def create(self, path: str, data: bytes) -> bool:
        """Create a file, with the folders above it; return False if the path is taken.

        Raises:
            PathNotAllowed: the path is not a memory file, or a component is a link.
            FileNotFound: the workspace does not exist.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
            FileReplaced: the folders above it are replaced repeatedly.
        """
        self._remove_abandoned_drafts()
        draft = f".{self._agent_id}.{self._new_id()}.{_DRAFT_SUFFIX}"
        with file_errors(path):
            return write_new(resolve_for_append(self._roots, path), data, draft)

    def _remove_abandoned_drafts(self) -> None:
        """Delete the temporary files that a crash during `create` has left."""
        prefix = f".{self._agent_id}."
        with suppress(MemorydError, OSError):
            folder = open_directory(self._roots.base(), (MEMORY_FOLDER,))
            try:
                with os.scandir(folder) as entries:
                    names = [each.name for each in entries if each.name.startswith(prefix)]
                for name in names:
                    if name.endswith(_DRAFT_SUFFIX) and self._is_abandoned(name, folder):
                        os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)

    def _is_abandoned(self, name: str, folder: int) -> bool:
        modified_ms = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns // 1_000_000
        return self._now_ms() - modified_ms > _ABANDONED_MS

    def prepare_deletion(self, location: Location) -> None:
        """Give the files of a folder their names back that a crash during `delete` left under other names.

        Raises:
            OSError: the folder cannot be read or written.
        """
        restore_files(location.root, location.parts[:-1])

    def delete(self, location: Location, seen: SeenFile) -> bool:
        """Delete a file that the caller has seen; return False if it does not exist. Raises as `delete_file`."""
        return delete_file(location, seen)

    @contextmanager
    def paused(self, most_seconds: float = PAUSE_SECONDS) -> Iterator[None]:
        """Begin no edit until the block ends. Raises as `Editor.paused`."""
        with self._editor.paused(most_seconds):
            yield
