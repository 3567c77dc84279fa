"""Searches and reads of a standby, for callers that allow an older answer."""

import asyncio
import itertools
import random
import time

import grpc
import pytest
from click.testing import CliRunner

from fake_providers import fake_reranker
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.cli.main import main
from postgres_server import running_server
from postgres_standby import running_standby
from rpc.test_database_metrics import figures
from rpc.test_documents import homeless, push, said, text_of, with_documents
from rpc.wire import TIMEOUT, VECTOR, Home, by_meaning, check_refused, kinds, paths
from waiting import eventually

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

NUMBERS = itertools.count()
LONG = {"seconds": 600}
SHORT = {"seconds": 3}
CONFLICTS = ("max_standby_streaming_delay=0", "wal_retrieve_retry_interval=100ms", "wal_receiver_timeout=2s")
NOTE = "# Harbour\n\nthe crane lifts containers\n"


@pytest.fixture(scope="module")
def primary():
    with running_server(durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary):
    with running_standby(primary, settings=CONFLICTS) as server:
        yield server


@pytest.fixture
def home(tmp_path):
    """A home without a workspace."""
    return homeless(tmp_path)


@pytest.fixture
def settings(primary, standby):
    """Settings with an empty database and its standby."""
    name = f"standby{next(NUMBERS)}"
    url = primary.create_database(name)
    standby.catch_up()
    found = with_documents(url, metrics={"listen": "127.0.0.1:0"})
    found["memoryd"]["store"]["standbyUrl"] = standby.url_of(name)
    return found


async def served(serve, settings, standby):
    """Serve a note, and wait until the standby answers with it."""
    running = await serve(settings)
    written = await running.append(NOTE, path="memory/harbour.md")
    await running.synced()
    await replayed(running, standby, written.index_revision)
    return running


async def outcomes(running):
    """Return the number of reads for which the standby was tried, by outcome."""
    found = await figures(running)
    return {labels["outcome"]: value for (name, *_), (value, labels) in found.items() if name == "standby_reads_total"}


async def answered(running):
    """Return how many reads the standby has answered."""
    return (await outcomes(running)).get("answered", 0)


async def search(running, query, max_staleness=LONG, seconds=TIMEOUT, **fields):
    request = pb.MemorySearchRequest(query=query, max_staleness=max_staleness, **fields)
    return await running.stub.MemorySearch(request, timeout=seconds)


async def get(running, path, max_staleness=LONG, **fields):
    return await running.get(path, max_staleness=max_staleness, **fields)


async def replayed(running, standby, revision):
    """Wait until the standby answers with a revision."""
    standby.catch_up()

    async def is_reached():
        before = await answered(running)
        answer = await search(running, "crane")
        return await answered(running) > before and answer.info.index_revision >= revision

    await eventually(is_reached)


async def test_a_fresh_standby_answers_searches_recalls_and_reads(serve, settings, standby):
    running = await served(serve, settings, standby)
    before = await answered(running)
    revision = (await running.status()).index.revision
    found = await search(running, "crane", min_revision=revision)
    assert paths(found) == ["memory/harbour.md"]
    assert kinds(found.info.degradations) == []
    assert not found.info.stale
    lines = await get(running, "memory/harbour.md", include_chunks=True)
    assert lines.text == NOTE
    assert len(lines.chunks) == 1
    assert await answered(running) == before + 2
    request = pb.MemoryRecallRequest(text="which crane lifts containers?", max_staleness=LONG)
    assert "crane" in (await running.stub.MemoryRecall(request, timeout=TIMEOUT)).block
    assert await answered(running) == before + 3


async def test_without_max_staleness_the_primary_answers(serve, settings, standby):
    running = await served(serve, settings, standby)
    before = await outcomes(running)
    assert paths(await running.search("crane")) == ["memory/harbour.md"]
    assert await text_of(running, "memory/harbour.md") == NOTE
    assert await outcomes(running) == before


async def test_an_agent_reads_no_rows_of_another_one(serve, settings, standby):
    settings["agents"] = {"list": [{"id": "main", "default": True}, {"id": "work"}]}
    running = await served(serve, settings, standby)
    await running.append("the other crane", path="memory/work.md", agent_id="work")
    standby.catch_up()
    before = await answered(running)
    assert paths(await search(running, "crane")) == ["memory/harbour.md"]
    assert paths(await search(running, "crane", agent_id="work")) == ["memory/work.md"]
    await check_refused(get(running, "memory/harbour.md", agent_id="work"), "NOT_FOUND", "FILE_NOT_FOUND")
    assert await answered(running) == before + 3


async def test_without_a_standby_max_staleness_has_no_effect(serve, primary):
    running = await serve(with_documents(primary.create_database(f"standby{next(NUMBERS)}")))
    await running.append(NOTE, path="memory/harbour.md")
    assert paths(await search(running, "crane")) == ["memory/harbour.md"]
    assert (await get(running, "memory/harbour.md")).text == NOTE


