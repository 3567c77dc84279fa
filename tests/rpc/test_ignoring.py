"""A root's `.memoryignore`: matching files alone leave the index, and faults of the file are reported."""

import pytest

from memoryd.v1 import memory_pb2
from memoryd_server.sources.ignore import IGNORE_FILE, MOST_RULES
from rpc.sync_streams import FULL
from rpc.wire import kinds, paths

HERONS = ["memory/a.md", "memory/private/b.md"]


@pytest.fixture
async def running(serve, home):
    home.write(a="the heron stands in the reeds")
    home.put("memory/private/b.md", "the heron of the diary")
    running = await serve()
    await running.synced()
    assert sorted(paths(await running.search("heron"))) == HERONS
    return running


async def files(running):
    return sorted(file.path for file in (await running.files()).files)


async def test_an_ignored_file_leaves_the_index_and_stays_on_disk(running, home):
    home.put(IGNORE_FILE, "private/\n")
    # Status compares the disk with the index, so that it knows before the sync does.
    assert (await running.status()).index.dirty
    done = await running.synced()
    assert (done.removed_files, done.failed_files) == (1, 0)
    assert paths(await running.search("diary")) == []
    assert await files(running) == ["memory/a.md"]
    # It is no longer searched; who knows its path may read it.
    assert (await running.get("memory/private/b.md")).text == "the heron of the diary"
    assert not (await running.status()).index.dirty
    (home.workspace / IGNORE_FILE).unlink()
    assert (await running.synced()).indexed_files == 1
    assert sorted(paths(await running.search("heron"))) == HERONS


async def test_a_note_that_is_left_out_can_be_written_and_is_not_found(running, home):
    home.put(IGNORE_FILE, "private/\n")
    await running.append("a kestrel hovers", path="memory/private/c.md")
    assert "kestrel" in (home.workspace / "memory/private/c.md").read_text()
    assert paths(await running.search("kestrel")) == []
    assert await files(running) == ["memory/a.md"]


async def test_an_unusable_ignore_file_adds_nothing_keeps_the_index_and_is_reported(running, home):
    home.put(IGNORE_FILE, "x\n" * (MOST_RULES + 1))
    home.write(new="a kestrel hovers")
    assert (await running.synced()).failed_files == 1
    answer = await running.search("heron")
    assert sorted(paths(answer)) == HERONS
    assert "SOURCE_SKIPPED" in kinds(answer.info.degradations)
    assert paths(await running.search("kestrel")) == []
    (failed,) = (await running.status()).failed_files
    assert (failed.path, "rules" in failed.error) == (IGNORE_FILE, True)
    home.put(IGNORE_FILE, "private/\n")
    assert (await running.synced()).failed_files == 0
    assert paths(await running.search("kestrel")) == ["memory/new.md"]
    assert not (await running.status()).failed_files
    assert await files(running) == ["memory/a.md", "memory/new.md"]


async def test_a_rebuild_leaves_it_out_too(running, home):
    home.put(IGNORE_FILE, "private/\n")
    assert (await running.synced(mode=FULL)).indexed_files == 1
    assert (await running.status()).index.state == memory_pb2.INDEX_STATE_READY
    assert paths(await running.search("heron")) == ["memory/a.md"]
