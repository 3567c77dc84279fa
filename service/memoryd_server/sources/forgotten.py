"""The files and sessions that are excluded from the index although their sources exist.

They are stored in a file of the state directory, next to the index. The file survives the index, so a rebuild does not
restore them. It contains paths, hashes and session ids, but no text.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from memoryd_server.errors import DiskFull, IndexReadOnly
from memoryd_server.foreign_text import parse_json
from memoryd_server.system import DISK_FULL, sync_folder


class ForgottenSources:
    """The forgotten sources of one agent. Thread-safe.

    Memory files are excluded by path and content, sessions by id.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._files: Mapping[str, str] = {}
        self._sessions: frozenset[str] = frozenset()
        self.problem = ""
        """Why the file could not be read completely, for the operator; empty otherwise."""

    def load(self) -> None:
        """Load the file. Skip unreadable entries and describe them in `problem`."""
        files: dict[str, str] = {}
        sessions: set[str] = set()
        bad = 0
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            self.problem = f"{self._path} cannot be read ({error.strerror}): forgotten sources may be indexed again"
            return
        for line in lines:
            try:
                entry = parse_json(line)
                if "session" in entry:
                    sessions.add(str(entry["session"]))
                else:
                    files[str(entry["path"])] = str(entry["sha256"])
            except (ValueError, TypeError, KeyError):
                bad += 1
        self._files, self._sessions = files, frozenset(sessions)
        self.problem = (
            f"{bad} lines of {self._path} are damaged: their forgotten sources may be indexed again" if bad else ""
        )

    def excludes(self, path: str, content_hash: bytes) -> bool:
        """Return whether a memory file with this content (SHA-256) is excluded."""
        return self._files.get(path) == content_hash.hex()

    def excludes_data(self, path: str, data: bytes) -> bool:
        """Return whether a memory file with these bytes is excluded. The bytes are hashed only if the path is known."""
        return path in self._files and self.excludes(path, hashlib.sha256(data).digest())

    def check_excluded(self, path: str, content_hash: bytes) -> bool:
        """Return whether a file that is about to be indexed is excluded.

        A file with new content is no longer forgotten.
        """
        if path not in self._files or self.excludes(path, content_hash):
            return path in self._files
        # If the file cannot be written now, the next change writes it.
        with suppress(DiskFull, IndexReadOnly), self._guard:
            self._save({name: known for name, known in self._files.items() if name != path}, self._sessions)
        return False

    def has_session(self, session_id: str) -> bool:
        """Return whether a session is excluded, whatever the names of its transcripts."""
        return session_id in self._sessions

    def add_file(self, path: str, content_hash: bytes) -> None:
        """Exclude a memory file while it has this content. The change is durable when the method returns.

        Raises:
            DiskFull, IndexReadOnly: the file cannot be written; nothing has changed.
        """
        with self._guard:
            self._save({**self._files, path: content_hash.hex()}, self._sessions)

    def add_session(self, session_id: str) -> None:
        """Exclude a session. The change is durable when the method returns.

        Raises:
            DiskFull, IndexReadOnly: the file cannot be written; nothing has changed.
        """
        with self._guard:
            self._save(self._files, self._sessions | {session_id})

    def _save(self, files: Mapping[str, str], sessions: frozenset[str]) -> None:
        if (files, sessions) == (self._files, self._sessions):
            return
        entries = [{"path": path, "sha256": known} for path, known in sorted(files.items())]
        lines = [json.dumps(entry) for entry in (*entries, *({"session": each} for each in sorted(sessions)))]
        new = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            words = f"{self._path} cannot be written: {error.strerror}; nothing was forgotten"
            raise (DiskFull if error.errno in DISK_FULL else IndexReadOnly)(words) from error
        self._files, self._sessions = files, sessions
