"""Imports of conversations: exports of chat services and transcripts of coding agents become Markdown or sessions."""

from memoryd_server.imports.folder_target import FolderNotes, FolderTranscripts
from memoryd_server.imports.formats import CONVERSATION_FORMATS, ConversationFormat
from memoryd_server.imports.importer import Effect, ImportOptions, ImportReport, ImportTarget, import_all
from memoryd_server.imports.input_files import InputFiles
from memoryd_server.imports.note_import import NoteImport, NoteOptions, NoteStore
from memoryd_server.imports.session_import import SessionImport, TranscriptStore

__all__ = [
    "CONVERSATION_FORMATS",
    "ConversationFormat",
    "Effect",
    "FolderNotes",
    "FolderTranscripts",
    "ImportOptions",
    "ImportReport",
    "ImportTarget",
    "InputFiles",
    "NoteImport",
    "NoteOptions",
    "NoteStore",
    "SessionImport",
    "TranscriptStore",
    "import_all",
]
