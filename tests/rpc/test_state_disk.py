"""A state directory that is full, read-only or on a remote disk, over gRPC: searches work, and Status says why."""

import asyncio

import pytest

from disks import fill_up, small_disk, unwritable
from memoryd.v1 import memory_pb2
from memoryd_server.errors import IndexReadOnly
from memoryd_server.sqlite.connection import journal_for
from rpc.wire import check_refused, kinds, paths
from waiting import eventually

FILES = 20


@pytest.fixture
def filled(home):
    home.write(**{f"n{number}": f"heron number{number}x" for number in range(FILES)})
    return home


def told(degradations):
    return [d.reason for d in degradations if d.kind == memory_pb2.DEGRADATION_KIND_INDEX_IMPAIRED]


async def whole(running, files):
    return (await running.status()).index.files == files


async def indexed_once(serve):
    daemon = await serve()
    await daemon.synced()
    await daemon.stop()


@pytest.mark.sqlite_only("an index in PostgreSQL is not on the disk of the state directory")
async def test_a_read_only_state_directory_answers_and_takes_nothing_up(filled, serve):
    await indexed_once(serve)
    with unwritable(filled.state_dir / "memory"):
        running = await serve()
        filled.write(late="kestrel")
        answer = await running.search("number7x")
        assert paths(answer) == ["memory/n7.md"]
        assert any("cannot be written" in reason for reason in told(answer.info.degradations))
        for mode in ("SYNC_MODE_INCREMENTAL", "SYNC_MODE_FULL"):
            await check_refused(
                asyncio.ensure_future(running.synced(mode=mode)),
                "FAILED_PRECONDITION",
                "STATE_READ_ONLY",
                mentions="--state-dir",
            )
        status = await running.status()
        assert (status.index.files, status.index.pending_files) == (FILES, 1)
        assert len([reason for reason in told(status.degradations) if "nothing new" in reason]) == 1
        assert status.fulltext.available
        assert (await running.get("memory/late.md")).text == "kestrel"
    await running.synced()
    assert paths(await running.search("kestrel")) == ["memory/late.md"]
    assert "INDEX_IMPAIRED" not in kinds((await running.search("kestrel")).info.degradations)


@pytest.mark.sqlite_only("an index in PostgreSQL is not on the disk of the state directory")
async def test_a_read_only_state_directory_without_an_index_is_refused_with_the_reason(filled, serve):
    (filled.state_dir / "memory").mkdir()
    with unwritable(filled.state_dir / "memory"), pytest.raises(IndexReadOnly, match="no index yet"):
        await serve()


async def test_a_read_only_workspace_is_searched_and_synced_and_not_appended_to(filled, serve):
    running = await serve()
    with unwritable(filled.workspace):
        assert (await running.synced()).indexed_files == FILES
        assert paths(await running.search("number7x")) == ["memory/n7.md"]
        await check_refused(running.append("x"), "FAILED_PRECONDITION", "WORKSPACE_READ_ONLY")
        assert not (await running.status()).index.dirty


@pytest.mark.sqlite_only("an index in PostgreSQL is not on the disk of the state directory")
async def test_a_full_disk_is_said_so_and_room_alone_heals(filled, serve):
    with small_disk(filled.state_dir / "memory", 1_500):
        running = await serve()
        await running.synced()
        before = (await running.status()).index
        ballast = fill_up(filled.state_dir / "memory")
        # Each is one chunk, so that there is one result per file.
        filled.write(**{f"late{number}": f"kestrel number{number}z " * 80 for number in range(30)})
        await check_refused(
            asyncio.ensure_future(running.synced()), "RESOURCE_EXHAUSTED", "DISK_FULL", mentions="free some space"
        )
        status = await running.status()
        assert (status.index.revision, status.index.files) == (before.revision, FILES)
        assert any("full" in reason for reason in told(status.degradations))
        answer = await running.search("number7x")
        assert paths(answer) == ["memory/n7.md"]
        assert any("full" in reason for reason in told(answer.info.degradations))
        ballast.unlink()
        await running.synced()
        assert len(paths(await running.search("kestrel", max_results=50))) == 30
        assert not told((await running.status()).degradations)
        await running.stop()


@pytest.mark.sqlite_only("an index in PostgreSQL is not on the disk of the state directory")
async def test_a_full_disk_heals_in_the_background(filled, serve):
    with small_disk(filled.state_dir / "memory", 1_500):
        search = {"sync": {"watchDebounceMs": 20}}
        settings = {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"reconcileSeconds": 1}}
        running = await serve(settings, background=True)
        await eventually(lambda: whole(running, FILES))
        ballast = fill_up(filled.state_dir / "memory")
        filled.write(**{f"late{number}": f"kestrel number{number}z " * 100 for number in range(30)})
        await eventually(lambda: running.logged("end-sync"))
        assert paths(await running.search("number7x")) == ["memory/n7.md"]
        ballast.unlink()
        await eventually(lambda: whole(running, FILES + 30), seconds=30)
        await running.stop()


@pytest.mark.sqlite_only("an index in PostgreSQL is not on the disk of the state directory")
async def test_a_start_on_a_full_disk_answers_from_what_is_there(filled, serve):
    with small_disk(filled.state_dir / "memory", 1_500):
        await indexed_once(serve)
        ballast = fill_up(filled.state_dir / "memory")
        running = await serve()
        answer = await running.search("number7x")
        assert paths(answer) == ["memory/n7.md"]
        assert any("full" in reason for reason in told(answer.info.degradations))
        await check_refused(asyncio.ensure_future(running.synced()), "RESOURCE_EXHAUSTED", "DISK_FULL")
        ballast.unlink()
        await running.synced()
        assert not (await running.search("number7x")).info.degradations
        await running.stop()


@pytest.mark.sqlite_only("an index in PostgreSQL is not on the disk of the state directory")
async def test_a_remote_disk_is_reported_to_the_operator_and_everything_works(filled, serve, monkeypatch):
    table = filled.root / "mountinfo"
    table.write_text(f"30 25 0:30 / {filled.state_dir} rw shared:1 - virtiofs source rw\n")
    monkeypatch.setattr("memoryd_server.sqlite.store.journal_for", lambda folder, _: journal_for(folder, table))
    running = await serve()
    await running.synced()
    await running.synced(mode="SYNC_MODE_FULL")
    answer = await running.search("number7x")
    assert paths(answer) == ["memory/n7.md"]
    assert not answer.info.degradations
    (reason,) = told((await running.status()).degradations)
    assert "virtiofs" in reason
    assert not list(filled.state_dir.rglob("*-wal"))
