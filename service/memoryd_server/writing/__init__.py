"""Changes to a user's files: appends, session archives and deletion."""

from memoryd_server.writing.append import Appender, AppendJob, AppendReceipt
from memoryd_server.writing.archive import Archiver, ArchiveReceipt, ArchiveRequest, make_slug
from memoryd_server.writing.files import delete_file

__all__ = [
    "AppendJob",
    "AppendReceipt",
    "Appender",
    "ArchiveReceipt",
    "ArchiveRequest",
    "Archiver",
    "delete_file",
    "make_slug",
]
