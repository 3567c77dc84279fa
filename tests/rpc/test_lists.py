"""ListAgents and ListFiles page through what there is; agents see their own and nothing else."""

import gc
import os
import threading
import time

import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, check_refused, paths, refused

STATES = {
    "INDEXED": pb.FILE_STATE_INDEXED,
    "PENDING": pb.FILE_STATE_PENDING,
    "STALE": pb.FILE_STATE_STALE,
    "FAILED": pb.FILE_STATE_FAILED,
    "GONE": pb.FILE_STATE_GONE,
}


async def pages(call, field, **request):
    """Every item of every page, and how many there were on each."""
    items, sizes, token = [], [], ""
    while not sizes or token:
        reply = await call(page_token=token, **request)
        found = list(getattr(reply, field))
        items, token = items + found, reply.next_page_token
        sizes.append(len(found))
    return items, sizes


@pytest.mark.parametrize(
    ("size", "sizes"), [(0, [100, 100, 50]), (100, [100, 100, 50]), (125, [125, 125]), (10**9, [250]), (250, [250])]
)
async def test_pages_hold_every_file_once_in_order(serve, home, size, sizes):
    home.write(**{f"n{number:03}": "text" for number in range(250)})
    running = await serve()
    files, seen = await pages(running.files, "files", page_size=size)
    assert seen == sizes
    assert [file.path for file in files] == [f"memory/n{number:03}.md" for number in range(250)]


async def test_more_than_a_thousand_a_page_count_as_a_thousand(serve, home):
    home.write(**{f"n{number:04}": "" for number in range(1_001)})
    running = await serve()
    assert (await pages(running.files, "files", page_size=5_000))[1] == [1_000, 1]


