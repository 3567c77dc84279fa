"""A daemon inside the process of a command, for commands that find no running daemon."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from memoryd_server.app import Daemon
from memoryd_server.errors import MemorydError
from memoryd_server.observe import make_log
from memoryd_server.settings import ResolvedSettings


class LocalDaemon:
    """A daemon on its own event loop in its own thread."""

    def __init__(self, settings: ResolvedSettings, *, background: bool) -> None:
        self._settings = settings
        self._background = background
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daemon", daemon=True)
        self._daemon: Daemon | None = None

    def start(self) -> None:
        """Start the daemon and wait until it listens."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise

    async def _start(self) -> None:
        self._daemon = Daemon(self._settings, make_log("error", "console"), background=self._background)
        await self._daemon.start()

    def download_models(self, agent_id: str, on_progress: Callable[[str, int, int], None]) -> None:
        """Download the models that an agent's vectors need and that are missing. Blocks.

        `on_progress` is called with the model, the bytes downloaded and the bytes in total. A model that cannot be
        downloaded, or an agent that is not available, is reported by the next sync.
        """
        if self._daemon is None:
            return
        with suppress(MemorydError):
            missing = self._daemon.missing_models(agent_id)
            for file in asyncio.run_coroutine_threadsafe(missing, self._loop).result():
                file.download(partial(on_progress, file.name))

    def stop(self) -> None:
        """Stop the daemon and end its thread."""
        if self._daemon is not None:
            asyncio.run_coroutine_threadsafe(self._daemon.stop(), self._loop).result()
        self._end_loop()

    def _end_loop(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def local_daemon(settings: ResolvedSettings, *, background: bool) -> Iterator[tuple[LocalDaemon, str]]:
    """Run a daemon with these settings until the block ends; yield it and its address, a Unix socket of its own."""
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        address = f"unix:{directory}/s"
        # The addresses of metrics and HTTP belong to a real daemon, and may be in use by it.
        metrics = settings.service.metrics.model_copy(update={"listen": None})
        http = settings.service.http.model_copy(update={"listen": None})
        service = settings.service.model_copy(update={"listen": (address,), "metrics": metrics, "http": http})
        daemon = LocalDaemon(replace(settings, service=service), background=background)
        daemon.start()
        try:
            yield daemon, address
        finally:
            daemon.stop()
