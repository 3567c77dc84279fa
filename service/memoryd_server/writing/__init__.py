"""Changes to a user's files: appends, session archives and deletion."""

from memoryd_server.writing.append import Appender, AppendJob, AppendReceipt
from memoryd_server.writing.append_queue import AppendQueue
from memoryd_server.writing.archive import Archiver, ArchiveReceipt, ArchiveRequest, make_slug
from memoryd_server.writing.deletion import SeenFile, delete_file, restore_files

__all__ = [
    "AppendJob",
    "AppendQueue",
    "AppendReceipt",
    "Appender",
    "ArchiveReceipt",
    "ArchiveRequest",
    "Archiver",
    "SeenFile",
    "delete_file",
    "make_slug",
    "restore_files",
]