def write_deep(folder, depth, count):
    """Writes `count` files of three bytes below so many folders of long names: no path that long is ever given."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 250, dir_fd=at)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    for number in range(count):
        with open(os.open(f"n{number:04}.md", os.O_CREAT | os.O_WRONLY, dir_fd=at), "w") as file:  # noqa: PTH123
            file.write("abc")
    os.close(at)


@pytest.mark.slow
async def test_a_page_of_paths_and_errors_as_long_as_can_be_fits_the_wire(serve, home):
    write_deep(home.workspace / "memory", 15, 1_000)
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 2}}})
    assert (await running.synced()).failed_files == 1_000
    files, sizes = await pages(running.files, "files", page_size=1_000)
    assert len({file.path for file in files}) == 1_000
    assert all(file.error for file in files)
    assert sum(file.ByteSize() for file in files) > 4 * 1024 * 1024
    assert len(sizes) > 1


async def test_a_page_goes_on_after_its_place_when_files_come_and_go(serve, home):
    home.write(a="", c="", e="")
    running = await serve()
    token = (await running.files(page_size=2)).next_page_token
    (home.workspace / "memory" / "c.md").unlink()
    home.write(b="", d="")
    assert [file.path for file in (await running.files(page_token=token)).files] == ["memory/d.md", "memory/e.md"]


async def test_files_are_listed_on_another_thread_than_the_event_loop_s(serve, home):
    home.write(a="")
    running = await serve()
    await running.sync()
    threads = []
    running.memory().forgotten.excludes = lambda *_: threads.append(threading.get_ident())
    assert (await running.files()).files
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.slow
async def test_pages_of_a_long_list_compare_the_disk_once(serve, home):
    home.many(5_001)
    running = await serve()
    first = await running.files(page_size=1_000)
    home.put("memory/zebra.md", "new")
    began = time.thread_time()
    listed, token = list(first.files), first.next_page_token
    while token:
        page = await running.files(page_size=1_000, page_token=token)
        listed, token = [*listed, *page.files], page.next_page_token
    assert [file.path for file in listed] == [f"memory/many/{number:05}.md" for number in range(5_001)]
    # The event loop's thread, which is this test's, serializes and parses 4,001 files; it does not sort or compare.
    assert time.thread_time() - began < 2
    assert "memory/zebra.md" in {file.path for file in (await pages(running.files, "files", page_size=1_000))[0]}


async def test_each_file_says_whether_it_can_be_found_and_why_not(serve, home):
    home.write(indexed="one", stale="two", gone="three", failed="x" * 200)
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 100}}})
    await running.sync()
    home.write(stale="two, changed", pending="new")
    (home.workspace / "memory" / "gone.md").unlink()
    files = {file.path.removeprefix("memory/").removesuffix(".md"): file for file in (await running.files()).files}
    assert {name: file.state for name, file in files.items()} == {name.lower(): state for name, state in STATES.items()}
    assert all(file.source == memory_pb2.SOURCE_MEMORY and file.modified_time.seconds for file in files.values())
    assert "bytes" in files["failed"].error
    assert not any(file.error for name, file in files.items() if name != "failed")
    assert (files["indexed"].size_bytes, files["indexed"].chunks) == (3, 1)
    assert (files["gone"].size_bytes, files["pending"].chunks, files["failed"].chunks) == (5, 0, 0)


@pytest.mark.folder_only("a path of a document is UTF-8")
async def test_a_name_that_is_not_utf8_breaks_no_list(serve, home):
    home.write(good="zebra")
    with open(os.fsencode(home.workspace / "memory") + b"/caf\xe9.md", "wb") as file:  # noqa: PTH123, ASYNC230 -- bytes
        file.write(b"zebra")
    running = await serve()
    completed = await running.synced()
    assert completed.indexed_files == 1
    states = [file.state for file in (await running.files()).files]
    assert sorted(states) == [pb.FILE_STATE_INDEXED, pb.FILE_STATE_FAILED]
    assert (await running.status()).failed_files
    assert paths(await running.search("zebra")) == ["memory/good.md"]


async def test_pages_hold_every_agent_once_in_order(serve, home):
    listed = [{"id": f"agent{n:03}", "workspace": str(home.root / f"w{n}")} for n in range(25)]
    listed[3]["default"] = True
    listed[4]["memorySearch"] = {"enabled": False}
    running = await serve({"agents": {"list": listed}})

    async def call(**request):
        return await running.stub.ListAgents(pb.ListAgentsRequest(**request))

    agents, sizes = await pages(call, "agents", page_size=10)
    assert sizes == [10, 10, 5]
    assert [agent.agent_id for agent in agents] == [entry["id"] for entry in listed]
    assert [agent.agent_id for agent in agents if agent.default] == ["agent003"]
    assert [agent.agent_id for agent in agents if not agent.enabled] == ["agent004"]
    assert agents[0].index_state == memory_pb2.INDEX_STATE_EMPTY
    assert agents[4].index_state == memory_pb2.INDEX_STATE_UNSPECIFIED
    # No agent is named `main`, so the default one answers for it.
    assert (await running.status()).agent_id == "agent003"


async def test_page_of_agents_looks_at_its_own_agents_only(serve, home):
    running = await serve(
        {"agents": {"list": [{"id": f"agent{n}", "workspace": str(home.workspace)} for n in range(5)]}}
    )
    agents, seen = running.daemon.agents, []
    summary = agents.summary
    agents.summary = lambda agent_id: seen.append(agent_id) or summary(agent_id)
    agents.opened = None
    first = await running.stub.ListAgents(pb.ListAgentsRequest(page_size=2))
    await running.stub.ListAgents(pb.ListAgentsRequest(page_size=2, page_token=first.next_page_token))
    del agents.opened
    assert seen == ["agent0", "agent1", "agent2", "agent3"]


@pytest.fixture
async def two(serve, home):
    other = home.root / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "theirs.md").write_text("lion secret")
    home.write(mine="zebra")
    running = await serve({"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(other)}]}})
    for agent_id in ("main", "other"):
        await running.sync(agent_id=agent_id)
    return running


async def test_agents_find_and_list_their_own_files_only(two):
    assert paths(await two.search("zebra lion")) == ["memory/mine.md"]
    assert paths(await two.search("zebra lion", agent_id="other")) == ["memory/theirs.md"]
    assert paths(await two.search("zebra lion", agent_id=" OTHER ")) == ["memory/theirs.md"]
    assert [file.path for file in (await two.files()).files] == ["memory/mine.md"]
    assert [file.path for file in (await two.files(agent_id="other")).files] == ["memory/theirs.md"]
    own, other = (await two.status()).workspace, (await two.status(agent_id="other")).workspace
    assert (own != other) is not two.home.has_documents
    assert (await two.status(agent_id="other")).index.files == 1


async def test_agents_read_and_write_their_own_files_only(two, home):
    found = await refused(two.get("memory/theirs.md"))
    assert (found.code, "lion" in found.message) == ("NOT_FOUND", False)
    for path in ("../other/memory/theirs.md", str(home.root / "other" / "memory" / "theirs.md")):
        await check_refused(two.get(path), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
        await check_refused(two.append("x", path=path), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    await two.append("walrus", path="memory/new.md", idempotency_key="k")
    reply = await two.append("lioness", path="memory/new.md", idempotency_key="k", agent_id="other")
    assert not reply.already_appended
    assert not (await two.search("walrus", agent_id="other")).results
    assert not (await two.search("lioness")).results


async def test_a_cursor_is_its_agent_s_own(two):
    cursor = (await two.sync())[0].cursor
    stream = two.stub.Sync(pb.SyncRequest(agent_id="other", cursor=cursor))
    await check_refused(stream, "OUT_OF_RANGE", "CURSOR_EXPIRED")


@pytest.mark.folder_only("documents in a database have no extra paths")
async def test_hundreds_of_extra_paths_are_listed_found_and_read(serve, home):
    names = [f"{number:03}.md" for number in range(300)]
    for name in names:
        home.put(f"../extra/{name}", f"the heron of pier {name}")
    extra = [f"../extra/{name}" for name in names]
    running = await serve({"agents": {"defaults": {"memorySearch": {"extraPaths": extra}}}})
    await running.sync()
    assert [file.path for file in (await running.files(page_size=1_000)).files] == extra
    (hit,) = (await running.search("heron 123", max_results=1)).results
    assert (await running.get(hit.path)).text == "the heron of pier 123.md"


@pytest.mark.slow
async def test_a_list_of_30_000_files_causes_no_full_garbage_collection(serve, home):
    """Each one held the interpreter's lock, and so the event loop, for some tenths of a second."""
    for number in range(30_000):
        folder = home.workspace / "memory" / f"{number % 100:02}"
        if number < 100:
            folder.mkdir()
        (folder / f"{number}.md").touch()
    running = await serve()
    full = []
    record = lambda phase, info: full.append(phase) if info["generation"] == 2 else None  # noqa: E731
    gc.callbacks.append(record)
    try:
        page = await running.files(page_size=1_000)
        assert len(page.files) == 1_000
        assert (await running.files(page_size=1_000, page_token=page.next_page_token)).files
    finally:
        gc.callbacks.remove(record)
    assert not full


