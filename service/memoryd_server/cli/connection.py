"""The daemon to talk to, or one in-process.

A client for one command: of the daemon that runs, or of one that lives in this process as long as the command.

What a daemon notes of itself in its state directory, for the commands that look for it.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memoryd._channel import open_channel
from memoryd.client import MemorydClient, MemorydError, Tls, connect
from memoryd.discovery import Endpoint, noted_addresses
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
from memoryd_server.settings import ResolvedSettings
from memoryd_server.system import FileLock, try_lock

# How long a daemon may take to say that it is there.
_GREETING_SECONDS = 2.0

# Reasons that tell of a daemon which is there.
_REFUSALS = frozenset({"TOKEN_MISSING", "TOKEN_INVALID"})


@dataclass(frozen=True, slots=True)
class Connection:
    """A client, and whether the daemon behind it is another process."""

    client: MemorydClient
    remote: bool


@contextmanager
def session(common: CommonOptions, *, background: bool = False) -> Iterator[Connection]:
    """The daemon that was named; else the one that runs for this state directory; else one in this process.

    `background` lets the one in this process watch files and sync by itself.

    Raises:
        SettingsError: the settings cannot be used.
        memoryd.client.MemorydError: the daemon that was named does not answer.
    """
    named = common.daemon_address()
    if named is not None:
        with _connect(_named(common, named)) as client:
            yield Connection(client, remote=True)
        return
    settings = common.settings()
    found = _running(settings, common.tls)
    if found is not None:
        with found:
            yield Connection(found, remote=True)
        return
    with _in_process(settings, background=background) as client:
        yield Connection(client, remote=False)


def endpoints(common: CommonOptions) -> Iterator[Endpoint]:
    """Where the daemon may be, likeliest first: as it was named, else as it noted itself, else as the settings say.

    Raises:
        SettingsError: the settings, a token or what TLS needs cannot be used.
    """
    named = common.daemon_address()
    if named is not None:
        yield _named(common, named)
    else:
        yield from _candidates(common.settings(), common.tls)


def _named(common: CommonOptions, address: str) -> Endpoint:
    """The daemon at `address`, with the token that was named; on this machine, else with its owner's.

    Raises:
        SettingsError: a file cannot be used, or the token would travel in the clear beyond this machine.
    """
    file, here = common.named_token_file(), _is_here(address)
    asks = here and not address.startswith("unix:")
    token = _first_of(file) if file is not None else _owner_token(common) if asks else None
    tls = common.named_tls()
    if token is not None and not here and tls is None:
        raise SettingsError(f"refusing to send the token to {address} in the clear; speak TLS with --tls or --tls-ca")
    return _endpoint(address, token, tls)


def _is_here(address: str) -> bool:
    try:
        return parse_address(address).loopback
    except SettingsError:
        return False


def _first_of(file: Path) -> str:
    try:
        return read_tokens(file)[0]
    except (FileNotFoundError, IndexError) as error:
        raise SettingsError(f"there is no token in the token file {file}") from error


def _owner_token(common: CommonOptions) -> str | None:
    try:
        return _token_of(common.settings())
    except SettingsError:
        # The daemon is the one that was named, and need not be the one of settings that are out of order.
        return None


def _token_of(settings: ResolvedSettings) -> str | None:
    return first_token(TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file).plain)


def _endpoint(address: str, token: str | None, tls: Tls | None) -> Endpoint:
    return Endpoint(address) if address.startswith("unix:") else Endpoint(address, token, tls)


def _connect(endpoint: Endpoint) -> MemorydClient:
    """A client that does not wait for a daemon that is away: there may be another one, or none is needed.

    Raises:
        SettingsError: a file of its TLS cannot be read.
    """
    try:
        return MemorydClient(open_channel(endpoint, retries=False), endpoint.token)
    except OSError as error:
        raise SettingsError(f"cannot read {error.filename}: {error.strerror}") from error


def _candidates(settings: ResolvedSettings, asked: Tls | None) -> Iterator[Endpoint]:
    for address in dict.fromkeys([*noted_addresses(settings.state_dir), *settings.service.listen]):
        if address.startswith("unix:"):
            if Path(address.removeprefix("unix:")).exists():
                yield Endpoint(address)
        else:
            yield Endpoint(address, _token_of(settings), _own_tls(settings, asked))


def _running(settings: ResolvedSettings, asked: Tls | None) -> MemorydClient | None:
    """A client of the daemon that runs with these settings, if one answers.

    Raises:
        SettingsError: the token or what TLS needs cannot be read.
        memoryd.client.MemorydError: it answers, and refuses the token.
    """
    for endpoint in _candidates(settings, asked):
        client = _connect(endpoint)
        try:
            client.list_agents(page_size=1, timeout=_GREETING_SECONDS)
        except MemorydError as error:
            client.close()
            if error.reason in _REFUSALS:
                raise
        else:
            return client
    return None


def _own_tls(settings: ResolvedSettings, asked: Tls | None) -> Tls | None:
    """TLS with a daemon of these settings: its certificate is known, and so trusted whatever address is dialled."""
    own = settings.service.tls
    files = CertificateFiles.from_settings(own.cert_file, own.key_file, own.client_ca_file)
    if files is None or (asked is not None and asked.ca_file is not None):
        return asked
    try:
        name = next(iter(certificate_validity(files).names), "")
    except (MemorydServerError, OSError):
        # The key may be out of our reach, and the daemon's all the same.
        name = ""
    client = asked or Tls()
    return Tls(files.certificate, client.cert_file, client.key_file, name)


@contextmanager
def _in_process(settings: ResolvedSettings, *, background: bool) -> Iterator[MemorydClient]:
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        address = f"unix:{directory}/s"
        # Figures are the daemon's: a command that serves them for a moment would need the daemon's address to be free.
        metrics = settings.service.metrics.model_copy(update={"listen": None})
        service = settings.service.model_copy(update={"listen": (address,), "metrics": metrics})
        # Imported here: a command that finds a daemon needs none of its modules, and starts in half the time.
        from memoryd_server.cli.local_daemon import LocalDaemon  # noqa: PLC0415

        local = LocalDaemon(replace(settings, service=service), background=background)
        local.start()
        try:
            with connect(address) as client:
                yield client
        finally:
            local.stop()


_LOCK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LastReload:
    """How the settings in force came about: `loads` counts every time that settings were read, the start included."""

    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that runs: its process, and how its last reload went."""

    pid: int
    reload: LastReload


