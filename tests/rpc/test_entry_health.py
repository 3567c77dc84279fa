"""grpc.health.v1 for the EntryService: unknown where entries are off, a dataset's own answer where they are on."""

import asyncio
import json

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from entry_fixture import needs_lancedb
from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.errors import EntriesUnavailable
from rpc.callers import SERVICE, health
from rpc.wire import TIMEOUT, Home, check_refused
from waiting import eventually

ENTRIES = "memoryd.v1.EntryService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def on(**config):
    plugins = {"slots": {"memory": "memory-lancedb"}, "entries": {"memory-lancedb": {"config": config}}}
    return {"agents": {"list": [{"id": "main"}, {"id": "bob"}]}, "plugins": plugins}


async def states(running):
    found = await health_pb2_grpc.HealthStub(running.channel).List(health_pb2.HealthListRequest(), timeout=TIMEOUT)
    return {name: answer.status for name, answer in found.statuses.items()}


async def is_unknown(running):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(running, ENTRIES)
    return caught.value.code() is grpc.StatusCode.NOT_FOUND


async def becomes(running, state):
    async def is_so():
        return (await states(running)).get(ENTRIES) == state

    assert await eventually(is_so, seconds=TIMEOUT)


def readiness(running):
    return running.readiness


async def test_where_entries_are_off_their_service_is_not_known(serve):
    running = await serve(background=True)
    assert await is_unknown(running)
    assert await states(running) == {"": SERVING, SERVICE: SERVING}
    watch = aiter(
        health_pb2_grpc.HealthStub(running.channel).Watch(
            health_pb2.HealthCheckRequest(service=ENTRIES), timeout=TIMEOUT
        )
    )
    assert (await anext(watch)).status == UNKNOWN


async def test_entries_that_cannot_be_kept_for_want_of_the_extra_are_not_serving(serve, without_lancedb):
    running = await serve(on(), background=True)
    await readiness(running).check_extensions()
    assert await states(running) == {"": SERVING, SERVICE: SERVING, ENTRIES: NOT_SERVING}


@needs_lancedb
async def test_entries_are_serving_once_a_dataset_answers_without_a_prior_call(serve):
    running = await serve(on(), background=True)
    await becomes(running, SERVING)
    assert await health(running, ENTRIES) == SERVING
    await running.server.close_gate()
    assert set((await states(running)).values()) == {NOT_SERVING}


@needs_lancedb
async def test_entries_that_cannot_be_opened_leave_the_rest_serving(serve, tmp_path):
    folder = str(tmp_path / "db")
    holder = await serve(on(dbPath=folder), background=True)
    await becomes(holder, SERVING)
    second = await serve(on(dbPath=folder), background=True, at=Home(tmp_path / "other"))
    await readiness(second).check_extensions()
    assert await states(second) == {"": SERVING, SERVICE: SERVING, ENTRIES: NOT_SERVING}
    await holder.stop()
    await readiness(second).check_extensions()
    assert await health(second, ENTRIES) == SERVING


@needs_lancedb
async def test_every_dataset_in_use_must_answer(serve, monkeypatch):
    running = await serve(on(), background=True)
    await running.entries.ListEntries(pb.ListEntriesRequest(agent_id="bob"), timeout=TIMEOUT)

    async def broken():
        raise EntriesUnavailable("the disk is gone")

    monkeypatch.setattr(running.entry_memories._open["bob"], "count", broken)
    await readiness(running).check_extensions()
    assert await health(running, ENTRIES) == NOT_SERVING
    monkeypatch.undo()
    await readiness(running).check_extensions()
    assert await health(running, ENTRIES) == SERVING


@needs_lancedb
async def test_a_reload_makes_the_service_known_and_unknown(serve, home):
    running = await serve(background=True)
    for settings, state in ((on(), SERVING), ({}, None), (on(), SERVING)):
        (home.state_dir / "memoryd.json5").write_text(json.dumps(settings))
        await running.daemon.reload(lambda settings=settings: home.settings(settings))
        await readiness(running).check_extensions()
        assert (await states(running)).get(ENTRIES) == state
    await running.daemon.reload(lambda: home.settings({}))
    await readiness(running).check_extensions()
    assert await is_unknown(running)


@needs_lancedb
async def test_a_command_without_a_daemon_opens_no_entries(serve):
    running = await serve(on())
    await asyncio.sleep(0)
    assert not any(map(running.entry_memories.was_used, running.daemon.agents.configs()))
    assert await is_unknown(running)
    await check_refused(
        running.entries.ListEntries(pb.ListEntriesRequest(agent_id="nobody"), timeout=TIMEOUT),
        "NOT_FOUND",
        "AGENT_NOT_FOUND",
    )
