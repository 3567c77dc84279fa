"""Two daemons on one database: either of them answers, writes and indexes, and they agree."""

import asyncio
import itertools
import json
import random
import threading
import time

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.duration_pb2 import Duration

from fake_providers import Fault
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.cli.main import main
from postgres_server import postgres_server  # noqa: F401 -- a fixture
from rpc.editing import EDITS, all_versions, forget, write
from rpc.sync_streams import FULL, follow, rest
from rpc.wire import KEYWORD, TIMEOUT, Home, by_meaning, check_refused, paths, quiet
from waiting import eventually

psycopg = pytest.importorskip("psycopg")
LEASE_SECONDS = pytest.importorskip("memoryd_server.postgres.config").LEASE_SECONDS
INDEX_TABLES = pytest.importorskip("memoryd_server.postgres.schema").INDEX_TABLES

pytestmark = pytest.mark.postgres

LOST = "00000000deadbeef"
NUMBERS = itertools.count()
NOTES = 600
NOTE = "# Harbour\n\nthe crane lifts containers\n"
SESSIONS = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
# Nothing but a notification makes a daemon look at the files.
NEVER = {"reconcileSeconds": 3600}
FROM_SESSIONS = memory_pb2.SOURCE_SESSIONS
SECOND = Duration(seconds=1)
END_LISTENERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%' OR query = 'SELECT 1'"""


class Replicas:
    """Daemons on one database, by name, and a connection of a superuser to it."""

    def __init__(self, url, admin, folder, serve):
        self.url = url
        self.admin = admin
        self._folder = folder
        self._serve = serve

    def home(self, name):
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return Home(folder)

    def settings(self, search=None, **more):
        store = {"url": self.url, "documents": "database"}
        memoryd = {**EDITS["memoryd"], **NEVER, "store": store, **more}
        return {"agents": {"defaults": {"memorySearch": search or {}}}, "memoryd": memoryd}

    async def start(self, name, search=None, *, background=False, **more):
        settings = self.settings(search, **more)
        if background:
            settings = quiet(settings)
        return await self._serve(settings, at=self.home(name), background=background)

    async def two(self, search=None, **options):
        """Start two daemons that do nothing without a call, unless `background`."""
        return [await self.start(name, search, **options) for name in ("a", "b")]


@pytest.fixture
def replicas(postgres_server, tmp_path, serve):  # noqa: F811 -- the fixture
    name = f"replicas{next(NUMBERS)}"
    url = postgres_server.create_database(name)
    with postgres_server.admin(name) as admin:
        admin.execute("SET search_path = memoryd, public")
        yield Replicas(url, admin, tmp_path, serve)


async def lines_of(running, path):
    return (await running.get(path, lines=2000)).text.splitlines()