async def test_paused_replay_shows_the_old_state_until_it_is_too_old(serve, settings, standby):
    running = await served(serve, settings, standby)
    standby.pause_replay()
    try:
        later = await running.append("a heron stands there", path="memory/birds.md")
        # The revision selects the primary.
        assert paths(await search(running, "heron", min_revision=later.index_revision)) == ["memory/birds.md"]
        assert paths(await search(running, "heron")) == []
        await check_refused(get(running, "memory/birds.md"), "NOT_FOUND", "FILE_NOT_FOUND")
        assert paths(await search(running, "crane")) == ["memory/harbour.md"]

        async def primary_answers():
            return paths(await search(running, "heron", SHORT)) == ["memory/birds.md"]

        await eventually(primary_answers)
        assert (await get(running, "memory/birds.md", SHORT)).text == "a heron stands there\n"
        assert paths(await search(running, "heron")) == []
        assert (await outcomes(running))["behind"] >= 3
        # A document that the standby does not have yet is no reason for a sync.
        status = await running.status()
        assert not status.index.dirty
    finally:
        standby.resume_replay()
    await replayed(running, standby, later.index_revision)
    assert paths(await search(running, "heron")) == ["memory/birds.md"]


async def test_hybrid_and_vector_searches_run_on_a_standby_also_with_an_hnsw_index(serve, settings, standby, provider):
    settings["memoryd"]["store"]["approximateAbove"] = 20
    running = await serve({**by_meaning(provider), **settings})
    text = "".join(f"# Part {number}\n\nthe crane {number} lifts containers\n\n" for number in range(40))
    written = await running.append(text, path="memory/parts.md")
    final = await running.synced()
    await replayed(running, standby, max(written.index_revision, final.index_revision))
    before = await answered(running)
    for mode in (None, VECTOR):
        found = await search(running, "crane containers", **({} if mode is None else {"mode": mode}))
        assert set(paths(found)) == {"memory/parts.md"}
        assert found.info.vector_candidates
        assert kinds(found.info.degradations) == []
    assert await answered(running) >= before + 2


async def test_transcripts_are_read_on_a_standby(serve, settings, standby):
    settings["agents"] = {
        "defaults": {"memorySearch": {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}}
    }
    running = await serve(settings)
    await push(running, "s1", said("user", "where is the crane?").encode())
    final = await running.synced()
    await replayed(running, standby, final.index_revision)
    before = await answered(running)
    assert "crane" in (await get(running, "sessions/s1.jsonl")).text
    assert paths(await search(running, "crane")) == ["sessions/s1.jsonl"]
    assert await answered(running) == before + 2


async def test_the_primary_answers_while_the_standby_is_stopped(serve, settings, standby):
    running = await served(serve, settings, standby)
    standby.stop()
    try:
        for _ in range(3):
            assert paths(await search(running, "crane")) == ["memory/harbour.md"]
            assert (await get(running, "memory/harbour.md")).text == NOTE
        found = await outcomes(running)
        assert found["failed"] >= 1
        assert found["paused"] >= 3
        (warning,) = running.logged("skip-standby")
        assert (warning["level"], warning["used"]) == ("warning", "primary")
        assert str(standby.folder) in warning["error"]
    finally:
        standby.start()
    await replayed(running, standby, 1)


async def test_commands_read_from_the_standby(serve, settings, standby):
    running = await served(serve, settings, standby)
    before = await answered(running)
    for command in (["search", "crane"], ["get", "memory/harbour.md"], ["recall", "which crane lifts containers?"]):
        arguments = [*command, "--max-staleness", "10m", "--address", running.address]
        done = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert done.exit_code == 0, done.output
        assert "crane" in done.stdout
    assert await answered(running) == before + 3


@pytest.mark.parametrize("age", ["10", "-1s", "1d", "s", "1234567s", "²s"])
def test_commands_refuse_an_age_without_a_known_unit(age):
    done = CliRunner().invoke(main, ["get", f"--max-staleness={age}", "MEMORY.md"])
    assert done.exit_code == 2
    assert "is not a time; write 10s, 2m or 1h" in done.output


async def test_a_reranked_search_runs_on_the_standby(serve, settings, standby):
    with fake_reranker("jina", []) as server:
        block = {"provider": "http", "baseUrl": server.url, "model": server.model, "apiKey": "any"}
        settings["memoryd"]["rerank"] = block
        running = await served(serve, settings, standby)
        written = await running.append("another crane\n", path="memory/other.md")
        await replayed(running, standby, written.index_revision)
        before = await answered(running)
        found = await search(running, "crane")
        assert set(paths(found)) == {"memory/harbour.md", "memory/other.md"}
        assert found.info.reranking.candidates == 2
        assert await answered(running) == before + 2


