"""HistoryCopy: copies a history of writes from a file into the database, with ids and sequence numbers.

Records are copied in their order, each transaction some of them with their contents. The transaction also stores the
number of the next record, so an interrupted copy continues there. Records that were deleted from the database since
they were copied, for example because a file was forgotten, are therefore not copied again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Final

from memoryd_server.postgres.agent_database import AgentDatabase, AgentRows
from memoryd_server.postgres.copy_report import CopyOptions, CopyReport
from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.history_rows import LATEST, HistoryRows, changed_history, decompressed
from memoryd_server.store import StoredContent, StoredHistory, WriteRecord

_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = 8 << 20

_RANGE = "sequence > %(after)s AND sequence <= %(last)s ORDER BY sequence LIMIT %(limit)s"
_HASHES = """SELECT digest, sha256(data) FROM history_contents
    WHERE agent_id = %(agent)s AND digest = ANY(%(digests)s)"""

_REMOVED = "was removed from the history of the database, and is not copied again"
_BLOCKED = "was not copied, because the history of the database has other records"
_DAMAGED = "has a damaged content, which was not copied; it cannot be undone"


class HistoryCopy:
    """Copies the history of one agent. Blocks.

    The database keeps a history that has other records, and then nothing is copied. Records from before `since_ms`, in
    Unix milliseconds, exceed the age limit: the database may have deleted them. Its size limit is not applied.
    """

    def __init__(self, documents: AgentDatabase, source: StoredHistory, since_ms: int) -> None:
        self._documents = documents
        self._source = source
        self._since_ms = since_ms

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the missing records and contents, then compare all.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. Repeat the copy.
        """
        report = CopyReport()
        if not self._source.count:
            return report
        first = self._next_sequence()
        missing = self._compare(first, report)
        if report.conflicts:
            report.skipped |= dict.fromkeys(missing, _BLOCKED)
        elif options.dry_run:
            report.copied = len(missing)
        else:
            self._copy(first, options, report)
        if not options.dry_run:
            self._verify(report)
        return report

    def _next_sequence(self) -> int:
        with self._documents.read() as rows:
            return _history(rows).next_sequence()

    def _compare(self, first: int, report: CopyReport) -> list[str]:
        """Record equal, removed and additional records; return the names of the missing ones from `first` on."""
        missing: list[str] = []
        for batch, stored in self._pairs():
            for record in batch:
                found = stored.pop(record.sequence, None)
                if found is None and record.sequence >= first:
                    missing.append(_name(record))
                elif found is None:
                    if record.time_ms >= self._since_ms:
                        report.skipped[_name(record)] = _REMOVED
                elif _is_equal(record, found):
                    report.equal += 1
                else:
                    report.conflicts.append(_name(found))
            report.conflicts += map(_name, stored.values())
        return missing

    def _pairs(self) -> Iterator[tuple[list[WriteRecord], dict[int, WriteRecord]]]:
        """Yield the records of both histories, some at a time, in the same ranges of sequence numbers."""
        after = 0
        for batch in _batches(self._source.records(1)):
            last = batch[-1].sequence
            yield batch, {record.sequence: record for record in self._stored(after, last)}
            after = last
        for record in self._stored(after, LATEST):
            yield [], {record.sequence: record}

    def _stored(self, after: int, last: int) -> Iterator[WriteRecord]:
        while True:
            with self._documents.read() as rows:
                some = _history(rows).records(_RANGE, after=after, last=last, limit=_BATCH_RECORDS)
            if not some:
                return
            yield from some
            after = some[-1].sequence

    def _copy(self, first: int, options: CopyOptions, report: CopyReport) -> None:
        done = report.equal
        for batch in _batches(self._source.records(first)):
            if not self._add(batch, first, report):
                return
            first = batch[-1].sequence + 1
            done += len(batch)
            report.copied += len(batch)
            options.progress(done, self._source.count)
        if first < self._source.next_sequence:
            self._add([], first, report)

    def _add(self, batch: list[WriteRecord], first: int, report: CopyReport) -> bool:
        """Store records with their contents; return False if another process has stored a record since."""
        with self._documents.write() as rows, changed_history(rows.connection, rows.agent_id) as history:
            if history.next_sequence() != first:
                report.conflicts.append("a record that was written during the copy")
                return False
            for record in batch:
                history.insert(record, record.sequence)
                for digest in _digests([record]):
                    self._add_content(history, record, digest, report)
            history.set_next_sequence(batch[-1].sequence + 1 if batch else self._source.next_sequence)
        return True

    def _add_content(self, history: HistoryRows, record: WriteRecord, digest: bytes, report: CopyReport) -> None:
        if history.has_content(digest):
            return
        content = self._source.content(digest)
        if content is None:
            return
        if _is_damaged(content):
            report.skipped[_name(record)] = _DAMAGED
            return
        history.insert_content(content)
        report.copied_bytes += content.size_bytes

    def _verify(self, report: CopyReport) -> None:
        """Compare all records that the database should have, and their contents."""
        kept = {*report.conflicts, *report.skipped}
        for batch, stored in self._pairs():
            compared = [record for record in batch if _name(record) not in kept and record.sequence in stored]
            lost = [
                record
                for record in batch
                if _name(record) not in kept and record.sequence not in stored and record.time_ms >= self._since_ms
            ]
            wrong = self._wrong_contents(compared)
            for record in compared:
                is_wrong = not wrong.isdisjoint(_digests([record]))
                if is_wrong or not _is_equal(record, stored[record.sequence]):
                    lost.append(record)
            report.verified += len(compared)
            report.mismatched += map(_name, lost)

    def _wrong_contents(self, records: list[WriteRecord]) -> set[bytes]:
        """Return the contents of some records that the database does not have, or has with other bytes."""
        digests = _digests(records)
        with self._documents.read() as rows:
            stored: dict[bytes, bytes] = dict(rows.all(_HASHES, digests=digests))
            return {digest for digest in digests if self._is_wrong(digest, stored.get(digest), _history(rows))}

    def _is_wrong(self, digest: bytes, stored: bytes | None, history: HistoryRows) -> bool:
        content = self._source.content(digest)
        if content is None or stored == sha256(content.data).digest():
            return False
        # Stored by an edit of the database, whose zlib may compress differently.
        return not _is_damaged(content) and (stored is None or history.content(digest) is None)


def _batches(records: Iterable[WriteRecord]) -> Iterator[list[WriteRecord]]:
    """Yield the records in lists, of limited number and size of contents."""
    batch: list[WriteRecord] = []
    size = 0
    for record in records:
        batch.append(record)
        size += record.before_bytes + record.after_bytes
        if len(batch) == _BATCH_RECORDS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _history(rows: AgentRows) -> HistoryRows:
    return HistoryRows(rows.connection, rows.agent_id)


def _digests(records: Iterable[WriteRecord]) -> list[bytes]:
    """Return the SHA-256 of the contents of some records, each once."""
    digests = (digest for record in records for digest in (record.before, record.after))
    return list(dict.fromkeys(digest for digest in digests if digest is not None))


def _is_equal(record: WriteRecord, stored: WriteRecord) -> bool:
    """Compare a record of the source with one of the database. Whether their contents exist is not compared."""
    written = replace(record, caller=storable(record.caller), key=storable(record.key))
    return replace(written, is_restorable=True) == replace(stored, is_restorable=True)


def _is_damaged(content: StoredContent) -> bool:
    plain = decompressed(content.data, content.size_bytes)
    return plain is None or sha256(plain).digest() != content.digest


def _name(record: WriteRecord) -> str:
    return f"{record.path}, version {record.version_id}"
