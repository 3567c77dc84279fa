"""A client for one command: of the daemon that runs, or of one that lives in this process as long as the command."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from memoryd.client import MemorydClient, MemorydError, connect
from memoryd_server.app import Daemon, read_tokens
from memoryd_server.cli.endpoint import endpoint_of
from memoryd_server.cli.options import Common
from memoryd_server.observe.log import make_log
from memoryd_server.settings import ResolvedSettings

# How long a daemon may take to say that it is there.
_GREETING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Session:
    """A client, and whether the daemon behind it is another process."""

    client: MemorydClient
    remote: bool


@contextmanager
def session(common: Common, *, background: bool = False) -> Iterator[Session]:
    """The daemon that was named; else the one that runs for this state directory; else one in this process.

    `background` lets the one in this process watch files and sync by itself.

    Raises:
        SettingsError: the settings cannot be used.
        memoryd.client.MemorydError: the daemon that was named does not answer.
    """
    named = common.daemon_address()
    if named is not None:
        with connect(named, _token(common.token_file)) as client:
            yield Session(client, remote=True)
        return
    settings = common.settings()
    found = _running(settings)
    if found is not None:
        with found:
            yield Session(found, remote=True)
        return
    with _in_process(settings, background=background) as client:
        yield Session(client, remote=False)


def _token(file: Path | None) -> str | None:
    return next(iter(read_tokens(file)), None)


def _running(settings: ResolvedSettings) -> MemorydClient | None:
    """A client of the daemon that runs with these settings, if one answers."""
    candidates = dict.fromkeys([*endpoint_of(settings.state_dir), *settings.service.listen])
    for address in candidates:
        if address.startswith("unix:") and not Path(address.removeprefix("unix:")).exists():
            continue
        client = connect(address, _token(settings.service.token_file))
        try:
            client.list_agents(page_size=1, timeout=_GREETING_SECONDS)
        except MemorydError:
            client.close()
        else:
            return client
    return None


@contextmanager
def _in_process(settings: ResolvedSettings, *, background: bool) -> Iterator[MemorydClient]:
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        address = f"unix:{directory}/s"
        service = settings.service.model_copy(update={"listen": (address,)})
        local = _Local(replace(settings, service=service), background=background)
        local.start()
        try:
            with connect(address) as client:
                yield client
        finally:
            local.stop()


class _Local:
    """A daemon on an event loop of its own, in a thread."""

    def __init__(self, settings: ResolvedSettings, *, background: bool) -> None:
        self._settings = settings
        self._background = background
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daemon", daemon=True)
        self._daemon: Daemon | None = None

    def start(self) -> None:
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
        if self._daemon is not None:
            asyncio.run_coroutine_threadsafe(self._daemon.stop(), self._loop).result()
        self._end_loop()

    def _end_loop(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
