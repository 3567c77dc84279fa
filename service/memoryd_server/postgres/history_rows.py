"""The tables of the history of writes: rows of records, stored contents, their deletion, and moves of files."""

import heapq
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.session import Connection
from memoryd_server.store import WriteKind, WriteRecord

RECORD_BYTES: Final = 512
"""What a record with short texts, without its contents, counts towards the size limit."""

LATEST: Final = 2**63 - 1
"""Above every sequence number."""

_SELECT = """SELECT version_id, path, kind, time_ms, caller, before, before_bytes, after, after_bytes, moved_from,
        start_line, end_line, key, request_sha256, draft, sequence, is_done,
        before IS NULL OR EXISTS(SELECT 1 FROM history_contents AS c
            WHERE c.agent_id = %(agent)s AND c.digest = r.before)
    FROM history_records AS r WHERE r.agent_id = %(agent)s AND """
_INSERT = """INSERT INTO history_records(agent_id, sequence, version_id, path, kind, time_ms, caller, before,
        before_bytes, after, after_bytes, moved_from, start_line, end_line, key, request_sha256, draft, is_done,
        stored_bytes)
    VALUES(%(agent)s, %(sequence)s, %(version_id)s, %(path)s, %(kind)s, %(time_ms)s, %(caller)s, %(before)s,
        %(before_bytes)s, %(after)s, %(after_bytes)s, %(moved_from)s, %(start_line)s, %(end_line)s, %(key)s,
        %(request_sha256)s, %(draft)s, false, %(stored_bytes)s)"""

Row = tuple[Any, ...]


