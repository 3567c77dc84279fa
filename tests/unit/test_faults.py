"""Loops of background work: an unexpected exception is reported and ends no loop."""

import asyncio
import io
import json

import pytest

from memoryd_server.background_tasks import BackgroundTasks, ReportedErrors, TaskFailures, repeat
from memoryd_server.observe.log import FaultLog, make_log
from waiting import eventually


@pytest.fixture
async def handled():
    """The exceptions that reach the event loop's exception handler."""
    found, loop = [], asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context["exception"]))
    yield found
    loop.set_exception_handler(None)


async def steps_of(outcomes):
    """Repeat a step with these outcomes, exceptions or None, until all are used."""
    left, ended = list(outcomes), asyncio.Event()

    async def step():
        if not left:
            ended.set()
            await asyncio.Event().wait()
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome

    task = asyncio.create_task(repeat(step, ReportedErrors("a step")))
    async with asyncio.timeout(10):
        await ended.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_each_type_of_exception_is_reported_once_until_a_step_works(handled):
    outcomes = [ValueError("1"), ValueError("2"), KeyError("3"), ValueError("4"), None, ValueError("5")]
    await steps_of(outcomes)
    assert handled == [outcomes[0], outcomes[2], outcomes[5]]


async def test_loop_pauses_after_an_exception():
    times, twice, loop = [], asyncio.Event(), asyncio.get_running_loop()

    async def step():
        times.append(loop.time())
        if len(times) == 2:
            twice.set()
        raise ValueError

    task = asyncio.create_task(repeat(step, ReportedErrors("a step", lambda *_: None), fault_pause_seconds=0.05))
    async with asyncio.timeout(10):
        await twice.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert times[1] - times[0] >= 0.04


async def test_cancellation_ends_the_loop():
    task = asyncio.create_task(repeat(asyncio.Event().wait, ReportedErrors("a step")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_log_names_the_fault_without_the_arguments_of_the_callback():
    written, loop = io.StringIO(), asyncio.get_running_loop()
    faults = FaultLog(make_log("info", "json", written))
    before = loop.get_exception_handler()
    faults.start()

    def fail(_):
        raise ValueError("a fault")

    loop.call_soon(fail, "the text of a note")
    await asyncio.sleep(0.01)
    faults.stop()
    line = json.loads(written.getvalue())
    assert (line["event"], line["level"]) == ("fail-background-task", "error")
    assert "ValueError: a fault" in line["exception"]
    assert "the text of a note" not in written.getvalue()
    assert loop.get_exception_handler() == before


async def test_failing_loop_continues_and_is_counted_and_named_until_a_step_works(handled):
    failures = TaskFailures()
    tasks = BackgroundTasks(failures, "main")
    outcomes, worked, go_on = [ValueError("1"), KeyError("2"), ValueError("3")], asyncio.Event(), asyncio.Event()

    async def step():
        if outcomes:
            raise outcomes.pop(0)
        await go_on.wait()
        worked.set()

    tasks.repeat("a step", step)
    tasks.repeat("another", asyncio.Event().wait)
    await eventually(failures.counts)
    await eventually(lambda: not outcomes)
    assert [(each.task, each.agent_id, each.count) for each in failures.counts()] == [("a step", "main", 3)]
    assert failures.current("main") == ("a step failed (3 since the start): ValueError: 3",)
    assert failures.current("other") == ()
    go_on.set()
    async with asyncio.timeout(10):
        await worked.wait()
    await asyncio.sleep(0)
    assert failures.current("main") == ()
    assert failures.counts()[0].count == 3
    await tasks.stop()
    assert [str(error) for error in handled] == ["1", "'2'"]


async def test_one_time_work_that_fails_is_counted_unless_its_caller_expects_it(handled):
    failures = TaskFailures()
    tasks = BackgroundTasks(failures)

    async def fail(error):
        raise error

    with pytest.raises(KeyError):
        await tasks.spawn("expected", fail(KeyError("1")), expected=(KeyError,))
    with pytest.raises(ValueError, match="2"):
        await tasks.spawn("unexpected", fail(ValueError("2")))
    await asyncio.sleep(0)
    assert [each.task for each in failures.counts()] == ["unexpected"]
    assert [str(error) for error in handled] == ["2"]
    # The work of a stop is cancelled and is no failure.
    waiting = tasks.spawn("waiting", asyncio.Event().wait())
    await tasks.stop()
    assert waiting.cancelled()
    assert len(failures.counts()) == 1


async def test_message_of_a_failure_is_short_and_valid_text(handled):
    failures = TaskFailures()
    failures.failed("a step", "", ValueError("\ud800 line\nbreak " + "x" * 10_000))
    (message,) = failures.current("any")
    assert message.encode()
    assert len(message) < 400
    assert "\n" not in message
