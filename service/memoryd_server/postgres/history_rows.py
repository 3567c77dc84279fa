"""The tables of the history of writes: rows of records, stored contents, their deletion, and moves of files."""

import heapq
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from memoryd_server.postgres.agent_database import AgentRows, Row
from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.session import Connection
from memoryd_server.store import StoredContent, WriteKind, WriteRecord

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
        %(request_sha256)s, %(draft)s, %(is_done)s, %(stored_bytes)s)"""


class HistoryRows(AgentRows):
    """The rows of one agent's history in one transaction.

    `bytes_changed` is by how much the transaction has changed what the history counts towards its size limit.
    """

    def __init__(self, connection: Connection, agent_id: str) -> None:
        super().__init__(connection, agent_id)
        self.bytes_changed = 0

    def with_key(self, key: str) -> WriteRecord | None:
        """Return the newest record of an idempotency key, done or not; None if there is none."""
        found = self.records("key = %(key)s AND key <> '' ORDER BY sequence DESC LIMIT 1", key=storable(key))
        return found[0] if found else None

    def get(self, version_id: str) -> WriteRecord | None:
        """Return the record of a write that is done; None if there is none."""
        found = self.records("version_id = %(version)s AND is_done", version=storable(version_id))
        return found[0] if found else None

    def content(self, digest: bytes) -> bytes | None:
        """Return a stored content; None if there is none, or it is damaged."""
        query = "SELECT bytes, data FROM history_contents WHERE agent_id = %(agent)s AND digest = %(digest)s"
        found = self.all(query, digest=digest)
        content = decompressed(found[0][1], found[0][0]) if found else None
        return content if content is not None and sha256(content).digest() == digest else None

    def add(self, record: WriteRecord, before: bytes | None, after: bytes | None) -> None:
        """Store a record as the newest one, and its contents."""
        query = """UPDATE histories SET next_sequence = next_sequence + 1 WHERE agent_id = %(agent)s
            RETURNING next_sequence - 1"""
        self.insert(record, self.numbers(query)[0])
        for digest, content in ((record.before, before), (record.after, after)):
            if digest is not None and content is not None:
                self._store_content(digest, content)

    def insert(self, record: WriteRecord, sequence: int) -> None:
        """Store a record with a sequence number, without contents."""
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
            is_done=record.is_done,
            stored_bytes=size,
        )
        self.bytes_changed += size

    def _store_content(self, digest: bytes, content: bytes) -> None:
        """Store a content, unless it is stored already."""
        if not self.has_content(digest):
            self.insert_content(StoredContent(digest, len(content), zlib.compress(content)))

    def has_content(self, digest: bytes) -> bool:
        """Return whether a content is stored."""
        query = "SELECT 1 FROM history_contents WHERE agent_id = %(agent)s AND digest = %(digest)s"
        return bool(self.all(query, digest=digest))

    def insert_content(self, content: StoredContent) -> None:
        """Store a content that is not stored yet."""
        self.run(
            """INSERT INTO history_contents(agent_id, digest, bytes, data)
                VALUES(%(agent)s, %(digest)s, %(bytes)s, %(data)s)""",
            digest=content.digest,
            bytes=content.size_bytes,
            data=content.data,
        )
        self.bytes_changed += len(content.data)

    def next_sequence(self) -> int:
        """Return the sequence number of the next record."""
        return next(iter(self.numbers("SELECT next_sequence FROM histories WHERE agent_id = %(agent)s")), 1)

    def set_next_sequence(self, sequence: int) -> None:
        """Set the sequence number of the next record, which must be above that of all records."""
        query = "UPDATE histories SET next_sequence = %(sequence)s WHERE agent_id = %(agent)s"
        self.run(query, sequence=sequence)

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


@contextmanager
def changed_history(connection: Connection, agent_id: str) -> Iterator[HistoryRows]:
    """Lock the history of an agent until the transaction ends, and count what the block changes."""
    rows = HistoryRows(connection, agent_id)
    rows.run(
        """INSERT INTO histories(agent_id, next_sequence, bytes) VALUES(%(agent)s, 1, 0)
            ON CONFLICT (agent_id) DO UPDATE SET bytes = histories.bytes"""
    )
    yield rows
    if rows.bytes_changed:
        query = "UPDATE histories SET bytes = bytes + %(change)s WHERE agent_id = %(agent)s"
        rows.run(query, change=rows.bytes_changed)


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