class HistoryRows:
    """The rows of one agent's history in one transaction.

    `bytes_changed` is by how much the transaction has changed what the history counts towards its size limit.
    """

    def __init__(self, connection: Connection, agent_id: str) -> None:
        self._connection = connection
        self._agent = agent_id
        self.bytes_changed = 0

    def all(self, query: str, /, **values: object) -> list[Row]:
        """Return the rows of a statement, which takes `agent` and these values."""
        rows: list[Row] = self._connection.execute(query, {"agent": self._agent, **values}, binary=True).fetchall()
        return rows

    def run(self, query: str, /, **values: object) -> int:
        """Execute a statement without a result; return the number of changed rows."""
        changed: int = self._connection.execute(query, {"agent": self._agent, **values}).rowcount
        return changed

    def numbers(self, query: str, /, **values: object) -> list[int]:
        """Return the first column of all rows of a statement."""
        return [row[0] for row in self.all(query, **values)]

    def insert_record(self, record: WriteRecord, sequence: int) -> None:
        """Insert a record that is not done."""
        size = record_bytes(record)
        self.run(
            _INSERT,
            sequence=sequence,
            version_id=record.version_id,
            path=record.path,
            kind=record.kind.value,
            time_ms=record.time_ms,
            caller=storable(record.caller),
            before=record.before,
            before_bytes=record.before_bytes,
            after=record.after,
            after_bytes=record.after_bytes,
            moved_from=record.moved_from,
            start_line=record.lines[0],
            end_line=record.lines[1],
            key=storable(record.key),
            request_sha256=record.request_sha256,
            draft=record.draft,
            stored_bytes=size,
        )
        self.bytes_changed += size

    def store_content(self, digest: bytes, content: bytes) -> None:
        """Store a content, unless it is stored already."""
        if self.all("SELECT 1 FROM history_contents WHERE agent_id = %(agent)s AND digest = %(digest)s", digest=digest):
            return
        data = zlib.compress(content)
        self.run(
            """INSERT INTO history_contents(agent_id, digest, bytes, data)
                VALUES(%(agent)s, %(digest)s, %(bytes)s, %(data)s)""",
            digest=digest,
            bytes=len(content),
            data=data,
        )
        self.bytes_changed += len(data)

    def records(self, where: str, /, **values: object) -> list[WriteRecord]:
        """Return the records of a condition, which may end with an order and a limit."""
        return [_record(row) for row in self.all(_SELECT + where, **values)]

    def delete_content(self, digest: bytes) -> bool:
        """Delete a content; return whether it was stored."""
        query = """DELETE FROM history_contents WHERE agent_id = %(agent)s AND digest = %(digest)s
            RETURNING octet_length(data)"""
        sizes = self.numbers(query, digest=digest)
        self.bytes_changed -= sum(sizes)
        return bool(sizes)

    def delete_records(self, sequences: Iterable[int]) -> int:
        """Delete records, and the contents that no other record has; return the number of contents."""
        query = """DELETE FROM history_records WHERE agent_id = %(agent)s AND sequence = ANY(%(sequences)s)
            RETURNING before, after, stored_bytes"""
        deleted = self.all(query, sequences=list(sequences))
        self.bytes_changed -= sum(row[2] for row in deleted)
        digests = {digest for row in deleted for digest in row[:2] if digest is not None}
        return self._delete_contents(digests, set())

    def delete_unfinished_contents(self, path: str) -> int:
        """Delete the contents that only unfinished records of a file have; return their number."""
        query = """SELECT sequence, before, after FROM history_records WHERE agent_id = %(agent)s AND NOT is_done
            AND (path = %(path)s OR moved_from = %(path)s)"""
        unfinished = self.all(query, path=path)
        digests = {digest for _, *pair in unfinished for digest in pair if digest is not None}
        return self._delete_contents(digests, {row[0] for row in unfinished})

    def _delete_contents(self, digests: Iterable[bytes], owners: set[int]) -> int:
        """Delete those contents that only the records `owners` have; return their number."""
        query = """(SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND before = %(digest)s
                LIMIT %(limit)s)
            UNION (SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND after = %(digest)s
                LIMIT %(limit)s)"""
        limit = len(owners) + 1
        unused = [each for each in digests if owners.issuperset(self.numbers(query, digest=each, limit=limit))]
        return sum(self.delete_content(digest) for digest in unused)

    def file_sequences(self, path: str, below: int, limit: int) -> list[int]:
        """Return the newest `limit` sequence numbers below `below` of a file's records that are done, newest first."""
        found: set[int] = set()
        query = """(SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND path_key = md5(%(name)s)
                AND path = %(name)s AND sequence < %(below)s AND is_done ORDER BY sequence DESC LIMIT %(limit)s)
            UNION (SELECT sequence FROM history_records WHERE agent_id = %(agent)s AND moved_from_key = md5(%(name)s)
                AND moved_from <> '' AND moved_from = %(name)s AND sequence < %(below)s AND is_done
                ORDER BY sequence DESC LIMIT %(limit)s)"""
        for name, bound in self._names(path):
            if len(found) >= limit and sorted(found)[-limit] >= bound:
                break
            found.update(self.numbers(query, name=name, below=min(bound, below), limit=limit))
        return sorted(found, reverse=True)[:limit]

    def _names(self, path: str) -> Iterator[tuple[str, int]]:
        """Return the names that a file has had, each with the sequence number below which its records are the file's.

        The numbers decrease, so each name is returned once, with its highest number, however often files were moved.
        """
        waiting, seen = [(-LATEST, path)], set()
        query = """SELECT moved_from, max(sequence) FROM history_records WHERE agent_id = %(agent)s
            AND path_key = md5(%(name)s) AND path = %(name)s AND moved_from <> '' AND sequence < %(below)s AND is_done
            GROUP BY moved_from"""
        while waiting:
            negated, name = heapq.heappop(waiting)
            if name not in seen:
                seen.add(name)
                yield name, -negated
                for source, sequence in self.all(query, name=name, below=-negated):
                    heapq.heappush(waiting, (-sequence, source))


def record_bytes(record: WriteRecord) -> int:
    """Return what a record counts towards the size limit: about its row and its index entries."""
    paths = len(f"{record.path}{record.moved_from}".encode())
    return max(RECORD_BYTES, 256 + 3 * paths + 2 * len(record.key) + len(record.caller))


def _record(row: Row) -> WriteRecord:
    return WriteRecord(
        version_id=row[0],
        path=row[1],
        kind=WriteKind(row[2]),
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
        is_done=row[16],
        is_restorable=row[17],
    )


def decompressed(data: bytes, size: int) -> bytes | None:
    """Return the content of `size` bytes; None if the data is damaged. Uses no more memory than one byte above it."""
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(data, size + 1)
    except zlib.error:
        return None
    return content if decompressor.eof and len(content) == size else None
