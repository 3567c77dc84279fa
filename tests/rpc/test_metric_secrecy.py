"""Whatever callers write into a request, nothing of it is among the figures, and the labels stay few."""

import contextlib
import random
import socket
import time

import grpc
import httpx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from prometheus_client.parser import text_string_to_metric_families

from memoryd.v1 import entry_service_pb2, memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.model import DegradationKind
from memoryd_server.observe import metrics
from rpc.wire import TIMEOUT
from waiting import eventually

METRICS = {"memoryd": {"metrics": {"listen": "127.0.0.1:0"}}}
MARK = "zq"
SERVICES = (
    pb.DESCRIPTOR.services_by_name["MemoryService"],
    entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"],
)
METHODS = [method for service in SERVICES for method in service.methods]


async def fetched(running):
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(running.daemon.metrics_url)).text


def filled(descriptor, random_, *, agent, depth=0):
    """A message whose every text field holds a word of its own that nobody else would write."""
    message = descriptor._concrete_class()
    for field in descriptor.fields:
        word = MARK + "".join(random_.choices("bcdfghjkmpqvwx", k=12))
        if field.name == "agent_id" and agent:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            _put(message, field, word)
        elif (
            field.type == FieldDescriptor.TYPE_MESSAGE and depth < 2 and field.message_type.file.package == "memoryd.v1"
        ):
            inner = filled(field.message_type, random_, agent=agent, depth=depth + 1)
            target = getattr(message, field.name)
            target.add().CopyFrom(inner) if field.is_repeated else target.CopyFrom(inner)
    return message


def _put(message, field, word):
    if field.is_repeated:
        getattr(message, field.name).append(word)
    else:
        setattr(message, field.name, word)


async def call(running, method, request):
    stub = running.stub if method.containing_service.name == "MemoryService" else running.entries
    found = getattr(stub, method.name)(request, timeout=TIMEOUT)
    with contextlib.suppress(grpc.aio.AioRpcError):
        if hasattr(found, "__aiter__"):
            with contextlib.suppress(StopAsyncIteration):
                await anext(aiter(found))
            found.cancel()
        else:
            await found


@pytest.mark.parametrize("seed", range(3))
async def test_no_text_of_any_field_of_any_call_shows(serve, home, seed):
    random_ = random.Random(seed)
    home.put(f"memory/{MARK}boat.md", f"# {MARK}title\n\n{MARK}text of the red ferry")
    running = await serve(METRICS)
    await running.synced()
    for method in METHODS:
        for agent in (True, False):
            await call(running, method, filled(method.input_type, random_, agent=agent))
    await running.search(f"{MARK}title")
    await running.search(f"{MARK}nothing")
    text = await fetched(running)
    assert "memoryd_rpc_calls_total" in text
    assert MARK not in text
    for method in METHODS:
        assert f'method="{method.containing_service.full_name}/{method.name}"' in text


async def test_unknown_methods_make_no_labels(serve):
    running = await serve(METRICS)
    for number in range(5):
        made_up = running.channel.unary_unary(f"/memoryd.v1.MemoryService/{MARK}{number}")
        with pytest.raises(grpc.aio.AioRpcError):
            await made_up(b"", timeout=TIMEOUT)
    assert MARK not in await fetched(running)


async def test_each_label_has_values_of_a_known_few(serve, home):
    home.write(a="the red ferry")
    running = await serve(METRICS)
    await running.synced()
    await running.search("ferry")
    await running.search("zyzzyva")
    modes = {"KEYWORD", "VECTOR", "HYBRID"}
    empty = {name.removeprefix("EMPTY_REASON_") for name in memory_pb2.EmptyReason.keys()}  # noqa: SIM118 -- an enum's
    allowed = {
        "agent": {"main"},
        "served_mode": modes,
        "leg": {"KEYWORD", "VECTOR"},
        "reason": empty,
        "kind": {kind.name for kind in DegradationKind},
        "trigger": {trigger.name.lower() for trigger in SyncTrigger},
        "result": {"completed"},
        "outcome": {"indexed", "removed", "failed"},
        "code": {code.name for code in grpc.StatusCode},
        "method": {f"{method.containing_service.full_name}/{method.name}" for method in METHODS},
    }
    # Only with a database.
    allowed |= {"operation": home.store.operations, "state": {"idle", "in_use"}}
    allowed["event"] = {"lease", "takeover", "notification", "listen"}
    seen = set()
    for family in text_string_to_metric_families(await fetched(running)):
        for sample in family.samples:
            for label, value in sample.labels.items():
                seen.add(label)
                if label in allowed:
                    assert value in allowed[label], (sample.name, label, value)
    assert seen - allowed.keys() <= {"le", "version"}


async def test_empty_searches_and_the_lag_of_the_index_are_counted(serve, home):
    home.write(a="the red ferry")
    running = await serve(METRICS)
    await eventually(lambda: running.memory().index.monitor.lag_seconds > 0)
    assert 'memoryd_index_lag_seconds{agent="main"} 0.0' not in (await fetched(running)).splitlines()
    await running.synced()
    await running.search("ferry")
    await running.search("zyzzyva")
    text = await fetched(running)
    assert 'memoryd_index_lag_seconds{agent="main"} 0.0' in text.splitlines()
    assert 'memoryd_searches_empty_total{agent="main",reason="NO_MATCH"} 1.0' in text
    assert 'memoryd_search_leg_duration_seconds_count{leg="KEYWORD"} 2.0' in text
    assert 'memoryd_search_leg_duration_seconds_count{leg="VECTOR"}' not in text
    assert 'memoryd_sync_files_total{agent="main",outcome="indexed"} 1.0' in text
    assert 'memoryd_sync_last_completed_timestamp_seconds{agent="main"}' in text
    assert "memoryd_rpc_calls_running 0.0" in text
    assert "memoryd_agents_open 1.0" in text
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[:1] != "#"}
    index = 'memoryd_index_{}_bytes{{agent="main"}}'
    whole = values['memoryd_index_bytes{agent="main"}']
    assert whole == values[index.format("database")] + values[index.format("wal")] > 0


async def test_a_fetch_wakes_no_idle_agent(serve, home):
    home.write(a="the red ferry")
    running = await serve(METRICS)
    await running.synced()
    await fetched(running)
    memory = running.memory()
    await running.release_memory()
    text = await fetched(running)
    assert memory.index.is_idle
    assert "memoryd_agents_resting 1.0" in text
    assert 'memoryd_index_files{agent="main"} 1.0' in text


@pytest.mark.slow
async def test_callers_who_say_nothing_take_no_more_than_a_few_threads_and_are_left(serve, monkeypatch):
    monkeypatch.setattr(metrics._Handler, "timeout", 0.3)
    running = await serve(METRICS)
    host, _, port = running.daemon.metrics_url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=5) for _ in range(metrics.MAX_CONNECTIONS * 4)]
    try:
        turned_away = sum(_is_closed(one) for one in silent[metrics.MAX_CONNECTIONS :])
        assert turned_away > 0
        await eventually(lambda: _answers(host, int(port)))
    finally:
        for one in silent:
            one.close()


def _is_closed(one):
    one.settimeout(0.1)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def _answers(host, port):
    time.sleep(0.05)
    try:
        return httpx.get(f"http://{host}:{port}/metrics", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
