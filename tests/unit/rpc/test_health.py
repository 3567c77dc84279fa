"""The health service and the checks behind it."""

import asyncio
import io
import json

import pytest
from grpc_health.v1 import health_pb2

from memoryd_server.background_tasks import TaskFailures
from memoryd_server.errors import ShuttingDown
from memoryd_server.observe.log import make_log
from memoryd_server.rpc.health import SERVICE, HealthReporter, HealthServicer
from waiting import eventually

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Index:
    """An agent with its index, as the checks see them."""

    is_idle = False

    def __init__(self, answer):
        self.answer = answer
        self.index = self

    async def keyword_error(self):
        return await self.answer()


class Agents:
    def __init__(self, *indexes):
        self._indexes = dict(enumerate(indexes))

    def opened(self):
        return self._indexes


async def fine():
    return ""


async def hang():
    await asyncio.Event().wait()


async def next_state(watch):
    return (await anext(watch)).status


def watch(servicer, service=SERVICE):
    return aiter(servicer.Watch(health_pb2.HealthCheckRequest(service=service), None))


async def state(readiness, service=SERVICE):
    return (await readiness.servicer.Check(health_pb2.HealthCheckRequest(service=service), None)).status


def readiness(*indexes, log=None):
    return HealthReporter(Agents(*indexes), log=log or make_log("error", "json", io.StringIO()), answer_seconds=0.05)


async def test_index_that_does_not_answer_makes_the_daemon_not_serving():
    checks = readiness(Index(fine), Index(hang))
    await checks.check()
    assert await state(checks) == NOT_SERVING


async def test_first_index_that_does_not_answer_decides():
    asked = []

    async def count():
        asked.append(None)
        await hang()

    checks = readiness(*(Index(count) for _ in range(100)))
    await checks.check()
    assert await state(checks) == NOT_SERVING
    assert len(asked) == 1


async def test_daemon_is_serving_again_when_its_index_answers_again():
    index = Index(hang)
    checks = readiness(index)
    await checks.check()
    index.answer = fine
    await checks.check()
    assert await state(checks) == SERVING


async def test_checks_go_on_after_an_exception_and_the_log_has_it():
    log, calls, failures = io.StringIO(), asyncio.Queue(), TaskFailures()
    index = Index(fine)
    checks = HealthReporter(Agents(index), log=make_log("error", "json", log), check_seconds=0.001, failures=failures)
    await checks.start()
    assert await state(checks) == SERVING

    async def fail():
        calls.put_nowait(None)
        raise RuntimeError("a fault")

    index.answer = fail
    async with asyncio.timeout(20):
        for _ in range(3):
            await calls.get()
        assert await state(checks) == NOT_SERVING
        assert "health check failed" in failures.current("")[0]
        index.answer = fine

        async def serves():
            return await state(checks) == SERVING

        await eventually(serves)
    await checks.stop()
    assert [json.loads(line)["event"] for line in log.getvalue().splitlines()] == ["fail-health-check"]
    assert failures.current("") == ()
    assert failures.counts()[0].count >= 3


async def test_watch_that_is_not_read_delays_neither_another_watch_nor_a_change():
    servicer = HealthServicer()
    servicer.set(SERVICE, SERVING)
    unread, reading = watch(servicer), watch(servicer)
    assert await next_state(unread) == SERVING
    assert await next_state(reading) == SERVING
    servicer.set(SERVICE, NOT_SERVING)
    assert await next_state(reading) == NOT_SERVING
    servicer.set(SERVICE, SERVING)
    assert await next_state(reading) == SERVING
    assert servicer._states[SERVICE] == SERVING


async def test_watch_yields_the_newest_state_once_however_many_changes_came():
    servicer = HealthServicer()
    states = watch(servicer)
    assert await next_state(states) == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    for found in (SERVING, NOT_SERVING, SERVING, NOT_SERVING):
        servicer.set(SERVICE, found)
    assert await next_state(states) == NOT_SERVING
    following = asyncio.ensure_future(anext(states))
    await asyncio.sleep(0)
    assert not following.done()
    servicer.set(SERVICE, SERVING)
    assert (await following).status == SERVING


async def test_watches_end_with_not_serving_when_the_daemon_stops():
    servicer = HealthServicer()
    servicer.set(SERVICE, SERVING)
    states = watch(servicer)
    assert await next_state(states) == SERVING
    servicer.stop()
    servicer.set(SERVICE, SERVING)
    assert await next_state(states) == NOT_SERVING
    with pytest.raises(ShuttingDown):
        await anext(states)
