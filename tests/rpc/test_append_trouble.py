"""Damage to the append ledger is reported by Status and harms no append."""

import json

import pytest

from memoryd_server.writing.ledger import LedgerEntry, encode
from memoryd_server.writing.memory_file import AppendBlock, encode_content, request_digest

LOG = "memory/log.md"
TEXT = "decided to keep the cache"

pytestmark = pytest.mark.faults


@pytest.fixture
def ledger(home):
    return home.state_dir / "memory" / "main.appends"


def begun(home, *, before, copies_before=0):
    """Return the ledger's line of an append of TEXT that a crash cut short, and write the file with a part of TEXT."""
    block = AppendBlock(b"", encode_content(TEXT, ""))
    digest = request_digest(TEXT, LOG, "")
    home.put(LOG, before + block.data[:10].decode())
    newlines = before.count("\n")
    lines = (newlines + 1, newlines + 1)
    entry = LedgerEntry(
        "k", LOG, len(before), len(block.data), block.sha256, digest, *lines, copies_before=copies_before
    )
    return encode(entry)


async def test_a_damaged_ledger_is_reported_and_its_readable_keys_count(serve, home, ledger):
    running = await serve()
    await running.append(TEXT, path=LOG, idempotency_key="k")
    await running.stop()
    ledger.write_bytes(b"\0\0 rubbish \xff\n" + ledger.read_bytes())
    again = await serve()
    (issue,) = (await again.status()).source_issues
    assert str(ledger) in issue
    assert "main.appends.damaged" in issue
    assert (await again.append(TEXT, path=LOG, idempotency_key="k")).already_appended
    assert (home.workspace / LOG).read_text() == f"{TEXT}\n"
    assert b"rubbish" in ledger.with_name("main.appends.damaged").read_bytes()
    await again.stop()
    assert not (await (await serve()).status()).source_issues


async def test_an_append_cut_short_by_a_crash_is_completed_before_the_daemon_listens(serve, home, ledger):
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(begun(home, before="earlier\n"))
    ledger.with_name("main.appends.block").write_bytes(encode_content(TEXT, ""))
    running = await serve()
    assert (home.workspace / LOG).read_text() == f"earlier\n{TEXT}\n"
    assert not ledger.with_name("main.appends.block").exists()
    reply = await running.append(TEXT, path=LOG, idempotency_key="k")
    assert (reply.already_appended, reply.start_line) == (True, 2)


async def test_a_fragment_is_reported_until_its_sender_completes_it(serve, home, ledger):
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(begun(home, before="earlier\n"))
    running = await serve()
    (issue,) = (await running.status()).source_issues
    assert issue.startswith(f"{LOG}, line 2: ")
    await running.append(TEXT, path=LOG, idempotency_key="k")
    assert (home.workspace / LOG).read_text() == f"earlier\n{TEXT}\n"
    assert not (await running.status()).source_issues


async def test_a_ledger_removed_while_the_daemon_runs_is_rewritten(serve, home, ledger):
    running = await serve()
    await running.append(TEXT, path=LOG, idempotency_key="k")
    ledger.unlink()
    assert (await running.append(TEXT, path=LOG, idempotency_key="k")).already_appended
    assert "emptied or removed" in (await running.status()).source_issues[0]
    assert [json.loads(line)["key"] for line in ledger.read_text().splitlines()] == ["k"]
