"""With indexes in PostgreSQL and memory files in folders, a daemon answers as with files, also without the server."""

import itertools
import json

import pytest

from memoryd_server.errors import IndexBusy, IndexUnavailable
from postgres_server import postgres_server, running_server  # noqa: F401 -- a fixture
from rpc.editing import all_versions, content, forget, kind, restore, write
from rpc.wire import VECTOR, by_meaning, check_refused, paths

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

NUMBERS = itertools.count()


@pytest.fixture
def url(postgres_server):  # noqa: F811 -- the fixture
    """The URL of an empty database."""
    return postgres_server.create_database(f"daemon{next(NUMBERS)}")


def with_store(url, settings=None, **more):
    merged = json.loads(json.dumps(settings or {}))
    store = {"url": url, "documents": "folder", **more}
    merged["memoryd"] = {**merged.get("memoryd", {}), "writes": "edit", "store": store}
    return merged


async def test_searches_edits_and_restores_survive_a_restart(serve, home, url, provider):
    home.write(a="# Harbour\n\nthe crane lifts containers\n", b="# Garden\n\na robin sings\n")
    home.say("s.jsonl", json.dumps({"type": "message", "message": {"role": "user", "content": "the ferry is late"}}))
    settings = with_store(url, by_meaning(provider, sources=["memory", "sessions"]))
    running = await serve(settings)
    await running.synced()
    assert paths(await running.search("crane"))[0] == "memory/a.md"
    assert paths(await running.search("robin", mode=VECTOR))[0] == "memory/b.md"
    before = content(home, "memory/a.md").decode()
    done = await write(running, "memory/a.md", before, content="# Harbour\n\nthe ferry leaves\n")
    assert paths(await running.search("ferry", min_revision=done.index_revision))[0] == "memory/a.md"
    status = await running.status()
    assert (status.index.files, status.index.chunks) == (2, 2)
    await running.stop()
    assert not list(home.state_dir.rglob("*.sqlite"))

    running = await serve(settings)
    assert paths(await running.search("ferry"))[0] == "memory/a.md"
    (version,) = await all_versions(running)
    assert kind(version) == "REPLACE_CONTENT"
    await restore(running, version.version_id, content(home, "memory/a.md"))
    assert content(home, "memory/a.md").decode() == before
    await running.synced(mode="SYNC_MODE_FULL")
    assert paths(await running.search("crane"))[0] == "memory/a.md"
    await forget(running, path="memory/b.md")
    assert paths(await running.search("robin")) == []


async def test_a_search_is_refused_while_the_server_is_away_and_answered_when_it_is_back(serve, home):
    with running_server(durable=True) as server:
        home.write(a="a crane\n")
        running = await serve(with_store(server.url))
        await running.synced()
        server.stop()
        await check_refused(running.search("crane"), "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
        assert (await running.get("memory/a.md")).text == "a crane\n"
        server.start()
        assert paths(await running.search("crane")) == ["memory/a.md"]
        await running.stop()


async def test_a_daemon_does_not_start_without_the_server(serve, tmp_path):
    with pytest.raises(IndexUnavailable, match="PostgreSQL server"):
        await serve(with_store(f"postgresql://memoryd@/memoryd?host={tmp_path}"))


async def test_a_second_daemon_does_not_start_with_the_agents_of_the_first(serve, home, url, tmp_path):
    home.write(a="a crane\n")
    first = await serve(with_store(url))
    await first.synced()
    other = type(home)(tmp_path / "other")
    other.write(a="a crane\n")
    with pytest.raises(IndexBusy, match="another memoryd"):
        await serve(with_store(url), at=other)
    await first.stop()
    second = await serve(with_store(url), at=other)
    assert paths(await second.search("crane")) == ["memory/a.md"]
