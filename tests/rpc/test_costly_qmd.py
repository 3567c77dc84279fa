"""Output of qmd that is made to be costly is read in the time that its size explains."""

import time

import pytest

from rpc.qmd_calls import ask, qmd_settings, ready

pytestmark = [pytest.mark.attacks, pytest.mark.usefixtures("qmd_home")]

# Reading 64 KiB takes milliseconds; a pattern that begins again at each place takes seconds.
MOST_SECONDS = 0.8
# Plain output for the same call, and the costly one.
SEARCHES = {
    "costly-words": "not-json",
    "costly-collections": "fail",
    "costly-digits": "fail",
    "costly-snippet": "log-before",
}


async def cost(call):
    """Processor time of this process, which the daemon shares; that of the command is not in it."""
    began = time.process_time()
    await call
    return time.process_time() - began


async def cost_of_search(serve, fake, fault):
    # A daemon leaves a command alone that has failed.
    running = await serve(qmd_settings(fake.path, limits={"timeoutMs": 15_000}))
    await ready(running)
    fake.faults(search=fault)
    spent = await cost(ask(running, "crane"))
    fake.faults()
    await running.stop()
    return spent


@pytest.mark.slow
@pytest.mark.parametrize("fault", SEARCHES)
async def test_costly_answer_of_qmd_is_read_in_linear_time(serve, fake, fault):
    plain = await cost_of_search(serve, fake, SEARCHES[fault])
    assert await cost_of_search(serve, fake, fault) < plain + MOST_SECONDS


async def test_costly_status_of_qmd_is_read_in_linear_time(serve, fake):
    running = await serve(qmd_settings(fake.path, searchMode="vsearch", limits={"timeoutMs": 15_000}))
    plain = await cost(ready(running))
    fake.faults(status="costly-lines")
    assert await cost(ready(running)) < plain + MOST_SECONDS


async def test_more_rows_than_asked_for_are_not_read(serve, fake):
    running = await serve(qmd_settings(fake.path, limits={"timeoutMs": 15_000}))
    await ready(running)
    plain = await cost(ask(running, "crane"))
    fake.faults(search="many-rows")
    assert await cost(ask(running, "crane")) < plain + MOST_SECONDS
