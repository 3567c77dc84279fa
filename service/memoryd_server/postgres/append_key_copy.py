"""AppendKeyCopy: copies the idempotency keys of appends into the database, so that a retry writes nothing."""

from collections.abc import Iterator, Sequence
from typing import Final

from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.postgres.copy_report import CopyOptions, CopyReport
from memoryd_server.postgres.document_writer import KEPT_KEYS
from memoryd_server.postgres.errors import storable
from memoryd_server.writing import LedgerEntry

_BATCH: Final = 1_000

_FIND = "SELECT key, request_sha256 FROM append_keys WHERE agent_id = %(agent)s AND key = ANY(%(keys)s)"
_COUNT = "SELECT append_keys FROM document_states WHERE agent_id = %(agent)s"
# Each key has a version of its own, because the oldest keys are deleted by version.
_ADD = """INSERT INTO append_keys(agent_id, key, path, request_sha256, start_line, end_line, version, appended_at_ms)
    SELECT %(agent)s, key, path, request, first, last, %(version)s + number - 1, %(time)s
    FROM unnest(%(keys)s::text[], %(paths)s::text[], %(requests)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[])
        WITH ORDINALITY AS t(key, path, request, first, last, number)"""
_COUNT_ADDED = """UPDATE document_states SET append_keys = append_keys + %(count)s,
    next_version = next_version + %(count)s WHERE agent_id = %(agent)s"""

_NO_ROOM: Final = f"was not copied, because the database has {KEPT_KEYS} newer keys"


class AppendKeyCopy:
    """Copies the keys of finished appends of one agent, oldest first. Blocks.

    A key that the database has with another request is kept. `time_ms` is stored as the time of the appends.
    """

    def __init__(self, documents: AgentDatabase, entries: Sequence[LedgerEntry], time_ms: int) -> None:
        self._documents = documents
        self._entries = entries[-KEPT_KEYS:]
        self._time_ms = time_ms

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the missing keys, then compare all.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. Repeat the copy.
        """
        report = CopyReport()
        missing: list[LedgerEntry] = []
        for batch, stored in self._pairs():
            for entry in batch:
                found = stored.get(storable(entry.key))
                if found is None:
                    missing.append(entry)
                elif found == entry.request_sha256:
                    report.equal += 1
                else:
                    report.conflicts.append(f"the key {entry.key}")
        room = self._room()
        report.skipped |= {f"the key {entry.key}": _NO_ROOM for entry in missing[: max(0, len(missing) - room)]}
        missing = missing[max(0, len(missing) - room) :]
        if options.dry_run:
            report.copied = len(missing)
            return report
        for start in range(0, len(missing), _BATCH):
            self._add(missing[start : start + _BATCH], report)
            options.progress(report.equal + report.copied, len(self._entries))
        self._verify(report)
        return report

    def _pairs(self) -> Iterator[tuple[Sequence[LedgerEntry], dict[str, str]]]:
        """Yield some entries at a time, with the requests of those keys that the database has."""
        for start in range(0, len(self._entries), _BATCH):
            batch = self._entries[start : start + _BATCH]
            with self._documents.read() as rows:
                stored: dict[str, str] = dict(rows.all(_FIND, keys=[storable(entry.key) for entry in batch]))
            yield batch, stored

    def _room(self) -> int:
        with self._documents.read() as rows:
            return max(0, KEPT_KEYS - sum(rows.numbers(_COUNT)))

    def _add(self, entries: Sequence[LedgerEntry], report: CopyReport) -> None:
        with self._documents.write() as rows:
            version = rows.lock_documents()
            taken: dict[str, str] = dict(rows.all(_FIND, keys=[storable(entry.key) for entry in entries]))
            new = [entry for entry in entries if storable(entry.key) not in taken]
            rows.run(
                _ADD,
                version=version,
                time=self._time_ms,
                keys=[storable(entry.key) for entry in new],
                paths=[entry.path for entry in new],
                requests=[entry.request_sha256 for entry in new],
                firsts=[entry.start_line for entry in new],
                lasts=[entry.end_line for entry in new],
            )
            rows.run(_COUNT_ADDED, count=len(new))
        report.copied += len(new)

    def _verify(self, report: CopyReport) -> None:
        for batch, stored in self._pairs():
            names = {f"the key {entry.key}": entry for entry in batch}
            compared = [name for name in names if name not in report.skipped and name not in report.conflicts]
            report.verified += len(compared)
            report.mismatched += [
                name for name in compared if stored.get(storable(names[name].key)) != names[name].request_sha256
            ]
