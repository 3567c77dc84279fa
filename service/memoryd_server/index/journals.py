"""Which journal the file system under an index can carry."""

from pathlib import Path

from memoryd_server.index.connection import Journal
from memoryd_server.sources.mounts import MOUNT_TABLE, file_system_of, is_remote


def journal_for(folder: Path, table: Path = MOUNT_TABLE) -> tuple[Journal, str]:
    """The journal for databases in `folder`, and why it is not the write-ahead log; empty when it is.

    The log's readers and writer share memory through a mapped file. On network and virtual file systems that memory is
    not the same for all, and databases were seen to be damaged within a minute.
    """
    kind = file_system_of(folder, table)
    if not is_remote(kind):
        return Journal.LOG, ""
    reason = (
        f"{folder} is on a network or virtual file system ({kind}), where SQLite's write-ahead log is not safe; "
        "searches wait while a sync commits. A --state-dir on a local disk is faster and safer"
    )
    return Journal.ROLLBACK, reason
