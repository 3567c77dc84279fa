"""What the real command does rarely: each failure has its reason, costs a bounded time, and is over when it is over."""

import asyncio
import json
import time

import grpc
import psutil
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from rpc.qmd_calls import BUILTIN, DIRECT, QMD, answered_by, ask, fallback_reason, qmd_settings, ready
from rpc.wire import TIMEOUT, check_refused, kinds, paths, quiet
from waiting import eventually, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("qmd_home")]

# Long enough for a start of Python on a busy machine, short enough to wait for.
SECONDS = 4.0
LIMITS = {"timeoutMs": int(SECONDS * 1000)}
GONE_SECONDS = 2.0


@pytest.fixture
def qmd(serve, fake):
    async def begin(**qmd):
        running = await serve(qmd_settings(fake.path, **{"limits": LIMITS, **qmd}))
        await ready(running)
        return running

    return begin


def check_gone(pids):
    """Nothing of the processes is left, but for what their new parent has not reaped."""
    wait_until(lambda: not any(map(is_alive, pids)), GONE_SECONDS)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# The fault, and a part of the reason that the reply gives.
FAILING = {
    "segfault": "SIGSEGV",
    "fail": "something broke",
    "busy": "busy",
    "noise": "more than",
    "nothing": "printed nothing",
    "not-json": "Segmentation is fun",
    "truncated": "instead of an array of results",
    "ci": "disabled in CI",
    "unknown-collection": "collection",
    "hang": "no answer",
}


@pytest.mark.parametrize("fault", FAILING)
async def test_a_failure_is_answered_by_the_builtin_engine_with_its_reason(qmd, fake, fault):
    running = await qmd()
    fake.faults(search=fault)
    began = time.monotonic()
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert kinds(answer.info.degradations)[0] == "BACKEND_FALLBACK"
    assert FAILING[fault] in fallback_reason(answer)
    assert time.monotonic() - began < SECONDS + 5
    check_gone(fake.hanging())


@pytest.mark.parametrize(
    "fault", ["crash-after", "fail-after", "hang-after", "log-before", "bytes-before", "no-line", "object"]
)
async def test_results_that_were_printed_whole_count(qmd, fake, fault):
    running = await qmd()
    fake.faults(search=fault)
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    assert not answer.info.degradations
    check_gone(fake.hanging())


async def test_nothing_found_in_words_is_nothing_found(qmd, fake):
    running = await qmd()
    fake.faults(search="no-results-in-words")
    answer = await ask(running, "crane")
    assert (answer.info.backend, list(answer.results)) == (QMD, [])


async def test_a_slow_start_is_waited_for(qmd, fake):
    running = await qmd(limits={"timeoutMs": 10_000})
    fake.faults(slow_seconds=1.5)
    assert (await ask(running, "crane")).info.backend == QMD


async def test_after_a_failure_no_caller_waits_for_qmd_again(qmd, fake):
    running = await qmd()
    fake.faults(search="hang")
    await ask(running, "crane")
    calls = len(fake.calls("search"))
    began = time.monotonic()
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert "no answer" in fallback_reason(answer)
    assert time.monotonic() - began < SECONDS
    assert len(fake.calls("search")) == calls
    status = await running.status()
    assert (status.configured_backend, status.active_backend) == (QMD, BUILTIN)
    assert not status.qmd.available
    assert "no answer" in status.qmd.reason
    assert "BACKEND_FALLBACK" in kinds(status.degradations)


@pytest.mark.slow
async def test_qmd_is_tried_again_without_a_restart(qmd, fake):
    running = await qmd()
    fake.faults(search="fail")
    assert (await ask(running, "crane")).info.backend == BUILTIN
    fake.faults()
    answer = await answered_by(running, QMD, seconds=30)
    assert not answer.info.degradations
    assert [event["event"] for event in running.logged("leave-qmd") + running.logged("return-to-qmd")] == [
        "leave-qmd",
        "return-to-qmd",
    ]


async def test_a_probe_finds_at_once_that_it_answers_again(qmd, fake):
    running = await qmd()
    fake.faults(search="fail")
    assert (await ask(running, "crane")).info.backend == BUILTIN
    fake.faults()
    assert (await running.status(probe=True)).qmd.available
    assert (await ask(running, "crane")).info.backend == QMD


