"""Changes to a user's files: appends, edits, session archives and deletion."""

from memoryd_server.writing.append import AppendJob, AppendReceipt
from memoryd_server.writing.archive import Archiver, ArchiveReceipt, ArchiveRequest, make_slug
from memoryd_server.writing.changes import (
    Change,
    ChangeResult,
    FileDeletion,
    LineDeletion,
    LineInsertion,
    NewContent,
    TextReplacement,
    text_field,
)
from memoryd_server.writing.deletion import SeenFile
from memoryd_server.writing.diff import unified_diff
from memoryd_server.writing.edit_jobs import EditJob, MoveJob, RestoreJob, WriteJob, WriteReceipt
from memoryd_server.writing.edit_rules import (
    change_of,
    change_to,
    invalid,
    kind_of,
    receipt_of,
    record_of,
    require_expected,
    require_same_request,
    require_size,
)
from memoryd_server.writing.edited_file import EditedFile, open_for_edit
from memoryd_server.writing.files import file_errors, sync_folders, write_new
from memoryd_server.writing.folder_writer import FolderWriter
from memoryd_server.writing.interrupted_writes import append_state, has_append_draft, is_applied
from memoryd_server.writing.ledger import AppendState, LedgerEntry, stored_ledger
from memoryd_server.writing.memory_file import TAIL_BYTES, AppendBlock, missing_newlines, request_digest
from memoryd_server.writing.memory_writer import PAUSE_SECONDS, MemoryWriter, TranscriptReceipt, TranscriptWriter
from memoryd_server.writing.write_queue import WriteQueue

__all__ = [
    "PAUSE_SECONDS",
    "TAIL_BYTES",
    "AppendBlock",
    "AppendJob",
    "AppendReceipt",
    "AppendState",
    "ArchiveReceipt",
    "ArchiveRequest",
    "Archiver",
    "Change",
    "ChangeResult",
    "EditJob",
    "EditedFile",
    "FileDeletion",
    "FolderWriter",
    "LedgerEntry",
    "LineDeletion",
    "LineInsertion",
    "MemoryWriter",
    "MoveJob",
    "NewContent",
    "RestoreJob",
    "SeenFile",
    "TextReplacement",
    "TranscriptReceipt",
    "TranscriptWriter",
    "WriteJob",
    "WriteQueue",
    "WriteReceipt",
    "append_state",
    "change_of",
    "change_to",
    "file_errors",
    "has_append_draft",
    "invalid",
    "is_applied",
    "kind_of",
    "make_slug",
    "missing_newlines",
    "open_for_edit",
    "receipt_of",
    "record_of",
    "request_digest",
    "require_expected",
    "require_same_request",
    "require_size",
    "stored_ledger",
    "sync_folders",
    "text_field",
    "unified_diff",
    "write_new",
]
