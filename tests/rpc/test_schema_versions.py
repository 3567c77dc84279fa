"""A daemon over an index of another version: an older one is upgraded and answers, a newer one is kept whole."""

import gzip
import hashlib
from pathlib import Path

import pytest

from memoryd_server.errors import IndexTooNew
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.connection import open_writer
from rpc.wire import check_refused, paths, quiet, start

pytestmark = pytest.mark.sqlite_only("the file of an index is from another version")

DATA = Path(__file__).parents[1] / "unit" / "sqlite" / "data"
NOTES = {
    "memory/harbour.md": "# Harbour\n\nThe crane lifts containers while gulls circle over pier seven.\n",
    "memory/reiher.md": "# Reiher\n\nDer Reiher steht im Schilf, und die Fische sind nicht weit von ihm.\n",
}
NEWER = schema.SCHEMA_VERSION + 1


def index(home, agent_id="main"):
    return home.state_dir / "memory" / f"{agent_id}.memoryd.sqlite"


def former_index(home):
    """Where memoryd 0.1.0 kept the index."""
    return home.state_dir / "memory" / "main.sqlite"


def mark_newer(path):
    """What a later memoryd would leave: another version, and a table that nobody here knows."""
    connection = open_writer(path)
    connection.execute("CREATE TABLE of_a_later_memoryd(x)").fetchall()
    connection.execute(f"PRAGMA user_version={NEWER}").fetchall()
    connection.close()


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("version", range(1, schema.SCHEMA_VERSION))
async def test_a_daemon_answers_from_an_older_index_at_once(serve, home, version):
    for path, text in NOTES.items():
        home.put(path, text)
    former_index(home).parent.mkdir(parents=True)
    former_index(home).write_bytes(gzip.decompress((DATA / f"schema_{version}.sqlite.gz").read_bytes()))
    running = await serve()
    assert index(home).exists()
    assert not former_index(home).exists()
    assert paths(await running.search("crane")) == ["memory/harbour.md"]
    status = await running.status()
    assert status.index.schema_version == schema.SCHEMA_VERSION
    done = await running.synced()
    assert (done.indexed_files, done.removed_files) == (0, 0)
    home.write(late="a kestrel hovers")
    await running.synced()
    assert paths(await running.search("kestrel")) == ["memory/late.md"]


async def test_after_a_downgrade_the_other_agents_answer_and_nothing_is_lost(serve, home):
    # The first of them has the workspace that the flag names.
    agents = [{"id": "ahead"}, {"id": "level", "workspace": str(home.root / "level")}]
    home.write(a="a heron of ahead")
    (home.root / "level" / "memory").mkdir(parents=True)
    (home.root / "level" / "memory" / "a.md").write_text("a heron of level")
    settings = {"agents": {"list": agents}}
    first = await serve(settings)
    for name in ("ahead", "level"):
        await first.synced(agent_id=name)
    await first.stop()
    mark_newer(index(home, "ahead"))
    before = digest(index(home, "ahead"))
    running = await serve(settings)
    assert paths(await running.search("heron", agent_id="level")) == ["memory/a.md"]
    refused = await check_refused(running.search("heron", agent_id="ahead"), "FAILED_PRECONDITION", "INDEX_TOO_NEW")
    for words in (f"schema version {NEWER}", "upgrade memoryd", "delete the file"):
        assert words in refused.message
    assert digest(index(home, "ahead")) == before
    # Whoever stays with the older memoryd moves the file away, and may move it back after an upgrade.
    aside = home.root / "kept.sqlite"
    index(home, "ahead").rename(aside)
    running.daemon.agents.reopen_seconds = 0
    assert (await running.synced(agent_id="ahead")).indexed_files == 1
    assert paths(await running.search("heron", agent_id="ahead")) == ["memory/a.md"]
    assert digest(aside) == before


async def test_a_daemon_whose_only_index_is_newer_does_not_start_and_touches_nothing(serve, home):
    home.write(a="a heron")
    running = await serve()
    await running.synced()
    await running.stop()
    mark_newer(index(home))
    before = digest(index(home))
    with pytest.raises(IndexTooNew, match="upgrade memoryd, or delete the file"):
        await start(home, quiet())
    assert digest(index(home)) == before
    assert not home.socket.exists()


async def test_an_upgraded_index_is_the_same_after_a_restart(serve, home):
    for path, text in NOTES.items():
        home.put(path, text)
    index(home).parent.mkdir(parents=True)
    index(home).write_bytes(gzip.decompress((DATA / "schema_1.sqlite.gz").read_bytes()))
    running = await serve()
    revision = (await running.synced()).index_revision
    await running.stop()
    again = await serve()
    assert (await again.status()).index.revision == revision
    assert paths(await again.search("crane")) == ["memory/harbour.md"]