def _file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.json"


@contextmanager
def marked_alive(state_dir: Path) -> Iterator[None]:
    """Marks the notes of this process as those of one that lives. The mark goes with the process, however it ends.

    A state directory that takes no file gets none: `memoryd reload` then finds no daemon.
    """
    mark = FileLock(_mark(state_dir))
    with suppress(OSError):
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # `running` in another process holds the mark for a moment; a second daemon, until it is refused its index.
        mark.wait(_LOCK_SECONDS)
    try:
        yield
    finally:
        mark.release()


def _mark(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.lock"


def _is_marked(state_dir: Path) -> bool:
    """Return whether a process holds the mark, or the file system has no locks to tell by.

    Raises:
        OSError: there is no mark.
    """
    with _mark(state_dir).open("rb") as mark, suppress(OSError):
        return not try_lock(mark.fileno())
    return True


def note_endpoint(state_dir: Path, addresses: Sequence[str], reload: LastReload) -> None:
    """Notes the addresses of a daemon that has started, and how its settings were read.

    Raises:
        OSError: the state directory takes no file.
    """
    noted = {"addresses": list(addresses), "pid": os.getpid(), "reload": asdict(reload)}
    temporary = _file(state_dir).with_suffix(".tmp")
    temporary.write_text(json.dumps(noted) + "\n", "utf-8")
    temporary.chmod(0o600)
    temporary.replace(_file(state_dir))


def forget_endpoint(state_dir: Path) -> None:
    """Removes the note of a daemon that has stopped, where it can be removed."""
    with suppress(OSError):
        _file(state_dir).unlink(missing_ok=True)


def running(state_dir: Path) -> RunningDaemon | None:
    """The daemon that runs on this state directory; None when none does. A note that outlived its daemon is none."""
    try:
        if not _is_marked(state_dir):
            return None
        noted = _noted(state_dir)
        reload = noted["reload"]
        lists = {name: tuple(map(str, reload[name])) for name in ("changed", "awaiting_restart")}
        return RunningDaemon(int(noted["pid"]), LastReload(int(reload["loads"]), str(reload["error"]), **lists))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _noted(state_dir: Path) -> Mapping[str, Any]:
    noted: Mapping[str, Any] = json.loads(_file(state_dir).read_text("utf-8"))
    return noted
