"""Entries whose store hangs, such as one on an unavailable network disk, do not delay those of other agents."""

import asyncio
import os

import grpc
import pytest

from entry_fixture import needs_lancedb
from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.entries.directory import THREADS
from rpc.wire import TIMEOUT

pytestmark = [pytest.mark.faults, pytest.mark.slow, needs_lancedb]

ON = {"agents": {"list": [{"id": "main"}, {"id": "bob"}]}, "memoryd": {"entries": {"enabled": True}}}


def remember(running, agent_id, text):
    return running.entries.Remember(pb.RememberRequest(agent_id=agent_id, text=text), timeout=TIMEOUT)


def recall(running, agent_id):
    return running.entries.Recall(pb.RecallRequest(agent_id=agent_id, query="ferry"), timeout=TIMEOUT)


async def test_calls_of_other_agents_are_served_while_the_store_of_one_hangs(home, serve):
    running = await serve(ON)
    for agent_id in ("main", "bob"):
        await remember(running, agent_id, "the red ferry")
    data = [file for file in home.root.rglob("*.lance") if file.is_file() and "bob" in str(file)]
    assert data
    for file in data:
        file.unlink()
        # Opening it blocks until another process opens it for writing.
        os.mkfifo(file)
    hanging = [asyncio.ensure_future(recall(running, "bob")) for _ in range(2 * THREADS)]
    await asyncio.sleep(0.1)
    assert not any(call.done() for call in hanging)
    for _ in range(2):
        found = await asyncio.gather(*(recall(running, "main") for _ in range(2 * THREADS)))
        assert all([entry.entry.text for entry in answer.entries] == ["the red ferry"] for answer in found)
    assert not any(call.done() for call in hanging)
    await remember(running, "main", "a heron by the weir")
    pipes = [os.open(file, os.O_RDWR | os.O_NONBLOCK) for file in data]
    ended = await asyncio.gather(*hanging, return_exceptions=True)
    assert all(isinstance(each, grpc.aio.AioRpcError) and each.code() is grpc.StatusCode.UNAVAILABLE for each in ended)
    await running.stop()
    for pipe in pipes:
        os.close(pipe)
