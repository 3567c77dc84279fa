"""The history of writes in a SQLite file, for a copy into another store."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import apsw

from memoryd_server.sqlite.connection import APPLICATION_ID, scalar
from memoryd_server.sqlite.history_file import SCHEMA_VERSION
from memoryd_server.sqlite.history_rows import records, rows
from memoryd_server.sqlite.stored_files import StoredFileUnusable, opened_file, translated
from memoryd_server.store import StoredContent, StoredHistory, WriteRecord

_NO_HISTORY = StoredHistory(1, 0, lambda _first: iter(()), lambda _digest: None)
_RECORDS_PER_READ = 500


@contextmanager
def open_stored_history(path: Path, *, in_use: bool = False) -> Iterator[StoredHistory]:
    """Yield the history in a file; an empty one if there is no file. `in_use` is as in `opened_file`.

    Raises:
        StoredFileUnusable: the file cannot be read; also raised by the functions of the history.
    """
    with opened_file(path, in_use=in_use) as connection:
        if connection is None:
            yield _NO_HISTORY
            return
        with translated():
            if scalar(connection, "PRAGMA application_id") != APPLICATION_ID:
                raise StoredFileUnusable("it is the database of another program")
            version = int(scalar(connection, "PRAGMA user_version"))
            if version > SCHEMA_VERSION:
                raise StoredFileUnusable(
                    f"it has schema version {version}, but this memoryd supports at most {SCHEMA_VERSION}; upgrade "
                    "memoryd"
                )
            last = scalar(connection, "SELECT seq FROM sqlite_sequence WHERE name='records'") or 0
            count = scalar(connection, "SELECT count(*) FROM records")
        yield StoredHistory(int(last) + 1, int(count), partial(_records, connection), partial(_content, connection))


def _records(connection: apsw.Connection, first: int) -> Iterator[WriteRecord]:
    while True:
        with translated():
            some = records(connection, "sequence >= ? ORDER BY sequence LIMIT ?", first, _RECORDS_PER_READ)
        if not some:
            return
        yield from some
        first = some[-1].sequence + 1


def _content(connection: apsw.Connection, digest: bytes) -> StoredContent | None:
    with translated():
        found = rows(connection, "SELECT digest, bytes, data FROM contents WHERE digest=?", digest)
    return StoredContent(*found[0]) if found else None
