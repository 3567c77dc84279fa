"""DaemonConnector: finds the running daemon or starts one, and opens a session with it."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from memoryd._channel import open_channel
from memoryd.client import MemorydClient, MemorydError
from memoryd.discovery import Endpoint, Environment, recorded_addresses
from memoryd_server.cli.connection import (
    check_workspace,
    expected_workspace,
    named_address,
    named_endpoint,
    needs_settings,
    recorded_endpoints,
)
from memoryd_server.cli.daemon_registry import candidate_state_dirs, own_state_dir, running_daemon
from memoryd_server.cli.daemon_starter import START_SECONDS, DaemonStarter, StartError
from memoryd_server.cli.mcp_stream import SessionStream, StreamEnded, open_stream
from memoryd_server.cli.options import CommonOptions
from memoryd_server.errors import MemorydError as MemorydServerError

# A daemon that a service manager restarts answers again within this time.
_RESTART_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.05
_MOST_PAUSE_SECONDS = 1.0
_FIRST_BACKOFF_SECONDS = 1.0
_MOST_BACKOFF_SECONDS = 10.0

_T = TypeVar("_T")


class ConnectionFailed(Exception):
    """No session can be opened; the message says why, and what to do."""


@dataclass(slots=True)
class Backoff:
    """The time after a failed connection in which the next attempt fails immediately with the same message.

    It doubles with each failure, so that a client that repeats its requests does not start process after process.
    """

    clock: Callable[[], float] = time.monotonic
    message: str = ""
    _until: float = field(default=0.0)
    _seconds: float = field(default=_FIRST_BACKOFF_SECONDS)

    def check(self) -> None:
        """Raise ConnectionFailed if the time after a failure has not passed."""
        if self.message and self.clock() < self._until:
            raise ConnectionFailed(self.message)

    def failed(self, message: str) -> ConnectionFailed:
        """Record a failure, and return the error to raise."""
        self.message = message
        self._until = self.clock() + self._seconds
        self._seconds = min(2 * self._seconds, _MOST_BACKOFF_SECONDS)
        return ConnectionFailed(message)

    def worked(self) -> None:
        """Record a success: the next attempt is not delayed."""
        self.message, self._seconds = "", _FIRST_BACKOFF_SECONDS


class DaemonConnector:
    """Opens sessions with the daemon that the options select, one at a time. Starts a daemon if `may_start`."""

    def __init__(self, common: CommonOptions, agent_id: str, *, may_start: bool) -> None:
        self._common = common
        self._agent_id = agent_id
        self._address = named_address(common)
        self._may_start = may_start and self._address is None
        self._state_dir = own_state_dir(Environment.of_process(), common.state_dir)
        self._starter = DaemonStarter(self._state_dir, _serve_arguments(common, self._state_dir))
        self._backoff = Backoff()
        self._checked = False
        # Not the loop's own threads, for whose end `asyncio.run` waits.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="connector")

    async def connect(self) -> SessionStream:
        """Open a session.

        Raises:
            ConnectionFailed: no daemon answers in time, it refuses the session, or it cannot be started.
        """
        self._backoff.check()
        try:
            stream = await self._connect()
        except (StreamEnded, StartError) as error:
            raise self._backoff.failed(str(error)) from error
        except MemorydServerError as error:
            raise self._backoff.failed(error.message) from error
        except MemorydError as error:
            raise self._backoff.failed(error.message or error.code.name) from error
        except OSError as error:
            raise self._backoff.failed(f"{error.filename or 'connection'}: {error.strerror}") from error
        self._backoff.worked()
        return stream

    async def _connect(self) -> SessionStream:
        deadline = time.monotonic() + (START_SECONDS if self._may_start else _RESTART_SECONDS)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await open_stream(await self._on_thread(self._find), self._agent_id)
            except StreamEnded as ended:
                if not ended.is_absent or time.monotonic() > deadline:
                    raise
            if self._may_start:
                await self._on_thread(partial(self._starter.start, self._is_running, deadline - time.monotonic()))
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _is_running(self) -> bool:
        return running_daemon(self._state_dir) is not None

    def _find(self) -> Endpoint:
        """Return the endpoint of the daemon. Blocks.

        Raises:
            StreamEnded: no daemon runs.
            MemorydServerError, MemorydError, OSError: the settings or a file are invalid, or the daemon serves another
                workspace than the options select.
        """
        if self._address is not None:
            return named_endpoint(self._common, self._address)
        for state_dir in self._state_dirs():
            endpoint = _recorded_endpoint(self._common, state_dir)
            if endpoint is not None:
                self._check_workspace(endpoint)
                return endpoint
        raise StreamEnded(
            f"no daemon runs with the state directory {self._state_dir}; start one with `memoryd serve`, omit "
            "--no-start, or give the --address of a daemon",
            is_absent=True,
        )

    def _state_dirs(self) -> list[Path]:
        if needs_settings(self._common):
            return [self._state_dir] if self._is_running() else []
        return candidate_state_dirs(Environment.of_process(), self._common.state_dir)

    def _check_workspace(self, endpoint: Endpoint) -> None:
        if self._checked:
            return
        # The option alone does not need the settings, whose modules take as much memory as the rest of the command.
        selected = self._common.workspace
        workspace = expected_workspace(self._common) if selected is None else selected.expanduser()
        if workspace is not None:
            try:
                with MemorydClient(open_channel(endpoint, retries=False), endpoint.token) as client:
                    check_workspace(client, workspace)
            except MemorydError as error:
                absent = error.code.name == "UNAVAILABLE"
                raise (
                    StreamEnded(f"no daemon answers at {endpoint.address}", is_absent=True) if absent else error
                ) from None
        self._checked = True


def _recorded_endpoint(common: CommonOptions, state_dir: Path) -> Endpoint | None:
    """Return an endpoint of a running daemon: a Unix socket if there is one, which needs no settings."""
    for address in recorded_addresses(state_dir):
        if address.startswith("unix:") and Path(address.removeprefix("unix:")).exists():
            return Endpoint(address)
    return next(recorded_endpoints(common, state_dir), None)


def _serve_arguments(common: CommonOptions, state_dir: Path) -> list[str]:
    """Return the arguments with which `memoryd serve` resolves the same settings as this command."""
    arguments = ["--exit-when-idle", "--state-dir", str(state_dir)]
    for option, path in (
        ("--config", common.config),
        ("--workspace", common.workspace),
        ("--token-file", common.token_file),
    ):
        if path is not None:
            arguments += [option, str(Path.cwd() / path.expanduser())]
    return arguments
