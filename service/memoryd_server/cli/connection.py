"""Connections to a daemon, and the file by which the commands find it.

A command calls the daemon that `--address` or `MEMORYD_ADDRESS` names, else the daemon that runs with the state
directory, else a daemon in its own process that ends with the command.

A daemon writes its addresses, its process id and the result of its last reload to `memoryd.endpoint.json` in its state
directory. It also holds a lock file there; the endpoint file is valid only while that lock is held.
"""

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memoryd._channel import open_channel
from memoryd.client import MemorydClient, MemorydError, Tls, connect
from memoryd.discovery import Endpoint, Environment, recorded_addresses, tls_from
from memoryd_server.access import (
    CertificateFiles,
    TokenFiles,
    certificate_validity,
    first_token,
    parse_address,
    read_tokens,
)
from memoryd_server.cli.options import CommonOptions
from memoryd_server.errors import MemorydError as MemorydServerError
from memoryd_server.errors import SettingsError
from memoryd_server.settings import ResolvedSettings, client_address, client_token_file, process_environment
from memoryd_server.system import FileLock, try_lock

if TYPE_CHECKING:
    from memoryd_server.app import Daemon

# Time in which a running daemon answers its first call.
_FIRST_CALL_SECONDS = 2.0

# A daemon that returns one of these reasons is running.
_REFUSALS = frozenset({"TOKEN_MISSING", "TOKEN_INVALID"})


@dataclass(frozen=True, slots=True)
class Connection:
    """A client, and its daemon if that runs in this process."""

    client: MemorydClient
    local: "LocalDaemon | None" = None

    @property
    def remote(self) -> bool:
        """Whether the daemon runs in another process."""
        return self.local is None


@contextmanager
def open_connection(common: CommonOptions, *, background: bool = False) -> Iterator[Connection]:
    """Yield a connection to the named daemon, else to the one of the state directory, else to one in this process.

    With `background`, a daemon in this process watches files and syncs without being called.

    Raises:
        SettingsError: the settings are invalid.
        memoryd.client.MemorydError: the named daemon does not answer.
    """
    address = _named_address(common)
    if address is not None:
        with _connect(_named_endpoint(common, address)) as client:
            yield Connection(client)
        return
    running_client = _connect_running(common.settings(read_secrets=False), common.tls)
    if running_client is not None:
        with running_client:
            yield Connection(running_client)
        return
    with _in_process(common.settings(), background=background) as connection:
        yield connection


def endpoints(common: CommonOptions) -> Iterator[Endpoint]:
    """Yield the possible endpoints of the daemon, in the order in which to try them.

    This is the named endpoint alone, or else the addresses in the endpoint file and then those in the settings.

    Raises:
        SettingsError: the settings, a token file or a TLS file are invalid.
    """
    address = _named_address(common)
    if address is not None:
        yield _named_endpoint(common, address)
    else:
        yield from _candidates(common.settings(read_secrets=False), common.tls)


def client_tls(common: CommonOptions) -> Tls | None:
    """Return the TLS options for a named daemon, from the command line or else from the environment.

    Raises:
        SettingsError: the environment variables for TLS are invalid.
    """
    try:
        return common.tls or tls_from(Environment(process_environment(), Path.home()))
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _named_address(common: CommonOptions) -> str | None:
    return common.address or client_address(process_environment())


def _named_endpoint(common: CommonOptions, address: str) -> Endpoint:
    """Return the endpoint of the daemon at `address`.

    The token is the first one of the named token file, or for an address on this machine, of the state directory.

    Raises:
        SettingsError: a file cannot be used, or the token would be sent to another machine without TLS.
    """
    file = common.token_file or client_token_file(process_environment(), Path.home())
    local, token = _is_local(address), None
    if file is not None:
        token = _first_token_of(file)
    elif local and not address.startswith("unix:"):
        token = _token_of_state_dir(common)
    tls = client_tls(common)
    if token is not None and not local and tls is None:
        raise SettingsError(f"refusing to send the token to {address} in the clear; use --tls or --tls-ca")
    return Endpoint(address) if address.startswith("unix:") else Endpoint(address, token, tls)


def _is_local(address: str) -> bool:
    try:
        return parse_address(address).loopback
    except SettingsError:
        return False


def _first_token_of(file: Path) -> str:
    try:
        return read_tokens(file)[0]
    except FileNotFoundError as error:
        raise SettingsError(f"the token file {file} does not exist") from error
    except IndexError as error:
        raise SettingsError(f"the token file {file} contains no token") from error


def _token_of_state_dir(common: CommonOptions) -> str | None:
    try:
        return _token_of(common.settings(read_secrets=False))
    except SettingsError:
        # The named daemon may use other settings than these, which are invalid.
        return None


def _token_of(settings: ResolvedSettings) -> str | None:
    return first_token(TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file).plain)


def _connect(endpoint: Endpoint) -> MemorydClient:
    """Return a client that does not retry: another endpoint, or a daemon in this process, can take over.

    Raises:
        SettingsError: a TLS file of the endpoint cannot be read.
    """
    try:
        return MemorydClient(open_channel(endpoint, retries=False), endpoint.token)
    except OSError as error:
        raise SettingsError(f"cannot read {error.filename}: {error.strerror}") from error


