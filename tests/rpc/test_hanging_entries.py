"""Entries whose store hangs, such as one on an unavailable network disk, do not delay those of other agents."""

import asyncio
import os

import grpc
import pytest

from entry_fixture import needs_lancedb
from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.entries.directory import THREADS
from rpc.wire import TIMEOUT, check_refused

pytestmark = [pytest.mark.faults, pytest.mark.slow, needs_lancedb]

ON = {"agents": {"list": [{"id": "main"}, {"id": "bob"}]}, "memoryd": {"entries": {"enabled": True}}}


def remember(running, agent_id, text):
    return running.entries.Remember(pb.RememberRequest(agent_id=agent_id, text=text), timeout=TIMEOUT)


def recall(running, agent_id):
    return running.entries.Recall(pb.RecallRequest(agent_id=agent_id, query="ferry"), timeout=TIMEOUT)


def block_reads(home, agent_id):
    """Replaces the files of an agent's entries by pipes, which block readers until somebody writes."""
    data = [file for file in home.root.rglob("*.lance") if file.is_file() and agent_id in str(file)]
    assert data
    for file in data:
        file.unlink()
        os.mkfifo(file)
    return data


def unblock(data):
    return [os.open(file, os.O_RDWR | os.O_NONBLOCK) for file in data]


async def test_calls_of_other_agents_are_served_while_the_store_of_one_hangs(home, serve):
    running = await serve(ON)
    for agent_id in ("main", "bob"):
        await remember(running, agent_id, "the red ferry")
    data = block_reads(home, "bob")
    hanging = [asyncio.ensure_future(recall(running, "bob")) for _ in range(2 * THREADS)]
    await asyncio.sleep(0.1)
    assert not any(call.done() for call in hanging)
    for _ in range(2):
        found = await asyncio.gather(*(recall(running, "main") for _ in range(2 * THREADS)))
        assert all([entry.entry.text for entry in answer.entries] == ["the red ferry"] for answer in found)
    assert not any(call.done() for call in hanging)
    await remember(running, "main", "a heron by the weir")
    pipes = unblock(data)
    ended = await asyncio.gather(*hanging, return_exceptions=True)
    assert all(isinstance(each, grpc.aio.AioRpcError) and each.code() is grpc.StatusCode.UNAVAILABLE for each in ended)
    await running.stop()
    for pipe in pipes:
        os.close(pipe)


async def test_a_call_during_an_opening_that_hangs_says_so_before_its_deadline(home, serve):
    running = await serve(ON)
    await remember(running, "bob", "the red ferry")
    await running.stop()
    data = block_reads(home, "bob")
    running = await serve(ON)
    call = running.entries.ListEntries(pb.ListEntriesRequest(agent_id="bob"), timeout=1.0)
    await check_refused(call, "DEADLINE_EXCEEDED", "DEADLINE_TOO_SHORT", retry=True)
    pipes = unblock(data)
    await running.stop()
    for pipe in pipes:
        os.close(pipe)