async def test_the_index_is_read_on_the_standby_if_the_files_are_in_folders(serve, settings, standby, tmp_path):
    home = Home(tmp_path / "folders")
    home.write(harbour=NOTE)
    settings["memoryd"]["store"]["documents"] = "folder"
    settings["agents"] = {"defaults": {"memorySearch": {"sync": {"onSearch": True}}}}
    running = await serve(settings, at=home)
    final = await running.synced()
    await replayed(running, standby, final.index_revision)
    assert paths(await search(running, "crane")) == ["memory/harbour.md"]
    before = await answered(running)
    assert (await get(running, "memory/harbour.md")).text == NOTE
    home.write(harbour="a heron\n")
    # The index of the standby is older than the files, which starts no sync.
    assert (await search(running, "crane")).info.stale
    assert await answered(running) == before + 1
    assert not running.memory().index.monitor.current.dirty
    # That of the primary is, too.
    assert (await running.search("crane")).info.stale

    async def is_indexed():
        return paths(await running.search("heron")) == ["memory/harbour.md"]

    await eventually(is_indexed)


async def test_no_call_fails_when_the_standby_is_killed_under_load(serve, settings, standby):
    running = await served(serve, settings, standby)
    is_over = asyncio.Event()

    async def call():
        calls = 0
        while not is_over.is_set():
            assert paths(await search(running, "crane")) == ["memory/harbour.md"]
            assert (await get(running, "memory/harbour.md")).text == NOTE
            calls += 2
        return calls

    callers = [asyncio.create_task(call()) for _ in range(8)]
    await asyncio.sleep(0.5)
    await asyncio.to_thread(standby.kill)
    before = await answered(running)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(standby.start)

    async def is_used_again():
        return await answered(running) > before

    await eventually(is_used_again)
    is_over.set()
    assert min(await asyncio.gather(*callers)) > 0


async def test_a_hanging_standby_leaves_time_for_the_primary(serve, settings, standby):
    running = await served(serve, settings, standby)
    with standby.hanging():
        began = time.monotonic()
        assert paths(await search(running, "crane", seconds=4)) == ["memory/harbour.md"]
        assert time.monotonic() - began < 3
        # The next searches do not wait for the standby, which would take a second each.
        times = []
        for _ in range(3):
            began = time.monotonic()
            assert paths(await search(running, "crane", seconds=4)) == ["memory/harbour.md"]
            times.append(time.monotonic() - began)
        assert min(times) < 1


async def test_the_standby_answers_while_many_calls_wait_for_a_hanging_primary(serve, settings, primary, standby):
    running = await served(serve, settings, standby)
    with primary.hanging():
        waiting = [asyncio.create_task(search(running, "crane", None, seconds=8)) for _ in range(8)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        assert paths(await search(running, "crane")) == ["memory/harbour.md"]
        assert (await get(running, "memory/harbour.md")).text == NOTE
        assert time.monotonic() - began < 4
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_standby_answers_without_the_primary_until_it_is_too_old(serve, settings, primary, standby):
    running = await served(serve, settings, standby)
    bound = {"seconds": 10}
    primary.kill()
    stopped_at = time.monotonic()
    try:
        assert paths(await search(running, "crane", bound)) == ["memory/harbour.md"]
        await check_refused(running.search("crane"), "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
        assert (await get(running, "memory/harbour.md")).text == NOTE

        async def is_refused():
            called_at = time.monotonic()
            try:
                await search(running, "crane", bound)
            except grpc.RpcError:
                return True
            assert called_at < stopped_at + bound["seconds"]
            return False

        await eventually(is_refused)
        await check_refused(search(running, "crane", bound), "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
        await check_refused(get(running, "memory/harbour.md", bound), "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
        # A longer bound.
        assert paths(await search(running, "crane")) == ["memory/harbour.md"]
    finally:
        primary.start()
    await replayed(running, standby, 1)


async def test_no_answer_is_older_than_its_bound(serve, settings, standby):
    """Appends numbered words while the replay is paused at random; an answer has each word that is old enough."""
    running = await served(serve, settings, standby)
    chance = random.Random(7)
    appended = []
    ends_at = time.monotonic() + 20

    async def append():
        for number in itertools.count():
            if time.monotonic() > ends_at:
                return
            path = f"memory/{number}.md"
            await running.append(f"word{number} of the heron", path=path)
            appended.append((path, f"word{number}", time.monotonic()))
            await asyncio.sleep(0.1)

    async def pause():
        while time.monotonic() < ends_at:
            await asyncio.to_thread(standby.pause_replay)
            await asyncio.sleep(chance.uniform(0.2, 5))
            standby.resume_replay()
            await asyncio.sleep(chance.uniform(0, 1))

    async def check():
        before = await answered(running)
        seen_missing = 0
        while time.monotonic() < ends_at:
            await asyncio.sleep(0.01)
            bound = chance.uniform(0.5, 6)
            age = {"nanos": int(bound % 1 * 1e9), "seconds": int(bound)}
            called_at = time.monotonic()
            old = [each for each in appended if each[2] <= called_at - bound]
            new = [each for each in appended if each[2] > called_at - bound]
            for wanted in chance.sample(old[-10:], min(2, len(old))):
                path, word, _ = wanted
                assert path in paths(await search(running, word, age)), (wanted, bound)
                assert word in (await get(running, path, age)).text
            if new:
                path, word, _ = new[-1]
                seen_missing += path not in paths(await search(running, word, age))
        assert await answered(running) > before
        assert seen_missing

    await asyncio.gather(append(), pause(), check())