@pytest.mark.slow
async def test_removed_and_put_back(qmd, fake):
    running = await qmd()
    fake.remove()
    began = time.monotonic()
    answer = await running.stub.MemorySearch(pb.MemorySearchRequest(query="crane", session_key=DIRECT), timeout=5)
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert "npm install" in fallback_reason(answer)
    assert time.monotonic() - began < 5
    fake.put_back()
    assert not fallback_reason(await answered_by(running, QMD, seconds=60))


@pytest.mark.slow
async def test_missing_from_the_start_it_is_used_once_it_is_there(serve, fake, home):
    fake.remove()
    running = await serve(qmd_settings(fake.path, limits=LIMITS, update={"onBoot": True}), background=True)
    await running.sync()
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    fake.put_back()
    assert paths(await answered_by(running, QMD, seconds=60)) == ["memory/a.md"]


async def test_a_version_that_is_too_old_is_reported(serve, fake):
    fake.faults(version="1.9.0")
    running = await serve(qmd_settings(fake.path, limits=LIMITS))
    status = await running.status(probe=True)
    assert "1.9.0 is older" in status.qmd.reason


async def test_without_fallback_a_failure_is_an_error(qmd, fake, short_trial_pauses):
    running = await qmd(fallback="none")
    fake.faults(search="segfault")
    for _ in range(2):
        refused = await check_refused(
            running.stub.MemorySearch(pb.MemorySearchRequest(query="crane", session_key=DIRECT), timeout=TIMEOUT),
            "UNAVAILABLE",
            "BACKEND_UNAVAILABLE",
            retry=True,
            mentions="SIGSEGV",
        )
    assert refused.metadata["backend"] == "qmd"
    status = await running.status()
    assert status.active_backend == 0
    assert status.index.chunks == 0
    fake.faults()
    assert (await answered_by_search(running)).info.backend == QMD


async def answered_by_search(running):
    async def look():
        try:
            return await ask(running, "crane")
        except grpc.aio.AioRpcError:
            return None

    return await eventually(look, seconds=30)


async def test_without_fallback_a_sync_that_fails_is_an_error(qmd, fake):
    running = await qmd(fallback="none")
    fake.faults(update="fail")
    await check_refused(
        running.stub.Sync(pb.SyncRequest(), timeout=TIMEOUT),
        "UNAVAILABLE",
        "BACKEND_UNAVAILABLE",
        mentions="something broke",
    )


async def test_an_update_that_fails_leaves_the_old_index_and_is_reported(qmd, fake, home):
    running = await qmd()
    home.write(b="a second crane\n")
    fake.faults(update="fail")
    assert (await running.synced()).indexed_files == 1
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    assert kinds(answer.info.degradations) == ["INDEX_IMPAIRED"]
    fake.faults()
    await running.sync()
    answer = await ask(running, "crane")
    assert (sorted(paths(answer)), list(answer.info.degradations)) == (["memory/a.md", "memory/b.md"], [])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy-once", "constraint-once"])
async def test_an_update_that_meets_another_writer_is_tried_again(qmd, fake, home, fault):
    running = await qmd()
    home.write(b="a second crane\n")
    fake.faults(update=fault)
    await running.sync()
    answer = await ask(running, "crane")
    assert (len(paths(answer)), list(answer.info.degradations)) == (2, [])


async def test_before_the_first_update_no_search_is_answered_empty(serve, fake):
    running = await serve(qmd_settings(fake.path, limits=LIMITS))
    await running.status(probe=True)
    fake.faults(update="hang")
    sync = asyncio.ensure_future(running.synced())
    await eventually(fake.hanging)
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert "first update" in fallback_reason(answer)
    sync.cancel()


async def test_documents_without_vectors_are_no_empty_answer(serve, fake, home):
    running = await serve(qmd_settings(fake.path, limits=LIMITS, searchMode="vsearch"))
    fake.faults(embed="embedding-elsewhere")
    await running.sync()
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert "vector" in fallback_reason(answer)
    fake.faults()
    await running.sync()
    assert paths(await ask(running, "crane")) == ["memory/a.md"]
    home.write(b="a second crane\n")
    fake.faults(embed="fail")
    await running.sync()
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    assert set(kinds(answer.info.degradations)) == {"VECTORS_PENDING"}


async def test_a_cancelled_call_ends_the_whole_group(qmd, fake):
    running = await qmd(limits={"timeoutMs": 60_000})
    fake.faults(search="hang")
    call = running.stub.MemorySearch(pb.MemorySearchRequest(query="crane", session_key=DIRECT), timeout=60)
    pids = await eventually(fake.hanging)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(check_gone, pids)
    fake.faults()
    # That a caller left says nothing against qmd.
    assert (await ask(running, "crane")).info.backend == QMD


