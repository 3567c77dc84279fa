"""A program that locks a memory file, or the append ledger, delays the appends to that file and nothing else."""

import asyncio
from pathlib import Path

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.writing.write_queue import MOST_WAITING
from rpc.test_append_races import locked
from rpc.test_append_trouble import LOG, TEXT, begun
from rpc.wire import check_refused, paths
from waiting import eventually

pytestmark = pytest.mark.faults

AGENTS = ("ada", "bob", "cyd")


@pytest.fixture
def ledger(home):
    return home.state_dir / "memory" / "main.appends"


@pytest.fixture
async def three(serve, home):
    """A daemon with three agents, each with a workspace of its own that is indexed."""
    entries = [{"id": name, "default": name == "ada", "workspace": str(home.root / name)} for name in AGENTS]
    for name in AGENTS:
        file = home.root / name / LOG
        file.parent.mkdir(parents=True)
        file.write_text(f"the heron of {name}\n")
    running = await serve({"agents": {"list": entries}}, workspace=None)
    for name in AGENTS:
        await running.synced(agent_id=name)
    return running


def append(running, seconds, text=TEXT, **request):
    return running.stub.MemoryAppend(pb.MemoryAppendRequest(text=text, **request), timeout=seconds)


async def test_locks_on_files_of_two_agents_delay_no_other_call(three, home):
    files = [home.root / name / LOG for name in ("ada", "bob")]
    with locked(files[0]), locked(files[1]):
        waiting = [
            asyncio.ensure_future(append(three, 60, agent_id=name, path=LOG, idempotency_key=f"k{number}"))
            for name in ("ada", "bob")
            for number in range(8)
        ]
        await eventually(lambda: all((home.state_dir / "memory" / f"{n}.appends").exists() for n in ("ada", "bob")))
        await asyncio.sleep(0.2)
        for name in AGENTS:
            await three.status(agent_id=name)
            assert [file.path for file in (await three.files(agent_id=name)).files] == [LOG]
            assert paths(await three.search("heron", agent_id=name)) == [LOG]
            assert (await three.get(LOG, agent_id=name)).text.startswith("the heron")
            # Another file of the same agent is not locked.
            assert (await three.append("elsewhere", agent_id=name, path="memory/other.md")).start_line == 1
        assert not any(call.done() for call in waiting)
    await asyncio.gather(*waiting)
    for file in files:
        assert file.read_text().count(TEXT) == 8


async def test_appends_beyond_a_number_do_not_wait_and_leave_other_calls_their_room(three, home):
    file = home.root / "ada" / LOG
    texts = [f"note {number:03}" for number in range(100)]
    with locked(file):
        calls = {
            text: asyncio.ensure_future(append(three, 60, text, agent_id="ada", path=LOG, idempotency_key=text))
            for text in texts
        }
        await eventually(lambda: sum(call.done() for call in calls.values()) >= len(texts) - MOST_WAITING)
        assert paths(await three.search("heron", agent_id="bob")) == [LOG]
        await three.status(agent_id="bob")
        await three.status(agent_id="ada")
        # The limit is for each agent.
        assert (await three.append("elsewhere", agent_id="bob", path=LOG)).start_line == 2
        refused = [text for text in texts if calls[text].done()]
        assert len(refused) == len(texts) - MOST_WAITING
        for text in refused:
            await check_refused(calls[text], "UNAVAILABLE", "INDEX_BUSY", retry=True, mentions="locked by another")
    waited = [text for text in texts if text not in refused]
    await asyncio.gather(*(calls[text] for text in waited))
    assert sorted(file.read_text().splitlines()[1:]) == waited
    for text in refused:
        assert not (await three.append(text, agent_id="ada", path=LOG, idempotency_key=text)).already_appended
    assert sorted(file.read_text().splitlines()[1:]) == texts


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
async def test_32_clients_of_agents_that_share_a_file_are_not_refused(serve, home, shared):
    entries = [{"id": n, "default": n == "ada", "workspace": str(home.root / ("x" if shared else n))} for n in AGENTS]
    for entry in entries:
        (Path(entry["workspace"]) / "memory").mkdir(parents=True, exist_ok=True)
    running = await serve({"agents": {"list": entries}}, workspace=None)

    async def client(number):
        for turn in range(4):
            await append(running, 20, f"{number} {turn}", agent_id=AGENTS[(number + turn) % 3], path=LOG)

    await asyncio.gather(*map(client, range(32)))
    files = {home.root / ("x" if shared else name) / LOG for name in AGENTS}
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{number} {turn}" for number in range(32) for turn in range(4))