def _candidates(settings: ResolvedSettings, tls: Tls | None) -> Iterator[Endpoint]:
    for address in dict.fromkeys([*recorded_addresses(settings.state_dir), *settings.service.listen]):
        if address.startswith("unix:"):
            if Path(address.removeprefix("unix:")).exists():
                yield Endpoint(address)
        else:
            yield Endpoint(address, _token_of(settings), _own_tls(settings, tls))


def _connect_running(settings: ResolvedSettings, tls: Tls | None) -> MemorydClient | None:
    """Return a client of the daemon that runs with these settings; None if no daemon answers.

    Raises:
        SettingsError: a token file or TLS file cannot be read.
        memoryd.client.MemorydError: a daemon answers, and refuses the token.
    """
    for endpoint in _candidates(settings, tls):
        client = _connect(endpoint)
        try:
            client.list_agents(page_size=1, timeout=_FIRST_CALL_SECONDS)
        except MemorydError as error:
            client.close()
            if error.reason in _REFUSALS:
                raise
        else:
            return client
    return None


def _own_tls(settings: ResolvedSettings, tls: Tls | None) -> Tls | None:
    """Return TLS options for a daemon of these settings: its own certificate is trusted, at every address."""
    own = settings.service.tls
    files = CertificateFiles.from_settings(own.cert_file, own.key_file, own.client_ca_file)
    if files is None or (tls is not None and tls.ca_file is not None):
        return tls
    try:
        name = next(iter(certificate_validity(files).names), "")
    except (MemorydServerError, OSError):
        # This user may not be allowed to read the key; the daemon's user is.
        name = ""
    client = tls or Tls()
    return Tls(files.certificate, client.cert_file, client.key_file, name)


@contextmanager
def _in_process(settings: ResolvedSettings, *, background: bool) -> Iterator[Connection]:
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        address = f"unix:{directory}/s"
        # The metrics address belongs to a real daemon, and may be in use by it.
        metrics = settings.service.metrics.model_copy(update={"listen": None})
        service = settings.service.model_copy(update={"listen": (address,), "metrics": metrics})
        local = LocalDaemon(replace(settings, service=service), background=background)
        local.start()
        try:
            with connect(address) as client:
                yield Connection(client, local)
        finally:
            local.stop()


class LocalDaemon:
    """A daemon inside this process, on its own event loop in its own thread."""

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
        # A command that finds a running daemon needs no module of the daemon, and starts in half the time.
        from memoryd_server.app import Daemon  # noqa: PLC0415
        from memoryd_server.observe import make_log  # noqa: PLC0415

        self._daemon = Daemon(self._settings, make_log("error", "console"), background=self._background)
        await self._daemon.start()

    def download_models(self, agent_id: str, on_progress: Callable[[str, int, int], None]) -> None:
        """Download the models that an agent's vectors need and that are missing. Blocks.

        `on_progress` is called with the model, the bytes downloaded and the bytes in total. A model that cannot be
        downloaded, or an agent that is not available, is reported by the next sync.
        """
        if self._daemon is None:
            return
        with suppress(MemorydServerError):
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


_LOCK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LastReload:
    """The result of the last reload; `loads` counts every time the settings were read, including at the start."""

    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """The process id of a running daemon, and the result of its last reload."""

    pid: int
    reload: LastReload


def _endpoint_file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.json"


def _lock_file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.lock"


@contextmanager
def endpoint_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock that makes the endpoint file of this process valid. It ends with the process in any case.

    If the state directory is not writable there is no lock, and `memoryd reload` does not find the daemon.
    """
    lock = FileLock(_lock_file(state_dir))
    with suppress(OSError):
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # `running` in another process holds the lock for a moment. A second daemon holds it until it is refused the
        # indexes.
        lock.wait(_LOCK_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _is_locked(state_dir: Path) -> bool:
    """Return whether a process holds the lock, or the file system does not support locks.

    Raises:
        OSError: the lock file does not exist.
    """
    with _lock_file(state_dir).open("rb") as file, suppress(OSError):
        return not try_lock(file.fileno())
    return True


def write_endpoint_file(state_dir: Path, addresses: Sequence[str], reload: LastReload) -> None:
    """Write the addresses of this daemon and the result of its last reload.

    Raises:
        OSError: the state directory is not writable, or the disk is full.
    """
    content = {"addresses": list(addresses), "pid": os.getpid(), "reload": asdict(reload)}
    file = _endpoint_file(state_dir)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(content) + "\n", "utf-8")
    temporary.chmod(0o600)
    temporary.replace(file)


def remove_endpoint_file(state_dir: Path) -> None:
    """Remove the endpoint file of a daemon that has stopped, if the state directory is writable."""
    with suppress(OSError):
        _endpoint_file(state_dir).unlink(missing_ok=True)


def running_daemon(state_dir: Path) -> RunningDaemon | None:
    """Return the daemon that runs with this state directory, or None. A file left by a killed daemon is ignored."""
    try:
        if not _is_locked(state_dir):
            return None
        content: Mapping[str, Any] = json.loads(_endpoint_file(state_dir).read_text("utf-8"))
        reload = content["reload"]
        lists = {name: tuple(map(str, reload[name])) for name in ("changed", "awaiting_restart")}
        return RunningDaemon(int(content["pid"]), LastReload(int(reload["loads"]), str(reload["error"]), **lists))
    except (OSError, ValueError, KeyError, TypeError):
        return None
