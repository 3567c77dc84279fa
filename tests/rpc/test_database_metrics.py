"""The metrics of the database that the agents share: its connections, transactions and statements by operation."""

import itertools

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from postgres_server import postgres_server, running_server  # noqa: F401 -- a fixture
from rpc.editing import forget
from rpc.wire import VECTOR, by_meaning, check_refused, paths
from waiting import eventually

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

NUMBERS = itertools.count()
OPERATIONS = {
    "cache_read",
    "cache_write",
    "documents_read",
    "documents_write",
    "heartbeat",
    "history_read",
    "history_write",
    "index_read",
    "index_write",
    "leases",
    "other",
    "search",
    "search_keyword",
    "search_vector",
    "vacuum",
}


def with_metrics(url, settings=None, **store):
    merged = dict(settings or {})
    merged["memoryd"] = {
        **merged.get("memoryd", {}),
        "metrics": {"listen": "127.0.0.1:0"},
        "store": {"url": url, "documents": "folder", **store},
    }
    return merged


async def figures(running):
    """Every sample of the database, as (name, labels): value."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(running.daemon.metrics_url)).text
    return {
        (sample.name.removeprefix("memoryd_database_"), *sample.labels.values()): (sample.value, sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("memoryd_database_") and "le" not in sample.labels
    }


async def test_transactions_and_statements_are_counted_by_operation_and_agents_are_not_named(
    serve,
    home,
    postgres_server,  # noqa: F811 -- the fixture
    provider,
):
    url = postgres_server.create_database(f"metrics{next(NUMBERS)}")
    home.write(a="# Harbour\n\nthe crane lifts containers\n")
    running = await serve(with_metrics(url, by_meaning(provider)))
    await running.synced()
    before = await figures(running)
    assert paths(await running.search("crane"))
    assert paths(await running.search("crane", mode=VECTOR))
    found = await figures(running)

    def more(*key):
        return found[key][0] - before.get(key, (0, {}))[0]

    assert more("transaction_seconds_count", "search") >= 2
    assert more("statement_seconds_count", "search_keyword") >= 1
    assert more("statement_seconds_count", "search_vector") >= 1
    assert found["statement_seconds_sum", "search_keyword"][0] > 0
    assert found["transaction_seconds_count", "index_write"][0] >= 1
    assert found["statement_seconds_count", "heartbeat"][0] >= 1
    assert found["connects_total",][0] >= 2
    assert more("wait_seconds_count") >= 2
    assert found["waiting",][0] == 0
    assert found["connections", "idle"][0] >= 1
    names = {name for _, labels in found.values() for name in labels}
    assert names <= {"event", "operation", "reason", "state"}
    assert found["replica_events_total", "listen"][0] == 1
    assert found["replica_events_total", "lease"][0] >= 1
    assert {labels["operation"] for _, labels in found.values() if "operation" in labels} <= OPERATIONS


async def test_failed_transactions_are_counted_by_their_reason(serve, home):
    with running_server(durable=True) as server:
        home.write(a="a crane\n")
        running = await serve(with_metrics(server.url))
        await running.synced()
        server.stop()
        await check_refused(running.search("crane"), "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
        found = await figures(running)
        assert found["errors_total", "search", "INDEX_UNAVAILABLE"][0] >= 1
        server.start()
        await running.stop()


async def test_forgotten_text_is_pending_until_vacuum_has_run(serve, home, postgres_server):  # noqa: F811 -- the fixture
    url = postgres_server.create_database(f"metrics{next(NUMBERS)}")
    home.write(a="a crane\n", b="a robin\n")
    running = await serve(with_metrics(url))
    await running.synced()
    reply = await forget(running, path="memory/a.md")
    assert (reply.chunks, reply.purge_pending) == (1, True)

    async def has_run():
        found = await figures(running)
        return ("statement_seconds_count", "vacuum") in found

    await eventually(has_run)


async def test_a_daemon_without_a_database_has_no_metrics_of_one(serve, home):
    home.write(a="a crane\n")
    running = await serve({"memoryd": {"metrics": {"listen": "127.0.0.1:0"}}})
    await running.synced()
    assert await figures(running) == {}
