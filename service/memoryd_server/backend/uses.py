"""Counts those who use something, so that it is not taken from under them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Uses:
    """On the event loop's thread alone."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts as a use while the block lasts."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def end(self, seconds: float) -> bool:
        """Waits for the last use to end, at most so long; whether there is none."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return False
        return True
