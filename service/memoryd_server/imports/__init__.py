"""Imports of conversations: exports of chat services and transcripts of coding agents become Markdown or sessions."""

from memoryd_server.imports.conversation import Conversation, Document, Imported, ImportedMessage, Unreadable
from memoryd_server.imports.folder_target import FolderNotes, FolderTranscripts
from memoryd_server.imports.formats import CONVERSATION_FORMATS, ConversationFormat
from memoryd_server.imports.importer import Effect, ImportOptions, ImportReport, ImportTarget, Outcome, import_all
from memoryd_server.imports.input_files import InputFile, InputFiles
from memoryd_server.imports.note_import import NoteImport, NoteOptions, NoteStore
from memoryd_server.imports.session_import import SessionImport, TranscriptStore

__all__ = [
    "CONVERSATION_FORMATS",
    "Conversation",
    "ConversationFormat",
    "Document",
    "Effect",
    "FolderNotes",
    "FolderTranscripts",
    "ImportOptions",
    "ImportReport",
    "ImportTarget",
    "Imported",
    "ImportedMessage",
    "InputFile",
    "InputFiles",
    "NoteImport",
    "NoteOptions",
    "NoteStore",
    "Outcome",
    "SessionImport",
    "TranscriptStore",
    "Unreadable",
    "import_all",
]
