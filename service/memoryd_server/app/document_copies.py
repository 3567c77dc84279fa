"""DocumentCopies: the copies of an agent's files that `memoryd import` and `memoryd export` run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd_server.app.config import agent_config
from memoryd_server.app.shared_store import SharedStore, document_writer
from memoryd_server.errors import PathNotAllowed, SettingsError
from memoryd_server.model import Clock
from memoryd_server.settings import ResolvedSettings
from memoryd_server.sources import (
    ForgottenEntries,
    ForgottenFile,
    ForgottenStorage,
    Roots,
    resolve_path,
    session_id_problem,
)

if TYPE_CHECKING:
    from memoryd_server.postgres import AgentDatabase, FolderCopy, TranscriptCopy

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ForgottenCopy:
    """Copies the list of forgotten files and sessions from the state directory into the database. Blocks.

    The list is the one of an agent with memory files in a workspace. Without it, a sync would index these files and
    sessions again after an import.
    """

    origin: ForgottenStorage
    destination: ForgottenStorage
    roots: Roots

    def into_database(self) -> tuple[int, str]:
        """Add the missing entries; return their number, and why others could not be read, empty if all could.

        An entry of the database with another content of the same file is kept: it is the later one.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. Repeat the copy.
        """
        missing = self.missing()
        for path, sha256 in missing.files.items():
            self.destination.add_file(path, sha256)
        for session in missing.sessions:
            self.destination.add_session(session)
        return len(missing.files) + len(missing.sessions), missing.problem

    def missing(self) -> ForgottenEntries:
        """Return the entries that the database does not have. Raises as `into_database`."""
        given, stored = self.origin.load(), self.destination.load()
        files = {
            each[0]: each[1] for each in given.files.items() if each[0] not in stored.files and self._is_file(*each)
        }
        sessions = frozenset(each for each in given.sessions - stored.sessions if not session_id_problem(each))
        return ForgottenEntries(files, sessions, given.problem)

    def _is_file(self, path: str, sha256: str) -> bool:
        try:
            resolve_path(self.roots, path)
        except PathNotAllowed:
            return False
        return _SHA256.fullmatch(sha256) is not None


@dataclass(frozen=True, slots=True)
class DocumentCopies:
    """Copies of one agent's memory files, and of its transcripts if a folder for them was given.

    `location` is the database, without a user or password. `documents` has the agent's rows.
    """

    agent_id: str
    location: str
    documents: "AgentDatabase"
    files: "FolderCopy"
    transcripts: "TranscriptCopy | None"
    forgotten: ForgottenCopy


def require_documents(settings: ResolvedSettings) -> None:
    """Check that the settings keep the memory files in a database.

    Raises:
        SettingsError: they do not.
    """
    if not settings.service.store.has_documents:
        raise SettingsError(
            "the settings keep the memory files in the workspace; to keep them in a database, set memoryd.store.url, "
            'and memoryd.store.documents to "database"'
        )


@contextmanager
def open_copies(
    settings: ResolvedSettings, agent_id: str, folder: Path, sessions: Path | None, forgotten: Path | None = None
) -> Iterator[DocumentCopies]:
    """Yield the copies of an agent between the database of the settings and two folders.

    `forgotten` is the list of forgotten files and sessions; by default, it is the one in the state directory.

    Raises:
        AgentNotFound: no such agent is configured.
        SettingsError: the settings keep the memory files in a folder, or the driver is not installed.
    """
    store = settings.service.store
    require_documents(settings)
    config = agent_config(settings.agent(agent_id), settings)
    clock = Clock()

    def now_ms() -> int:
        return clock.now_ns() // 1_000_000

    history = SharedStore(store).history(config, now_ms)
    from memoryd_server.postgres import FolderCopy, ForgottenRows, TranscriptCopy, TranscriptRows  # noqa: PLC0415 -- an extra

    documents = history.documents()
    transcripts = TranscriptRows(documents, now_ms)
    writer = document_writer(config, history, now_ms)
    try:
        yield DocumentCopies(
            config.agent_id,
            documents.location,
            documents,
            FolderCopy(documents, writer, folder.absolute(), config.sync.max_file_bytes),
            None if sessions is None else TranscriptCopy(documents, transcripts, sessions.absolute()),
            ForgottenCopy(ForgottenFile(forgotten or config.forgotten_path), ForgottenRows(documents), config.roots),
        )
    finally:
        history.close()
