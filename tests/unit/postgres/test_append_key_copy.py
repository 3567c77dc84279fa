"""Copies of the idempotency keys of appends from a ledger into the database."""

import pytest

pytest.importorskip("psycopg")

from memoryd_server.errors import InvalidRequest
from memoryd_server.postgres import AppendKeyCopy, CopyOptions
from memoryd_server.postgres.document_writer import KEPT_KEYS
from memoryd_server.writing import AppendState, LedgerEntry, stored_ledger
from postgres_server import missing
from unit.writing.written_memory import NOW_MS, FolderMemory

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

NOTE = "memory/note.md"


def copied(memory, entries, **options):
    return AppendKeyCopy(memory.documents, entries, NOW_MS).into_database(CopyOptions(**options))


def entry(number, request="r"):
    return LedgerEntry(f"key{number}", NOTE, 0, 1, "b", request, number, number, AppendState.DONE)


def keys_of(memory):
    query = "SELECT key FROM append_keys WHERE agent_id = %(agent)s ORDER BY version"
    with memory.documents.read() as rows:
        return [row[0] for row in rows.all(query)]


def test_a_repeated_append_writes_nothing_after_the_copy(new_memory, tmp_path):
    folder, memory = FolderMemory(tmp_path), new_memory()
    first = folder.append("the ferry sails", idempotency_key="one", heading="Log")
    folder.append("at dawn", idempotency_key="two")
    folder.close()
    memory.put(NOTE, (folder.workspace / NOTE).read_bytes())
    ledger = stored_ledger(folder.state / "main.appends")
    report = copied(memory, ledger.entries)
    assert (report.copied, report.verified, report.is_complete) == (2, 2, True)
    again = memory.append("the ferry sails", idempotency_key="one", heading="Log")
    assert again.already_appended
    assert (again.path, again.start_line, again.end_line) == (NOTE, first.start_line, first.end_line)
    with pytest.raises(InvalidRequest, match="was used before with other contents"):
        memory.append("another text", idempotency_key="two")
    assert copied(memory, ledger.entries).equal == 2


def test_a_key_with_another_request_is_kept_and_listed(new_memory):
    memory = new_memory()
    copied(memory, [entry(1, "in the database")])
    report = copied(memory, [entry(1), entry(2)])
    assert (report.conflicts, report.copied, report.mismatched) == (["the key key1"], 1, [])
    assert copied(memory, [entry(1, "in the database")]).equal == 1


def test_a_dry_run_counts_and_copies_nothing(new_memory):
    memory = new_memory()
    assert copied(memory, [entry(1)], dry_run=True).copied == 1
    assert keys_of(memory) == []


def test_the_newest_keys_are_copied_in_their_order_and_pruned_one_by_one(new_memory):
    memory = new_memory()
    done = []
    report = copied(
        memory, [entry(number) for number in range(KEPT_KEYS + 5)], progress=lambda *counts: done.append(counts)
    )
    assert (report.copied, report.verified, report.is_complete) == (KEPT_KEYS, KEPT_KEYS, True)
    assert done[-1] == (KEPT_KEYS, KEPT_KEYS)
    assert keys_of(memory) == [f"key{number}" for number in range(5, KEPT_KEYS + 5)]
    memory.append("a later text", idempotency_key="later")
    assert keys_of(memory) == [*(f"key{number}" for number in range(6, KEPT_KEYS + 5)), "later"]
    # The database keeps its newer keys.
    report = copied(memory, [entry(number) for number in range(KEPT_KEYS)])
    assert len(report.skipped) == 6
    assert "newer keys" in report.skipped["the key key0"]
    assert keys_of(memory)[-1] == "later"


def test_an_interrupted_copy_continues(new_memory):
    memory, entries = new_memory(), [entry(number) for number in range(2_500)]

    def interrupt(_done, _total):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        copied(memory, entries, progress=interrupt)
    assert len(keys_of(memory)) == 1_000
    report = copied(memory, entries)
    assert (report.copied, report.equal, report.is_complete) == (1_500, 1_000, True)
    assert len(keys_of(memory)) == 2_500
