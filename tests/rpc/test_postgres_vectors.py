"""A daemon creates an HNSW index for the vectors of a large agent, and drops it if the setting changes."""

import itertools

import pytest

from postgres_server import postgres_server  # noqa: F401 -- a fixture
from rpc.wire import VECTOR, by_meaning, paths
from waiting import eventually

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

QUESTIONS = ["the crane lifts containers", "the ferry leaves"]
NUMBERS = itertools.count()


@pytest.fixture
def url(postgres_server):  # noqa: F811 -- the fixture
    """The URL of an empty database."""
    return postgres_server.create_database(f"vectors{next(NUMBERS)}")


def settings_of(url, provider, above):
    store = {"url": url, "documents": "folder", "approximateAbove": above}
    memoryd = {"store": store, "reconcileSeconds": 1}
    return {**by_meaning(provider, sources=["memory", "sessions"]), "memoryd": memoryd}


async def test_a_large_agent_gets_an_index_after_a_sync_and_loses_it_when_the_setting_changes(
    serve, home, url, provider
):
    notes = {f"note{number}": f"a robin sings in garden {number}\n" for number in range(12)}
    home.write(**notes, harbour="the crane lifts containers\n")

    async def engine():
        return (await running.status()).vector.engine

    async def has_index():
        return await engine() == "pgvector-hnsw"

    running = await serve(settings_of(url, provider, 5), background=True)
    await running.synced()
    await eventually(has_index)
    home.write(ferry="the ferry leaves the harbour\n")
    await running.synced()
    found = [paths(await running.search(question, mode=VECTOR)) for question in QUESTIONS]
    assert [answer[0] for answer in found] == ["memory/harbour.md", "memory/ferry.md"]
    await running.stop()

    running = await serve(settings_of(url, provider, 0), background=True)
    assert [paths(await running.search(question, mode=VECTOR)) for question in QUESTIONS] == found

    async def has_none():
        return await engine() == "pgvector"

    await eventually(has_none)
    await running.stop()
