"""Makes deleted words vanish from the disk.

A row deleted from the keyword table is only marked so; its words stay in the table's segments until these are merged.
What is merged away is overwritten (`PRAGMA secure_delete`), but the write-ahead log still holds it until a checkpoint
truncates the log.
"""

from collections.abc import Callable

import apsw

from memoryd_server.index import schema

# About so many pages a step, some tens of milliseconds, so that a step keeps nobody waiting.
_PAGES_A_STEP = 500

# SQLite counts the command itself.
_CHANGES_OF_AN_IDLE_MERGE = 1

_DELETED_WORDS = "deleted_words"


def note_deleted_words(connection: apsw.Connection) -> None:
    """Remembers, within the caller's transaction, that there is something to purge."""
    schema.set_meta(connection, _DELETED_WORDS, 1)


def has_deleted_words(connection: apsw.Connection) -> bool:
    """Whether words of deleted chunks may still be on the disk."""
    return bool(schema.get_meta(connection, _DELETED_WORDS))


def purge(connection: apsw.Connection, should_stop: Callable[[], bool]) -> bool:
    """Merges the keyword table's segments into one and truncates the write-ahead log; true when all of it was done.

    False when `should_stop` said so between two steps, or when a reader kept the log from being truncated for longer
    than the connection's busy timeout; what was done until then stays done, and the next purge goes on from there.
    Costs about .2 s of work for 15,000 chunks and 1 s for 100,000.
    """
    # A negative number begins a merge of everything, and positive ones carry it on.
    pages = -_PAGES_A_STEP
    while not should_stop():
        before = connection.total_changes()
        connection.execute("INSERT INTO keyword(keyword, rank) VALUES('merge', ?)", (pages,))
        if pages > 0 and connection.total_changes() - before <= _CHANGES_OF_AN_IDLE_MERGE:
            break
        pages = _PAGES_A_STEP
    else:
        return False
    return _truncate_log(connection)


def _truncate_log(connection: apsw.Connection) -> bool:
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (1, 0, 0)
    if busy:
        return False
    # After the checkpoint, since it must not be forgotten before; it writes nothing but the mark to the log.
    connection.execute("DELETE FROM meta WHERE key = ?", (_DELETED_WORDS,))
    return True
