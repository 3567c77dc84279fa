"""Waiting for conditions that no event reports."""

import asyncio
import inspect
import time

WAIT_SECONDS = 60.0


def wait_until(condition, seconds=WAIT_SECONDS, *, pause=0.02):
    """Poll `condition()` until it returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"the condition was still false after {seconds} s"
        time.sleep(pause)
    return value


async def eventually(condition, *, seconds=30.0, pause=0.02):
    """Poll `condition`, a function or a coroutine function, until it returns a true value, and return that value."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            value = await value if inspect.isawaitable(value) else value
            if value:
                return value
            await asyncio.sleep(pause)
