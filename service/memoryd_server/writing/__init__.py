"""Changes to a user's files: appends, session archives and deletion."""

from memoryd_server.writing.append import Appender, AppendJob, AppendReceipt
from memoryd_server.writing.archive import Archiver, ArchiveReceipt, ArchiveRequest, make_slug
from memoryd_server.writing.deletion import SeenFile, delete_file, restore_files
from memoryd_server.writing.write_queue import WriteQueue

__all__ = [
    "AppendJob",
    "AppendReceipt",
    "Appender",
    "ArchiveReceipt",
    "ArchiveRequest",
    "Archiver",
    "SeenFile",
    "WriteQueue",
    "delete_file",
    "make_slug",
    "restore_files",
]
