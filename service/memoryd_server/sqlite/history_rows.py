"""The tables of the history of writes: rows of records, stored contents, their deletion, and moves of files."""

import heapq
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import apsw

from memoryd_server.sqlite.connection import scalar, transaction
from memoryd_server.store import WriteKind, WriteRecord

RECORD_BYTES = 512
"""What a record with short texts, without its contents, counts towards the size limit: about its row and its index
entries."""

# The numbers are how often the row and the index entries of a record have each text.
_RECORD_BYTES_OF = (
    f"max({RECORD_BYTES}, 256 + 3 * length(CAST({{row}}.path || {{row}}.moved_from AS BLOB))"
    " + 2 * length({row}.key) + length({row}.caller))"
)

LATEST = 2**63 - 1
"""Above every sequence number."""

TABLES = (
    # AUTOINCREMENT: a sequence number is not used twice, so a page token stays valid after records were deleted.
    """CREATE TABLE records(
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, version_id TEXT NOT NULL UNIQUE, path TEXT NOT NULL,
        kind TEXT NOT NULL, time_ms INTEGER NOT NULL, caller TEXT NOT NULL, before BLOB, before_bytes INTEGER NOT NULL,
        after BLOB, after_bytes INTEGER NOT NULL, moved_from TEXT NOT NULL, start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL, key TEXT NOT NULL, request_sha256 TEXT NOT NULL, draft TEXT NOT NULL,
        is_done INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX records_by_path ON records(path, sequence)",
    "CREATE INDEX records_by_old_path ON records(moved_from, sequence) WHERE moved_from<>''",
    "CREATE INDEX moves ON records(path, moved_from, sequence) WHERE moved_from<>''",
    "CREATE INDEX records_by_key ON records(key) WHERE key<>''",
    "CREATE INDEX records_by_before ON records(before) WHERE before IS NOT NULL",
    "CREATE INDEX records_by_after ON records(after) WHERE after IS NOT NULL",
    "CREATE INDEX records_by_time ON records(time_ms)",
    "CREATE INDEX unfinished_records ON records(sequence) WHERE is_done=0",
    # The data is the last column: the others are then read without it.
    """CREATE TABLE contents(
        id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, bytes INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL, data BLOB NOT NULL)""",
    "CREATE TABLE totals(bytes INTEGER NOT NULL)",
    "INSERT INTO totals VALUES(0)",
    """CREATE TRIGGER content_inserted AFTER INSERT ON contents BEGIN
        UPDATE totals SET bytes = bytes + new.stored_bytes; END""",
    """CREATE TRIGGER content_deleted AFTER DELETE ON contents BEGIN
        UPDATE totals SET bytes = bytes - old.stored_bytes; END""",
    f"""CREATE TRIGGER record_inserted AFTER INSERT ON records BEGIN
        UPDATE totals SET bytes = bytes + {_RECORD_BYTES_OF.format(row="new")}; END""",  # noqa: S608 -- a constant
    f"""CREATE TRIGGER record_deleted AFTER DELETE ON records BEGIN
        UPDATE totals SET bytes = bytes - {_RECORD_BYTES_OF.format(row="old")}; END""",  # noqa: S608 -- a constant
)

_FIELDS = (
    "version_id, path, kind, time_ms, caller, before, before_bytes, after, after_bytes, moved_from, start_line,"
    " end_line, key, request_sha256, draft"
)
_SELECT = (
    f"SELECT {_FIELDS}, sequence, is_done,"  # noqa: S608 -- constants
    " before IS NULL OR EXISTS(SELECT 1 FROM contents WHERE digest=before) FROM records"
)


def _row(record: WriteRecord) -> tuple[str | int | bytes | None, ...]:
    return (
        record.version_id,
        record.path,
        record.kind.value,
        record.time_ms,
        record.caller,
        record.before,
        record.before_bytes,
        record.after,
        record.after_bytes,
        record.moved_from,
        *record.lines,
        record.key,
        record.request_sha256,
        record.draft,
    )


def insert_record(connection: apsw.Connection, record: WriteRecord) -> None:
    """Insert a record that is not done."""
    query = f"INSERT INTO records({_FIELDS}) VALUES({','.join('?' * 15)})"
    connection.execute(query, _row(record))


def records(connection: apsw.Connection, where: str, *values: str | int) -> list[WriteRecord]:
    """Return the records of a condition, which may end with an order and a limit."""
    return [_record(row) for row in rows(connection, f"{_SELECT} WHERE {where}", *values)]


def _record(row: tuple[Any, ...]) -> WriteRecord:
    try:
        kind = WriteKind(row[2])
    except ValueError as error:
        raise apsw.CorruptError(f"a record has the unknown kind {row[2]!r}") from error
    return WriteRecord(
        version_id=row[0],
        path=row[1],
        kind=kind,
        time_ms=row[3],
        caller=row[4],
        before=row[5],
        before_bytes=row[6],
        after=row[7],
        after_bytes=row[8],
        moved_from=row[9],
        lines=(row[10], row[11]),
        key=row[12],
        request_sha256=row[13],
        draft=row[14],
        sequence=row[15],
        is_done=bool(row[16]),
        is_restorable=bool(row[17]),
    )


def store_content(connection: apsw.Connection, digest: bytes, content: bytes) -> None:
    """Store a content, unless it is stored already."""
    if scalar(connection, "SELECT 1 FROM contents WHERE digest=?", (digest,)):
        return
    data = zlib.compress(content)
    row = (digest, len(content), len(data), data)
    connection.execute("INSERT INTO contents(digest, bytes, stored_bytes, data) VALUES(?,?,?,?)", row)


def decompressed(data: bytes, size: int) -> bytes | None:
    """Return the content of `size` bytes; None if the data is damaged. Uses no more memory than one byte above it."""
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(data, size + 1)
    except zlib.error:
        return None
    return content if decompressor.eof and len(content) == size else None


def rows(connection: apsw.Connection, query: str, *values: str | int | bytes) -> list[tuple[Any, ...]]:
    """Return all rows of a query. The next statement can then be executed while they are read."""
    return connection.execute(query, values).fetchall()


def numbers(connection: apsw.Connection, query: str, *values: str | int | bytes) -> list[int]:
    """Return the first column of all rows of a query."""
    return [row[0] for row in rows(connection, query, *values)]


def total_bytes(connection: apsw.Connection) -> int:
    """Return what the contents and the records count towards the size limit."""
    return int(scalar(connection, "SELECT bytes FROM totals"))


def delete_records(connection: apsw.Connection, sequences: Iterable[int]) -> int:
    """Delete records, and the contents that no other record has; return the number of contents."""
    digests: set[bytes] = set()
    for sequence in sequences:
        deleted = rows(connection, "DELETE FROM records WHERE sequence=? RETURNING before, after", sequence)
        digests.update(digest for digest in chain.from_iterable(deleted) if digest is not None)
    return _delete_contents(connection, digests, set())


def _delete_contents(connection: apsw.Connection, digests: Iterable[bytes], owners: set[int]) -> int:
    """Delete those contents that only the records `owners` have; return their number."""
    query = "SELECT sequence FROM records WHERE before=?1 OR after=?1 LIMIT ?2"
    unused = [digest for digest in digests if owners.issuperset(numbers(connection, query, digest, len(owners) + 1))]
    delete = "DELETE FROM contents WHERE digest=? RETURNING 1"
    return sum(len(rows(connection, delete, digest)) for digest in unused)


def delete_unfinished_contents(connection: apsw.Connection, path: str) -> int:
    """Delete the contents that only unfinished records of a file have; return their number."""
    query = "SELECT sequence, before, after FROM records WHERE is_done=0 AND (path=?1 OR moved_from=?1)"
    unfinished = rows(connection, query, path)
    digests = {digest for _, *pair in unfinished for digest in pair if digest is not None}
    with transaction(connection):
        return _delete_contents(connection, digests, {sequence for sequence, *_ in unfinished})


def _names(connection: apsw.Connection, path: str) -> Iterator[tuple[str, int]]:
    """Return the names that a file has had, each with the sequence number below which its records are the file's.

    The numbers decrease, so each name is returned once, with its highest number, however often files were moved.
    """
    waiting, seen = [(-LATEST, path)], set()
    query = (
        "SELECT moved_from, max(sequence) FROM records INDEXED BY moves"
        " WHERE path=? AND moved_from<>'' AND sequence<? AND is_done GROUP BY moved_from"
    )
    while waiting:
        negated, name = heapq.heappop(waiting)
        if name not in seen:
            seen.add(name)
            yield name, -negated
            for source, sequence in rows(connection, query, name, -negated):
                heapq.heappush(waiting, (-sequence, source))


def file_sequences(connection: apsw.Connection, path: str, below: int, limit: int) -> list[int]:
    """Return the newest `limit` sequence numbers below `below` of a file's records that are done, newest first."""
    found: set[int] = set()
    for name, bound in _names(connection, path):
        if len(found) >= limit and sorted(found)[-limit] >= bound:
            break
        for column in ("path", "moved_from"):
            query = (
                f"SELECT sequence FROM records WHERE {column}=? AND {column}<>''"  # noqa: S608 -- constants
                " AND sequence<? AND is_done ORDER BY sequence DESC LIMIT ?"
            )
            found.update(numbers(connection, query, name, min(bound, below), limit))
    return sorted(found, reverse=True)[:limit]