@pytest.mark.parametrize("key", ["", "k"])
async def test_an_append_to_a_locked_file_fails_by_its_deadline_and_the_retry_is_clean(serve, home, ledger, key):
    log = home.put(LOG, "before\n")
    running = await serve()
    with locked(log):
        # An answer after the deadline would be DEADLINE_EXCEEDED.
        found = await check_refused(
            append(running, 2.0, path=LOG, idempotency_key=key),
            "UNAVAILABLE",
            "INDEX_BUSY",
            retry=True,
            mentions="locked by another program",
        )
        assert found.metadata["path"] == LOG
        assert LOG in found.message
    assert log.read_text() == "before\n"
    assert ledger.read_bytes() == b""
    assert not (await running.append(TEXT, path=LOG, idempotency_key=key)).already_appended
    assert log.read_text() == f"before\n{TEXT}\n"
    if key:
        assert (await running.append(TEXT, path=LOG, idempotency_key=key)).already_appended
        assert log.read_text() == f"before\n{TEXT}\n"


async def test_an_append_without_a_deadline_waits_no_longer_than_our_own_limit(serve, home):
    log = home.put(LOG, "before\n")
    running = await serve({"memoryd": {"limits": {"defaultDeadlineSeconds": 0.5}}})
    with locked(log):
        await check_refused(append(running, None, path=LOG), "UNAVAILABLE", "INDEX_BUSY", retry=True)
    assert log.read_text() == "before\n"


async def test_a_locked_ledger_is_named_and_waited_for(serve, home, ledger):
    running = await serve()
    await running.append("first", path=LOG)
    with locked(ledger):
        found = await check_refused(
            append(running, 1.0, path=LOG, idempotency_key="k"), "UNAVAILABLE", "INDEX_BUSY", retry=True
        )
        assert found.metadata["path"] == str(ledger)
        waiting = asyncio.ensure_future(running.append(TEXT, path=LOG, idempotency_key="k"))
        await asyncio.sleep(0.1)
        await running.status()
        assert not waiting.done()
    assert not (await waiting).already_appended
    assert (home.workspace / LOG).read_text() == f"first\n{TEXT}\n"


async def test_a_ledger_replaced_while_its_lock_is_waited_for_keeps_its_keys(serve, home, ledger):
    running = await serve()
    await running.append(TEXT, path=LOG, idempotency_key="k")
    with locked(ledger):
        waiting = asyncio.ensure_future(running.append(TEXT, path=LOG, idempotency_key="k"))
        await asyncio.sleep(0.1)
        ledger.unlink()
    assert (await waiting).already_appended
    assert (home.workspace / LOG).read_text() == f"{TEXT}\n"


async def test_a_stop_ends_appends_that_wait_for_a_lock(serve, home, ledger):
    log = home.put(LOG, "before\n")
    running = await serve()
    with locked(log):
        calls = [append(running, 60, path=LOG, idempotency_key=f"k{number}") for number in range(3)]
        refused = [asyncio.ensure_future(check_refused(c, "UNAVAILABLE", "SHUTTING_DOWN", retry=True)) for c in calls]
        await eventually(ledger.exists)
        await asyncio.wait_for(running.stop_daemon(), 5)
        await asyncio.gather(*refused)
    assert log.read_text() == "before\n"


@pytest.mark.parametrize("what", ["file", "ledger"])
async def test_a_start_does_not_wait_for_a_lock_and_status_says_what_is_unsettled(serve, home, ledger, what):
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(begun(home, before="earlier\n"))
    ledger.with_name("main.appends.block").write_bytes(f"{TEXT}\n".encode())
    log = home.workspace / LOG
    torn = log.read_text()
    with locked(log if what == "file" else ledger):
        running = await asyncio.wait_for(serve(), 10)
        (issue,) = (await running.status()).source_issues
        assert issue.startswith(repr(LOG if what == "file" else str(ledger)))
        assert "locked by another program" in issue
        assert log.read_text() == torn
    reply = await running.append(TEXT, path=LOG, idempotency_key="k")
    assert (reply.already_appended, reply.start_line) == (True, 2)
    assert log.read_text() == f"earlier\n{TEXT}\n"
    assert not (await running.status()).source_issues
    assert not ledger.with_name("main.appends.block").exists()
