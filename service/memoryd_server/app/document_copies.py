"""DocumentCopies: the copies of an agent's files that `memoryd import` and `memoryd export` run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd_server.app.config import agent_config
from memoryd_server.app.shared_store import SharedStore, document_writer
from memoryd_server.errors import SettingsError
from memoryd_server.model import Clock
from memoryd_server.settings import ResolvedSettings

if TYPE_CHECKING:
    from memoryd_server.postgres import FolderCopy, TranscriptCopy


@dataclass(frozen=True, slots=True)
class DocumentCopies:
    """Copies of one agent's memory files, and of its transcripts if a folder for them was given.

    `location` is the database, without a user or password.
    """

    agent_id: str
    location: str
    files: "FolderCopy"
    transcripts: "TranscriptCopy | None"


@contextmanager
def open_copies(
    settings: ResolvedSettings, agent_id: str, folder: Path, sessions: Path | None
) -> Iterator[DocumentCopies]:
    """Yield the copies of an agent between the database of the settings and two folders.

    Raises:
        AgentNotFound: no such agent is configured.
        SettingsError: the settings keep the memory files in a folder, or the driver is not installed.
    """
    store = settings.service.store
    if store.url is None or store.documents != "database":
        raise SettingsError(
            "the settings keep the memory files in the workspace; to keep them in a database, set memoryd.store.url, "
            'and memoryd.store.documents to "database"'
        )
    config = agent_config(settings.agent(agent_id), settings)
    clock = Clock()

    def now_ms() -> int:
        return clock.now_ns() // 1_000_000

    history = SharedStore(store).history(config, now_ms)
    from memoryd_server.postgres import FolderCopy, TranscriptCopy, TranscriptRows  # noqa: PLC0415 -- an extra

    documents = history.documents()
    transcripts = TranscriptRows(documents, now_ms)
    writer = document_writer(config, history, now_ms)
    try:
        yield DocumentCopies(
            config.agent_id,
            documents.location,
            FolderCopy(documents, writer, folder.absolute(), config.sync.max_file_bytes),
            None if sessions is None else TranscriptCopy(documents, transcripts, sessions.absolute()),
        )
    finally:
        history.close()