async def test_a_caller_in_a_hurry_is_answered_in_its_time(qmd, fake):
    running = await qmd(limits={"timeoutMs": 60_000})
    fake.faults(search="hang")
    request = pb.MemorySearchRequest(query="crane", session_key=DIRECT)
    answer = await running.stub.MemorySearch(request, timeout=4)
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert "of the caller's time" in fallback_reason(answer)
    fake.faults()
    # Its hurry is nobody else's.
    assert (await ask(running, "crane")).info.backend == QMD


async def test_stopping_ends_what_runs(qmd, fake):
    running = await qmd(limits={"timeoutMs": 60_000})
    fake.faults(search="hang", update="hang")
    calls = [asyncio.ensure_future(ask(running, "crane")), asyncio.ensure_future(running.synced())]
    await eventually(lambda: len(fake.hanging()) == 4)
    began = time.monotonic()
    running.daemon._grace_seconds = 0.1
    await running.stop_daemon()
    assert time.monotonic() - began < 10
    await asyncio.to_thread(check_gone, fake.hanging())
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.slow
async def test_one_command_embeds_at_a_time(serve, fake, home):
    agents = [{"id": f"a{n}", "workspace": str(home.root / f"w{n}")} for n in range(4)]
    for n in range(4):
        (home.root / f"w{n}" / "memory").mkdir(parents=True)
        (home.root / f"w{n}" / "memory" / "a.md").write_text("a crane\n")
    settings = qmd_settings(fake.path, limits=LIMITS, searchMode="vsearch")
    running = await serve({**settings, "agents": {"list": agents}})
    fake.faults(embed="counted")
    await asyncio.gather(*(running.synced(agent_id=agent["id"]) for agent in agents))
    assert len(fake.calls("embed")) == 4
    assert json.loads(fake.path.with_name("most-embeds").read_text()) == 1


@pytest.mark.attacks
async def test_symlink_at_the_embedding_lock_stops_no_update_and_status_names_it(serve, fake, home, tmp_path):
    home.environ["XDG_RUNTIME_DIR"] = str(tmp_path / "runtime")
    folder = tmp_path / "runtime" / "memoryd"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "qmd-embed.lock").symlink_to(tmp_path / "target")
    running = await serve(qmd_settings(fake.path, searchMode="vsearch"))
    await ready(running)
    home.write(b="a second crane\n")
    await ready(running)
    assert (fake.calls("update"), fake.calls("embed")) == (["update"] * 2, ["embed"] * 2)
    assert not (tmp_path / "target").exists()
    (degradation,) = (await running.status()).degradations
    assert kinds([degradation]) == ["INDEX_IMPAIRED"]
    assert str(folder / "qmd-embed.lock") in degradation.reason
    (folder / "qmd-embed.lock").unlink()
    await ready(running)
    assert not (await running.status()).degradations


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_thousand_calls_leave_nothing_behind(qmd, fake):
    """As many spawns under a steady load, some of them faulty: no zombie, no descriptor, no thread, no hang."""
    running = await qmd()
    process = psutil.Process()
    for _ in range(4):
        await ask(running, "crane")
    before = (process.num_fds(), process.num_threads())
    for round_number in range(20):
        fake.faults(**({"search": "crash-after"} if round_number % 5 == 4 else {}))
        answers = await asyncio.gather(*(ask(running, "crane", max_results=1) for _ in range(50)))
        assert all(paths(answer) == ["memory/a.md"] for answer in answers)
    assert len(fake.calls("search")) >= 500
    await eventually(lambda: process.num_fds() <= before[0] + 4)
    assert process.num_threads() <= before[1] + 8
    assert [child for child in process.children(recursive=True) if child.status() == psutil.STATUS_ZOMBIE] == []


async def test_a_reload_changes_who_answers_while_calls_go_on(qmd, fake, home):
    running = await qmd()

    async def reload(settings):
        await running.daemon.reload(lambda: home.settings(quiet(settings)))
        return await eventually(lambda: ask(running, "crane"))

    answer = await reload({})
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert not fallback_reason(answer)
    answer = await reload(qmd_settings(fake.path, limits=LIMITS))
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    answer = await reload(qmd_settings(fake.path, limits={**LIMITS, "maxSnippetChars": 5}))
    assert [len(hit.snippet) for hit in answer.results] == [5]
