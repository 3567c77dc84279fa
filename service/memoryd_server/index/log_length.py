"""Keeps the write-ahead log short, also while searches never rest.

SQLite goes back to the log's beginning when a commit finds no reader in the log. With searches that overlap there is
always one, and a long sync would let the log grow with every page that it writes. So above a size the writer waits,
for a moment, until those who read the log are through: while nothing is written, new readers do not need it.
"""

from contextlib import suppress

import apsw

# Of 4 KiB each. Copied into the database from here on, as SQLite does by itself ...
_COPIED_PAGES = 1_000

# ... and from here on begun anew, at the price of the wait.
_MOST_PAGES = 4_000

# A search that takes longer is not waited for; the next commit tries again.
_PATIENCE_MS = 250


def keep_short(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    """Looks after the log of a writer's connection from now on, in the place of SQLite's own automatic checkpoint."""

    def after_commit(committed: apsw.Connection, _database: str, pages: int) -> int:
        # As SQLite itself has it, the commit stands whatever becomes of the log.
        with suppress(apsw.Error):
            if pages >= _MOST_PAGES:
                _begin_anew(committed, busy_timeout_ms)
            elif pages >= _COPIED_PAGES:
                committed.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return int(apsw.SQLITE_OK)

    connection.set_wal_hook(after_commit)


def _begin_anew(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    connection.set_busy_timeout(_PATIENCE_MS)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.set_busy_timeout(busy_timeout_ms)
