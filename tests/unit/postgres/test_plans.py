"""Terms are looked up by their key, also if the statistics of the server do not know the agent."""

import time

import pytest

from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.text.terms import QueryTerm
from unit.store.contract import document

pytestmark = pytest.mark.postgres

READ = "SELECT coalesce(sum(idx_scan), 0), sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'postings'"
POSTINGS = 12_000
WORDS = 30


def fill(store):
    store.open()
    names = [f"{number}.md" for number in range(POSTINGS // (4 * WORDS))]
    texts = {name: " ".join(f"w{name.removesuffix('.md')}x{word}" for word in range(WORDS)) for name in names}
    store.writer().write([document(name, *[(text, "")] * 4) for name, text in texts.items()])


def test_a_search_and_a_write_do_not_read_all_postings_of_an_agent(postgres_module):
    database = postgres_module.database(postgres_module.server.create_database("plans"))
    known, unknown = (postgres_module.new_store(agent, database) for agent in ("known", "unknown"))
    fill(known)
    with postgres_module.server.admin("plans") as admin:
        admin.execute("ANALYZE")
        fill(unknown)
        with unknown.read() as reader:
            assert len(reader.keyword_hits([QueryTerm("w5x7"), QueryTerm("w6x", prefix=True)], ALL_CHUNKS, 9)) == 8
        unknown.writer().write([document("5.md", ("w5x7", ""))])
        # The sessions end, and report what they have read.
        known.close()
        unknown.close()
        scans = rows = 0
        deadline = time.monotonic() + 10
        while scans < WORDS:
            assert time.monotonic() < deadline
            scans, rows = admin.execute(READ).fetchone()
    assert rows < POSTINGS
