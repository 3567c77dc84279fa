"""An index that is damaged or removed under a running daemon: answers go on or say why not, and it heals by itself."""

import asyncio
import os

import grpc
import pytest

from fake_providers import embedding_server
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, kinds, paths, refusal
from waiting import eventually

PAGE = 4096
FILES = 200


def zero_page_1(path):
    with path.open("r+b") as file:
        file.write(bytes(PAGE))


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def cut_log(path):
    os.truncate(path.with_name(path.name + "-wal"), 0)


def damage_file(damage):
    """A damage of the file of the index, after a checkpoint unless it is the log that is damaged."""

    def damaged(running, store):
        if damage is not cut_log:
            store.checkpoint(running)
        damage(store.index())

    return damaged


def damage_index(running, store):
    store.damage_index(running)


def remove_indexes(_running, store):
    store.remove_indexes()


OF_FILES = pytest.mark.sqlite_only("the file of an index is damaged")
DAMAGES = [
    *(pytest.param(damage_file(each), id=each.__name__, marks=OF_FILES) for each in (zero_page_1, cut, cut_log)),
    *(pytest.param(each, id=each.__name__) for each in (damage_index, remove_indexes)),
]


@pytest.fixture
async def running(home, serve):
    home.write(**{f"n{number}": f"heron number{number}x in the reeds " * 8 for number in range(FILES)})
    daemon = await serve()
    await daemon.synced()
    return daemon


async def whole(running):
    status = await running.status()
    return status if status.index.files == FILES and not status.HasField("active_sync") else None


async def check_asked(running, number):
    """An answer that is right, or one that says what it lacks, or an error with the right reason."""
    try:
        answer = await running.search(f"number{number}x")
    except grpc.aio.AioRpcError as error:
        found = refusal(error)
        assert (found.code, found.reason) == ("UNAVAILABLE", "INDEX_UNAVAILABLE")
        assert found.retry_seconds
        return
    if paths(answer) != [f"memory/n{number}.md"]:
        assert not answer.results
        assert "INDEX_IMPAIRED" in kinds(answer.info.degradations)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_every_search_on_a_damaged_index_is_right_or_degraded_and_repair_is_automatic(running, home, damage):
    before = (await running.status()).index.revision
    damage(running, home.store)
    for number in range(40):
        await check_asked(running, number)
    # A first page that every reader still remembers is met by the next one that is opened, or by a sync.
    await running.synced()
    status = await eventually(lambda: whole(running))
    assert status.index.revision > before
    assert status.index.state == memory_pb2.INDEX_STATE_READY
    answer = await running.search("number7x")
    assert paths(answer) == ["memory/n7.md"]
    assert not answer.info.degradations
    (told,) = status.degradations
    assert told.kind == memory_pb2.DEGRADATION_KIND_INDEX_IMPAIRED
    if not home.store.is_sqlite:
        assert ("missing" if damage is remove_indexes else "has no index") in told.reason
        return
    asides = list(home.store.index().parent.glob("main.memoryd.sqlite.damaged-*"))
    if damage is remove_indexes:
        assert "removed" in told.reason
        assert asides == []
    else:
        assert [told.used] == [str(aside) for aside in asides]


async def test_a_search_that_meets_the_damage_starts_the_healing_by_itself(running, home):
    home.store.damage_index(running)
    await check_asked(running, 150)
    await eventually(lambda: whole(running))
    assert running.logged("complete-sync")[-1]["trigger"] == "RECONCILE"
    assert paths(await running.search("number150x")) == ["memory/n150.md"]


async def test_status_and_lists_meet_it_and_answer_too(running, home):
    home.store.damage_index(running)
    assert (await running.status()).index.sources[0].files_on_disk == FILES
    await eventually(lambda: whole(running))
    home.store.damage_index(running)
    assert (await running.files(page_size=1000)).files
    await eventually(lambda: whole(running))


async def test_health_is_true_to_it(running, home):
    memory = running.memory()
    assert await memory.index.keyword_error() == ""
    home.store.remove_indexes()
    assert ("removed" if home.store.is_sqlite else "missing") in await memory.index.keyword_error()
    await eventually(lambda: whole(running))
    assert await memory.index.keyword_error() == ""


async def test_a_caller_who_waits_for_an_old_revision_waits_for_the_new_index_to_be_whole(running, home, pause_sync):
    revision = (await running.status()).index.revision
    held = pause_sync(running, at=FILES // 2)
    home.store.damage_index(running)
    await check_asked(running, 150)
    await held.until_reached()
    request = pb.MemorySearchRequest(query="number199x", min_revision=revision)
    waiting = asyncio.ensure_future(running.stub.MemorySearch(request, timeout=TIMEOUT))
    early = await running.search("number199x")
    assert early.info.index_revision > revision, "the new index counts from a higher number, before it holds as much"
    assert early.info.index_state == memory_pb2.INDEX_STATE_BUILDING
    assert not waiting.done()
    held.release()
    assert paths(await waiting) == ["memory/n199.md"]


async def test_an_index_damaged_while_no_daemon_ran_is_searched_and_built_at_once(running, home, serve):
    await running.stop()
    home.store.damage_index(running)
    again = await serve(background=True)
    await eventually(lambda: whole(again))
    assert paths(await again.search("number7x")) == ["memory/n7.md"]


async def test_vectors_come_back_without_a_call_to_the_provider(home, serve):
    with embedding_server() as server:
        remote = {"baseUrl": server.url, "apiKey": "x"}
        search = {"provider": "openai-compatible", "model": "words", "remote": remote}
        home.write(**{f"n{number}": f"heron number{number}x" for number in range(FILES)})
        running = await serve({"agents": {"defaults": {"memorySearch": search}}})
        await running.synced()
        assert len(server.texts) == FILES
        home.store.damage_index(running)
        await check_asked(running, 150)
        status = await eventually(lambda: whole(running))
        assert (status.index.pending_embeddings, status.index.identity.model) == (0, "words")
        answer = await running.search("heron number150x")
        assert answer.info.served_mode == memory_pb2.SEARCH_MODE_HYBRID
        assert len([text for text in server.texts if text.count(" ") == 1]) == FILES + 1
