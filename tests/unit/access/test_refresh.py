"""Reading the token files again: calls that wait share one reading, and no call relies on one that began before it."""

import asyncio
import threading

import pytest

from memoryd_server.access.admission import Credentials


class SlowKeyring:
    """A keyring whose readings of its files wait for the test."""

    problem = ""

    def __init__(self):
        self.readings = 0
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def refresh(self):
        self.readings += 1
        self.begun.release()
        assert self.go_on.acquire(timeout=20)


@pytest.fixture
async def keyring():
    return SlowKeyring()


@pytest.fixture
async def access(keyring):
    access = Credentials(keyring, None)
    yield access
    for _ in range(10):
        keyring.go_on.release()
    await access.stop()


async def begun(keyring):
    assert await asyncio.to_thread(keyring.begun.acquire, timeout=20)


async def test_a_call_during_a_reading_waits_for_a_reading_of_its_own(access, keyring):
    first = asyncio.create_task(access.refresh_tokens())
    await begun(keyring)
    second = asyncio.create_task(access.refresh_tokens())
    keyring.go_on.release()
    await first
    await begun(keyring)
    assert not second.done()
    keyring.go_on.release()
    await second
    assert keyring.readings == 2


async def test_a_thousand_calls_that_wait_share_one_reading(access, keyring):
    first = asyncio.create_task(access.refresh_tokens())
    await begun(keyring)
    waiting = [asyncio.create_task(access.refresh_tokens()) for _ in range(1_000)]
    await asyncio.sleep(0)
    for _ in range(2):
        keyring.go_on.release()
    await asyncio.gather(first, *waiting)
    assert keyring.readings == 2


async def test_a_caller_who_leaves_takes_the_reading_from_no_other(access, keyring):
    first = asyncio.create_task(access.refresh_tokens())
    await begun(keyring)
    leaving, staying = (asyncio.create_task(access.refresh_tokens()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    for _ in range(2):
        keyring.go_on.release()
    await asyncio.gather(first, staying)
    assert keyring.readings == 2


class FaultyKeyring:
    """A keyring whose first readings fail unexpectedly."""

    problem = ""

    def __init__(self, failures):
        self.failures = failures
        self.readings = 0
        self.works = threading.Event()

    def refresh(self):
        self.readings += 1
        if self.readings <= self.failures:
            raise RuntimeError("a fault")
        self.works.set()


async def test_checks_of_the_token_files_go_on_after_unexpected_exceptions_and_report_them_once():
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    keyring = FaultyKeyring(failures=3)
    access = Credentials(keyring, None, look_seconds=0.001)
    access.start()
    assert await asyncio.to_thread(keyring.works.wait, 10)
    await access.stop()
    assert reported == ["a fault"]
