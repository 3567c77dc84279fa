"""What changes a user's files."""

from memoryd_server.writing.append import Appender, AppendJob, AppendReceipt
from memoryd_server.writing.archive import Archiver, ArchiveReceipt, ArchiveRequest, slug_of
from memoryd_server.writing.files import delete_file

__all__ = [
    "AppendJob",
    "AppendReceipt",
    "Appender",
    "ArchiveReceipt",
    "ArchiveRequest",
    "Archiver",
    "delete_file",
    "slug_of",
]
