"""What all agents of a daemon share: threads for searches, and an end to everything that runs."""

import asyncio
import os
import time

import psutil
import pytest

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason
from memoryd_server.qmd.host import CONCURRENT_SEARCHES, QmdHost
from memoryd_server.qmd.process import Command, CommandRun, ExitKind

PATIENCE = 20


@pytest.fixture
async def host():
    host = QmdHost()
    yield host
    await asyncio.to_thread(host.close)


@pytest.fixture
def run(host, tmp_path):
    def run(script, seconds=60.0):
        return CommandRun(Command(["/bin/sh", "-c", script], {"PATH": os.defpath}, str(tmp_path), seconds), host.guard)

    return run


async def test_a_search_comes_back_with_what_it_printed(host, run):
    done = await host.search(run("echo found"), PATIENCE)
    assert (done.ending, done.stdout) == (ExitKind.EXITED, "found\n")


async def test_whoever_gets_no_thread_in_time_hears_that_qmd_is_busy(host, run, tmp_path):
    searching = [asyncio.ensure_future(host.search(run("sleep 60"), PATIENCE)) for _ in range(CONCURRENT_SEARCHES)]
    await asyncio.sleep(0.2)
    before = psutil.Process().num_fds()
    with pytest.raises(QmdFailure) as failed:
        await host.search(run(f"touch {tmp_path}/ran"), 0.2)
    assert failed.value.reason is QmdFailureReason.BUSY
    for search in searching:
        search.cancel()
    await asyncio.gather(*searching, return_exceptions=True)
    assert (await host.search(run("echo free"), PATIENCE)).stdout == "free\n"
    assert not (tmp_path / "ran").exists()
    assert psutil.Process().num_fds() <= before


async def test_an_abandoned_search_ends(host, run, tmp_path):
    search = asyncio.ensure_future(host.search(run(f"echo $$ > {tmp_path}/pid; exec sleep 60"), PATIENCE))
    async with asyncio.timeout(PATIENCE):
        while True:
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
                break
            await asyncio.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    began = time.monotonic()
    while psutil.pid_exists(pid):
        assert time.monotonic() - began < 2
        await asyncio.sleep(0.01)


async def test_closing_ends_what_runs_and_lets_nothing_begin(tmp_path):
    host = QmdHost()
    invocation = Command(["/bin/sh", "-c", "sleep 60"], {"PATH": os.defpath}, str(tmp_path), 60)
    working = asyncio.ensure_future(host.update(lambda: host.run(CommandRun(invocation, host.guard))))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await asyncio.to_thread(host.close)
    assert (await working).ending is ExitKind.CANCELLED
    assert time.monotonic() - began < PATIENCE / 2
    with pytest.raises(QmdFailure) as failed:
        host.run(CommandRun(invocation, host.guard))
    assert failed.value.reason is QmdFailureReason.CANCELLED


async def test_where_no_process_can_be_started_there_is_a_failure(host, tmp_path):
    nowhere = CommandRun(Command(["/bin/true"], {}, str(tmp_path / "absent"), 5), host.guard)
    with pytest.raises(QmdFailure, match="the process cannot be started"):
        await host.search(nowhere, PATIENCE)
