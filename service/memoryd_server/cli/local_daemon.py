"""A daemon inside a command's own process, for when none runs."""

import asyncio
import threading
from contextlib import suppress

from memoryd_server.app import Daemon
from memoryd_server.observe import make_log
from memoryd_server.settings import ResolvedSettings


class LocalDaemon:
    """A daemon on an event loop of its own, in a thread."""

    def __init__(self, settings: ResolvedSettings, *, background: bool) -> None:
        self._settings = settings
        self._background = background
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daemon", daemon=True)
        self._daemon: Daemon | None = None

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise

    async def _start(self) -> None:
        self._daemon = Daemon(self._settings, make_log("error", "console"), background=self._background)
        await self._daemon.start()

    def stop(self) -> None:
        """Stops it and ends its thread."""
        if self._daemon is not None:
            asyncio.run_coroutine_threadsafe(self._daemon.stop(), self._loop).result()
        self._end_loop()

    def _end_loop(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