def import_folder(home):
    arguments = ["import", "folder", str(home.workspace), "--state-dir", str(home.state_dir)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output


async def until_found(running, query, path):
    async def is_found():
        return path in paths(await running.search(query))

    await eventually(is_found)


async def test_appends_with_one_key_through_both_are_written_once(replicas):
    a, b = await replicas.two()
    chance = random.Random(28)
    receipts = []
    for first in range(0, 200, 40):
        calls = [
            running.append(f"line {number}", path="memory/log.md", idempotency_key=f"key {number}")
            for number in range(first, first + 40)
            for running in (a, b)
        ]
        chance.shuffle(calls)
        receipts += await asyncio.gather(*calls)
    assert sorted(await lines_of(a, "memory/log.md")) == sorted(f"line {number}" for number in range(200))
    assert sum(receipt.already_appended for receipt in receipts) == 200
    newest = max(receipt.index_revision for receipt in receipts)
    for running in (a, b):
        assert set(paths(await running.search("line", min_revision=newest))) == {"memory/log.md"}


async def test_edits_through_both_do_not_overwrite_each_other(replicas):
    a, b = await replicas.two()
    seen = None
    for number in range(15):
        contents = [f"{NOTE}edit {number} by {name}\n" for name in "ab"]
        edits = [
            write(running, "memory/a.md", seen, content=each) for running, each in zip((a, b), contents, strict=True)
        ]
        done = await asyncio.gather(*edits, return_exceptions=True)
        (winner,) = [at for at, each in enumerate(done) if not isinstance(each, Exception)]
        await check_refused(_failed(done[1 - winner]), "ABORTED", "CONTENT_CHANGED")
        seen = contents[winner]
        assert (await b.get("memory/a.md")).text == seen
    assert len(await all_versions(a)) == 15


async def _failed(error):
    raise error


async def test_edits_with_one_key_through_both_are_done_once(replicas):
    a, b = await replicas.two()
    for number in range(20):
        edits = [
            write(running, f"memory/{number}.md", content=NOTE, idempotency_key=f"key {number}") for running in (a, b)
        ]
        versions = {done.version_id for done in await asyncio.gather(*edits)}
        assert len(versions) == 1
    assert len(await all_versions(a)) == 20


async def test_a_revision_of_one_is_reached_through_the_other(replicas):
    daemons = await replicas.two()
    for number in range(20):
        a, b = random.Random(number).sample(daemons, 2)
        done = await a.append(f"word{number}", path=f"memory/{number}.md")
        found = await b.search(f"word{number}", min_revision=done.index_revision)
        assert paths(found) == [f"memory/{number}.md"]
        assert found.info.index_revision >= done.index_revision


async def test_a_revision_is_reached_without_a_notification(replicas):
    a, b = await replicas.two()
    for number in range(5):
        replicas.admin.execute(END_LISTENERS)
        done = await a.append(f"word{number}", path=f"memory/{number}.md")
        assert paths(await b.search(f"word{number}", min_revision=done.index_revision)) == [f"memory/{number}.md"]


async def test_a_revision_that_no_replica_has_reached_is_refused_in_time(replicas):
    _, b = await replicas.two()
    request = pb.MemorySearchRequest(query="word", min_revision=2**62)
    await check_refused(b.stub.MemorySearch(request, timeout=1.5), "DEADLINE_EXCEEDED", "REVISION_NOT_REACHED")


async def test_a_watch_of_one_reports_changes_by_the_other(replicas):
    a, b = await replicas.two()
    stream = b.stub.WatchIndex(pb.WatchIndexRequest())
    await stream.read()
    done = await a.append("the ferry is late", path="memory/a.md")
    async with asyncio.timeout(TIMEOUT):
        while (await stream.read()).index_revision < done.index_revision:
            pass
    index = (await b.status()).index
    assert (index.revision, index.files) == (done.index_revision, 1)
    stream.cancel()


@pytest.mark.parametrize("delete_source", [False, True])
async def test_what_one_forgets_is_neither_found_nor_indexed_by_the_other(replicas, delete_source):
    a, b = await replicas.two()
    await write(a, "memory/a.md", content=NOTE)
    await write(b, "memory/b.md", content=NOTE.replace("crane", "ferry"))
    done = await forget(a, path="memory/a.md", delete_source=delete_source)
    assert done.chunks
    assert paths(await b.search("crane", min_revision=done.index_revision)) == []
    await b.synced(mode=FULL)
    assert paths(await b.search("crane")) == paths(await a.search("crane")) == []
    assert paths(await a.search("ferry")) == ["memory/b.md"]


async def test_a_session_that_one_has_forgotten_is_not_indexed_by_the_other(replicas):
    a, b = await replicas.two(SESSIONS)
    await say(a, "s1", "the heron stands in the reeds")
    await a.synced()
    assert paths(await b.search("heron", sources=[FROM_SESSIONS]))
    await forget(a, session_id="s1")
    await say(b, "s1", "another heron came later")
    await b.synced(mode=FULL)
    for running in (a, b):
        assert paths(await running.search("heron", sources=[FROM_SESSIONS])) == []


async def say(running, session_id, text):
    record = json.dumps({"type": "message", "message": {"role": "user", "content": text}})
    request = pb.SessionAppendRequest(session_id=session_id, records=[record])
    await running.stub.SessionAppend(request, timeout=TIMEOUT)


async def test_a_transcript_that_one_received_is_indexed_by_the_other(replicas):
    a, b = await replicas.two(SESSIONS)
    await say(a, "s1", "the heron stands in the reeds")
    await a.stop_daemon()
    await b.synced()
    assert paths(await b.search("heron", sources=[FROM_SESSIONS]))


async def test_one_answers_and_accepts_appends_while_the_other_rebuilds(replicas, pause_sync):
    a, b = await replicas.two()
    await write(a, "memory/a.md", content=NOTE)
    held = pause_sync(a)
    rebuild = follow(a, mode=FULL)
    await anext(rebuild)
    await held.until_reached()
    assert paths(await b.search("crane")) == ["memory/a.md"]
    request = pb.MemoryForgetRequest(path="memory/a.md")
    await check_refused(b.stub.MemoryForget(request, timeout=2), "UNAVAILABLE", "INDEX_BUSY", retry=True)
    request = pb.MemoryAppendRequest(text="the ferry is late", path="memory/b.md")
    receipt = await b.stub.MemoryAppend(request, timeout=1)
    assert receipt.path == "memory/b.md"
    assert not receipt.index_revision
    assert (await b.get("memory/b.md")).text == "the ferry is late\n"
    held.release()
    await rest(rebuild)
    await until_found(b, "ferry", "memory/b.md")
    assert paths(await b.search("crane")) == ["memory/a.md"]


async def test_one_indexes_what_the_other_writes_while_it_makes_vectors(replicas, provider):
    batches, go = itertools.count(), threading.Event()

    def hold_later_batches(texts):
        if len(texts) > 1 and next(batches) > 1:
            assert go.wait(TIMEOUT)
        return Fault()

    home = replicas.home("import")
    home.many(NOTES)
    home.settings(replicas.settings())
    import_folder(home)
    provider.refuse = hold_later_batches
    search = by_meaning(provider)["agents"]["defaults"]["memorySearch"]
    try:
        await replicas.start("a", search, background=True)
        await eventually(lambda: len(provider.texts) > 0)
        b = await replicas.start("b", search)
        writing = asyncio.ensure_future(b.append("the avocet wades", path="memory/b.md"))

        async def is_found():
            return paths(await b.search("avocet", mode=KEYWORD)) == ["memory/b.md"]

        await eventually(is_found)
        assert (await b.status()).index.pending_embeddings > 0
    finally:
        go.set()
    assert (await writing).index_revision


async def test_a_search_for_a_revision_waits_for_an_index_that_the_other_creates_again(replicas, pause_sync):
    a, b = await replicas.two()
    revision = (await write(b, "memory/a.md", content=NOTE)).index_revision
    assert paths(await a.search("crane", min_revision=revision)) == ["memory/a.md"]
    held = pause_sync(a)
    for table in (*INDEX_TABLES, "generations", "agents"):
        replicas.admin.execute(f"DELETE FROM {table}")
    searching = asyncio.ensure_future(a.search("crane"))
    await held.until_reached()
    request = pb.MemorySearchRequest(query="crane", min_revision=revision)

    async def is_refused():
        try:
            await b.stub.MemorySearch(request, timeout=1)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return False

    await eventually(is_refused)
    held.release()
    await searching
    assert paths(await b.search("crane", min_revision=revision)) == ["memory/a.md"]


async def test_one_forgets_while_the_other_makes_vectors(replicas, provider):
    go = threading.Event()

    def answer_slowly(texts):
        if len(texts) > 1:
            go.wait(1)
        return Fault()

    home = replicas.home("import")
    home.many(2 * NOTES)
    home.settings(replicas.settings())
    import_folder(home)
    provider.refuse = answer_slowly
    search = by_meaning(provider)["agents"]["defaults"]["memorySearch"]
    try:
        await replicas.start("a", search, background=True)
        await eventually(lambda: len(provider.texts) > 0)
        b = await replicas.start("b", search)
        request = pb.MemoryForgetRequest(path="memory/many/00000.md", delete_source=True)
        assert (await b.stub.MemoryForget(request, timeout=10)).chunks
        assert (await b.status()).index.pending_embeddings > 0
    finally:
        go.set()


async def test_a_sync_goes_on_when_the_replica_that_indexes_stops(replicas, pause_sync):
    a, b = await replicas.two()
    held = pause_sync(a)
    writes = [
        asyncio.ensure_future(write(a, f"memory/{number}.md", content=f"{NOTE}word{number}\n")) for number in range(3)
    ]
    await held.until_reached()
    sync = asyncio.ensure_future(b.synced())
    await eventually(b.runs)
    stop = asyncio.ensure_future(a.stop_daemon())
    await eventually(a.daemon.agents.stopping.is_set)
    held.release()
    await stop
    await asyncio.gather(*writes, return_exceptions=True)
    done = await sync
    for number in range(3):
        found = await b.search(f"word{number}", min_revision=done.index_revision)
        assert paths(found) == [f"memory/{number}.md"]


async def test_a_daemon_stops_while_its_run_waits_for_another_one(replicas, pause_sync):
    a, b = await replicas.two()
    await write(a, "memory/a.md", content=NOTE)
    held = pause_sync(a)
    rebuild = follow(a, mode=FULL)
    await anext(rebuild)
    await held.until_reached()
    waiting = follow(b, heartbeat_interval=SECOND)
    while not (await anext(waiting)).HasField("heartbeat"):
        pass
    async with asyncio.timeout(5):
        await b.stop_daemon()
        await check_refused(waiting, "ABORTED", "SYNC_CANCELLED", retry=True)
    held.release()
    await rest(rebuild)


async def test_files_of_an_import_are_indexed_by_a_running_daemon(replicas):
    running = await replicas.start("a", background=True)
    await running.synced()
    home = replicas.home("import")
    home.settings(replicas.settings())
    # Twice, because the daemon looks at the files once after its start.
    for number in range(2):
        home.put(f"memory/{number}.md", f"word{number}")
        await asyncio.to_thread(import_folder, home)
        await until_found(running, f"word{number}", f"memory/{number}.md")


async def test_an_index_that_a_lost_replica_has_left_is_synced(replicas):
    running = await replicas.start("a", background=True)
    await running.synced()
    await running.append("the ferry is late", path="memory/a.md")
    # A takeover during a run would join it.
    await eventually(lambda: running.memory().index.coordinator.active is None)
    replicas.admin.execute("INSERT INTO replicas VALUES(%s, 1, now() - interval '1 s')", (LOST,))
    replicas.admin.execute("INSERT INTO leases(agent_id, replica_id) VALUES('main', %s)", (LOST,))
    before = len(running.runs())
    await eventually(lambda: len(running.runs()) > before and running.runs()[0].finished.is_set(), seconds=10)
    assert replicas.admin.execute("SELECT count(*) FROM leases").fetchone() == (0,)


@pytest.mark.slow
async def test_an_append_waits_for_the_locks_of_a_replica_that_is_cut_off(replicas):
    a = await replicas.start("a")
    await a.append("the ferry is late", path="memory/a.md")
    # As if a replica was cut off in the middle of a write, just after it had renewed its lease.
    renewed = "INSERT INTO replicas VALUES(%s, 1, now() + make_interval(secs => %s))"
    replicas.admin.execute(renewed, (LOST, LEASE_SECONDS))
    with psycopg.connect(f"{replicas.url}&application_name=memoryd%20{LOST}") as connection:
        connection.execute("SELECT set_config('memoryd.agent', 'main', true)")
        locked = connection.execute("SELECT 1 FROM memoryd.document_states FOR UPDATE").fetchall()
        assert len(locked) == 1
        began = time.monotonic()
        await a.append("the crane lifts containers", path="memory/a.md")
        assert time.monotonic() - began > LEASE_SECONDS - 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert paths(await a.search("containers")) == ["memory/a.md"]
