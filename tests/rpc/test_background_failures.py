"""A background task that fails is named by Status and counted by the metrics, and continues."""

import httpx
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from rpc.callers import bearer, new_token
from waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow]

SETTINGS = {"agents": {"list": [{"id": "main"}, {"id": "bob"}]}, "memoryd": {"metrics": {"listen": "127.0.0.1:0"}}}


async def counted(running):
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(running.daemon.metrics_url)).text
    name = 'memoryd_background_task_failures_total{agent="main",task="reconcile pass"}'
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)]


async def test_failing_step_is_shown_and_counted_until_it_works_again(home, serve):
    home.write(boat="the red ferry sails at dawn")
    settings = {**SETTINGS, "memoryd": {**SETTINGS["memoryd"], "reconcileSeconds": 1}}
    running = await serve(settings, background=True, listen="127.0.0.1:0")
    (_, token), (_, narrow) = new_token(home), new_token(home, "main")
    watcher = running.background().watcher
    works = watcher.check

    def fail():
        raise ValueError("a fault of this test")

    async def failures(**request):
        found = await running.stub.Status(pb.StatusRequest(**request), **bearer(token))
        return list(found.service.background_failures)

    assert await failures() == []
    assert await counted(running) == []
    watcher.check = fail
    (message,) = await eventually(failures)
    assert message.startswith("reconcile pass failed (")
    assert message.endswith("ValueError: a fault of this test")
    assert (await counted(running))[0] >= 1
    assert await failures(agent_id="bob") == []
    limited = await running.stub.Status(pb.StatusRequest(), **bearer(narrow))
    assert list(limited.service.background_failures) == []
    assert "a fault of this test" in running.logged("fail-background-task")[0]["exception"]
    watcher.check = works

    async def works_again():
        return not await failures()

    await eventually(works_again)
    assert (await counted(running))[0] >= 1
