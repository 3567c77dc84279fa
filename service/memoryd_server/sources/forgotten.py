"""The files and sessions that are excluded from the index although their sources exist.

They are stored outside the index, so a rebuild does not restore them: in a file of the state directory, or in a table.
Stored are paths, hashes and session ids, but no text.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memoryd_server.errors import DiskFull, IndexReadOnly, MemorydError
from memoryd_server.foreign_text import parse_json
from memoryd_server.system import DISK_FULL, sync_folder


@dataclass(frozen=True, slots=True)
class ForgottenEntries:
    """What is stored: memory files by display path, with the SHA-256 of their content in hexadecimal, and session ids.

    `problem` says why not everything could be read, for the operator; empty otherwise.
    """

    files: Mapping[str, str]
    sessions: frozenset[str]
    problem: str = ""


class ForgottenStorage(Protocol):
    """Keeps the forgotten sources of one agent. All methods block; changes are durable when they return.

    Only one `ForgottenSources` calls it at a time.

    Raises:
        DiskFull, IndexReadOnly, IndexUnavailable, IndexBusy: it cannot be written; nothing has changed.
    """

    def load(self) -> ForgottenEntries:
        """Return all entries. Entries that are damaged for good are described in the result.

        Raises:
            IndexUnavailable, IndexBusy: the entries cannot be read now.
        """

    def add_file(self, path: str, sha256: str) -> None:
        """Add a memory file, or replace its hash."""

    def remove_file(self, path: str) -> None:
        """Remove a memory file."""

    def add_session(self, session_id: str) -> None:
        """Add a session."""


class ForgottenSources:
    """The forgotten sources of one agent, in memory and in a storage. Thread-safe.

    Memory files are excluded by path and content, sessions by id.
    """

    def __init__(self, storage: ForgottenStorage) -> None:
        self._storage = storage
        self._guard = threading.Lock()
        self._files: Mapping[str, str] = {}
        self._sessions: frozenset[str] = frozenset()
        self.problem = ""
        """Why not everything could be read from the storage, for the operator; empty otherwise."""

    def load(self) -> None:
        """Load the entries. Skip damaged ones, and describe them in `problem`. Raises as `ForgottenStorage.load`."""
        # Under the lock, so that an entry that is added during it is not lost.
        with self._guard:
            loaded = self._storage.load()
            self._files, self._sessions, self.problem = dict(loaded.files), loaded.sessions, loaded.problem

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
        # If the storage cannot be written now, the next call tries again.
        with suppress(MemorydError), self._guard:
            if path in self._files:
                self._storage.remove_file(path)
                self._files = {name: known for name, known in self._files.items() if name != path}
        return False

    def has_session(self, session_id: str) -> bool:
        """Return whether a session is excluded, whatever the names of its transcripts."""
        return session_id in self._sessions

    def add_file(self, path: str, content_hash: bytes) -> None:
        """Exclude a memory file while it has this content. The change is durable when the method returns.

        Raises:
            DiskFull, IndexReadOnly, IndexUnavailable: the storage cannot be written; nothing has changed.
        """
        with self._guard:
            if not self.excludes(path, content_hash):
                self._storage.add_file(path, content_hash.hex())
                self._files = {**self._files, path: content_hash.hex()}

    def add_session(self, session_id: str) -> None:
        """Exclude a session. The change is durable when the method returns.

        Raises:
            DiskFull, IndexReadOnly, IndexUnavailable: the storage cannot be written; nothing has changed.
        """
        with self._guard:
            if session_id not in self._sessions:
                self._storage.add_session(session_id)
                self._sessions |= {session_id}


class ForgottenFile:
    """The forgotten sources of one agent in a file of JSON lines, next to its index."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: Mapping[str, str] = {}
        self._sessions: frozenset[str] = frozenset()

    def load(self) -> ForgottenEntries:
        """Load the file. Skip unreadable lines."""
        files: dict[str, str] = {}
        sessions: set[str] = set()
        bad = 0
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            problem = f"{self._path} cannot be read ({error.strerror}): forgotten sources may be indexed again"
            return ForgottenEntries(self._files, self._sessions, problem)
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
        problem = f"{bad} lines of {self._path} are damaged: their forgotten sources may be indexed again"
        return ForgottenEntries(self._files, self._sessions, problem if bad else "")

    def add_file(self, path: str, sha256: str) -> None:
        """Add a memory file, or replace its hash.

        Raises:
            DiskFull, IndexReadOnly: the file cannot be written; nothing has changed.
        """
        self._save({**self._files, path: sha256}, self._sessions)

    def remove_file(self, path: str) -> None:
        """Remove a memory file. Raises as `add_file`."""
        self._save({name: known for name, known in self._files.items() if name != path}, self._sessions)

    def add_session(self, session_id: str) -> None:
        """Add a session. Raises as `add_file`."""
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
