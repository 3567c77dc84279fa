"""ConversationImport: where `memoryd import` writes the conversations of an agent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from memoryd_server.agent import AgentConfig
from memoryd_server.app.config import agent_config
from memoryd_server.app.shared_store import SharedStore, document_writer
from memoryd_server.imports import (
    FolderNotes,
    FolderTranscripts,
    ImportTarget,
    NoteImport,
    NoteOptions,
    NoteStore,
    SessionImport,
    TranscriptStore,
)
from memoryd_server.model import Clock, Source
from memoryd_server.settings import ResolvedSettings
from memoryd_server.sources import ForgottenEntries, ForgottenFile


@dataclass(frozen=True, slots=True)
class ConversationImportOptions:
    """What to write: notes or sessions; without `replace`, edited notes are kept; a dry run writes nothing."""

    to: Literal["notes", "sessions"]
    replace: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ConversationImport:
    """An opened target of an import.

    `place` is the folder, or the database without a user or password. `is_indexed` is whether the settings index what
    is written. `problem` says why the list of forgotten files and sessions cannot be read completely; "" if it can.
    `notify` notifies the running daemons that do not watch the place.
    """

    agent_id: str
    place: str
    target: ImportTarget
    is_indexed: bool
    problem: str
    notify: Callable[[], None]


@contextmanager
def open_conversation_import(
    settings: ResolvedSettings, agent_id: str, options: ConversationImportOptions
) -> Iterator[ConversationImport]:
    """Open the memory files or the transcripts of an agent for an import, in its folders or in the database.

    Raises:
        AgentNotFound: no such agent is configured.
        SettingsError: the memory files are in a database whose driver is not installed.
        FileNotFound, PathNotAllowed, WorkspaceReadOnly: the folder cannot be used.
        FileBusy: another process imports into it.
        IndexUnavailable, IndexBusy: the database cannot be used.
    """
    config = agent_config(settings.agent(agent_id), settings)
    source = Source.MEMORY if options.to == "notes" else Source.SESSIONS
    is_indexed = source in config.sources
    if settings.service.store.has_documents:
        with _in_database(config, settings, options) as (place, target, notify):
            yield ConversationImport(config.agent_id, place, target, is_indexed, "", notify)
        return
    forgotten = ForgottenFile(config.forgotten_path).load()
    if options.to == "notes":
        notes = FolderNotes(config.roots, config.sync.max_file_bytes, dry_run=options.dry_run)
        place, locked, target = config.roots.base(), notes.locked(), _notes(notes, config, forgotten, options)
    else:
        transcripts = FolderTranscripts(config.sessions_folder, dry_run=options.dry_run)
        place, locked = str(config.sessions_folder), transcripts.locked()
        target = _sessions(transcripts, forgotten, options)
    with locked:
        # The watcher of a running daemon sees the files.
        yield ConversationImport(config.agent_id, place, target, is_indexed, forgotten.problem, lambda: None)


@contextmanager
def _in_database(
    config: AgentConfig, settings: ResolvedSettings, options: ConversationImportOptions
) -> Iterator[tuple[str, ImportTarget, Callable[[], None]]]:
    clock = Clock()

    def now_ms() -> int:
        return clock.now_ns() // 1_000_000

    history = SharedStore(settings.service.store).history(config, now_ms)
    from memoryd_server.postgres import (  # noqa: PLC0415 -- an extra
        DatabaseNotes,
        DatabaseTranscripts,
        ForgottenRows,
        TranscriptRows,
    )

    documents = history.documents()
    try:
        forgotten = ForgottenRows(documents).load()
        if options.to == "notes":
            writer = document_writer(config, history, now_ms)
            notes = DatabaseNotes(documents, writer, config.sync.max_file_bytes, now_ms)
            target = _notes(notes, config, forgotten, options)
        else:
            transcripts = DatabaseTranscripts(documents, TranscriptRows(documents, now_ms))
            target = _sessions(transcripts, forgotten, options)
        yield documents.location, target, documents.notify_replicas
    finally:
        history.close()


def _notes(
    store: NoteStore, config: AgentConfig, forgotten: ForgottenEntries, options: ConversationImportOptions
) -> ImportTarget:
    limits = NoteOptions(options.replace, options.dry_run, config.sync.max_file_bytes)
    return NoteImport(store, forgotten.files, limits)


def _sessions(store: TranscriptStore, forgotten: ForgottenEntries, options: ConversationImportOptions) -> ImportTarget:
    return SessionImport(store, forgotten.sessions, dry_run=options.dry_run)