async def test_files_are_listed_by_path_date_source_and_front_matter(home, serve):
    home.write(**{"2026-05-01-a": "the heron", "b": "---\ntags: [Billing, x]\ndate: 2026-06-02\n---\nthe heron"})
    (home.workspace / "MEMORY.md").write_text("the heron")
    running = await serve({})
    await running.synced()
    home.write(**{"2026-05-09-new": "not indexed yet"})

    async def listed(page_size=0, sources=(), **conditions):
        request = {"filter": pb.MemoryFilter(**conditions), "page_size": page_size, "sources": sources}
        return [file.path for file in (await pages(running.files, "files", **request))[0]]

    notes = ["memory/2026-05-01-a.md", "memory/2026-05-09-new.md", "memory/b.md"]
    assert await listed() == ["MEMORY.md", *notes]
    assert await listed(path_prefixes=["memory/"], page_size=1) == notes
    assert await listed(path_prefixes=["MEMORY", "memory/b"]) == ["MEMORY.md", "memory/b.md"]
    assert await listed(since="2026-05", until="2026-05") == notes[:2]
    assert await listed(since="2026-06", until="2026-06") == ["memory/b.md"]
    assert await listed(front_matter=[pb.FrontMatterCondition(key="tags", values=["#billing"])]) == ["memory/b.md"]
    assert await listed(sources=[memory_pb2.SOURCE_SESSIONS]) == []
    bad = pb.ListFilesRequest(filter=pb.MemoryFilter(since="May"), page_size=-1)
    violations = ["filter.since", "page_size"]
    await check_refused(
        running.stub.ListFiles(bad, timeout=TIMEOUT), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations
    )
    entries = pb.ListFilesRequest(sources=[memory_pb2.SOURCE_ENTRIES])
    await check_refused(
        running.stub.ListFiles(entries, timeout=TIMEOUT), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=["sources"]
    )
