"""Connections to a daemon, for the commands that call one.

A command calls the first of these daemons:

1. the one that `--address` or `MEMORYD_ADDRESS` names; of a list of replicas, the first that can be connected to;
2. the one that runs with the state directory;
3. the one of this user that started last, if no flag or variable selects a memory and the state directory has none;
4. one in its own process that ends with the command.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd._channel import open_channel
from memoryd.client import MemorydClient, MemorydError, Tls, connect
from memoryd.discovery import Endpoint, Environment, recorded_addresses, split_addresses, tls_from
from memoryd_server.cli.daemon_registry import (
    candidate_state_dirs,
    registry_folder,
    running_state_dirs,
    selects_memory,
    selects_workspace,
)
from memoryd_server.cli.options import CommonOptions, complain
from memoryd_server.errors import MemorydError as MemorydServerError
from memoryd_server.errors import SettingsError

if TYPE_CHECKING:
    from memoryd_server.cli.local_daemon import LocalDaemon
    from memoryd_server.settings import ResolvedSettings

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
    """Yield a connection to the named daemon, else to a running one, else to one in this process.

    With `background`, a daemon in this process watches files and syncs without being called.

    Raises:
        SettingsError: the settings are invalid.
        memoryd.client.MemorydError: the named daemon does not answer.
    """
    address = named_address(common)
    client = _find_client(common) if address is None else _connect(named_endpoint(common, address))
    if client is not None:
        with client:
            yield Connection(client)
        return
    # A command that finds a running daemon needs no module of the daemon, and starts in a third of the time.
    from memoryd_server.cli.local_daemon import local_daemon  # noqa: PLC0415

    with (
        local_daemon(common.settings(), background=background) as (daemon, local_address),
        connect(local_address) as local_client,
    ):
        yield Connection(local_client, daemon)


def endpoints(common: CommonOptions) -> Iterator[Endpoint]:
    """Yield the possible endpoints of the daemon, in the order in which to try them.

    This is the named endpoint alone, or else the addresses of running daemons and then those in the settings.

    Raises:
        SettingsError: the settings, a token file or a TLS file are invalid.
    """
    address = named_address(common)
    if address is not None:
        yield named_endpoint(common, address)
        return
    for _, found in _running_endpoints(common):
        yield from found
    yield from _settings_endpoints(common)


def client_tls(common: CommonOptions) -> Tls | None:
    """Return the TLS options for a named daemon, from the command line or else from the environment.

    Raises:
        SettingsError: the environment variables for TLS are invalid.
    """
    try:
        return common.tls or tls_from(Environment.of_process())
    except ValueError as error:
        raise SettingsError(str(error)) from error


def named_address(common: CommonOptions) -> str | None:
    """Return the address of the daemon to call, from the command line or else from the environment."""
    return common.address or Environment.of_process().text("MEMORYD_ADDRESS")


def named_endpoint(common: CommonOptions, address: str) -> Endpoint:
    """Return the endpoint of the daemon at `address`, which can be a list of the replicas of one fleet.

    The token is the first one of the named token file, or for addresses on this machine, of the state directory.

    Raises:
        SettingsError: the list is invalid, a file cannot be used, or the token would be sent to another machine without
            TLS.
    """
    if address.startswith("unix:"):
        return Endpoint(address)
    try:
        addresses = split_addresses(address) if "," in address else (address,)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    file = common.token_file or Environment.of_process().path("MEMORYD_TOKEN_FILE")
    remote = ", ".join(each for each in addresses if not _is_loopback(each))
    token = None
    if file is not None:
        token = _first_token_of(file)
    elif not remote:
        token = _token_of_state_dir(common)
    tls = client_tls(common)
    if token is not None and remote and tls is None:
        raise SettingsError(f"refusing to send the token to {remote} in the clear; use --tls or --tls-ca")
    return Endpoint(",".join(addresses), token, tls)


def _is_loopback(address: str) -> bool:
    from memoryd_server.access import parse_address  # noqa: PLC0415 -- a Unix socket does not need it

    try:
        return parse_address(address).loopback
    except SettingsError:
        return False


def _first_token_of(file: Path) -> str:
    from memoryd_server.access import read_tokens  # noqa: PLC0415 -- a Unix socket does not need it

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


def _token_of(settings: "ResolvedSettings") -> str | None:
    from memoryd_server.access import TokenFiles, first_token  # noqa: PLC0415 -- a Unix socket does not need it

    return first_token(TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file).plain)


def _find_client(common: CommonOptions) -> MemorydClient | None:
    """Return a client of the running daemon that the options and the environment select; None if no daemon answers.

    If several daemons run and none of them is selected, say which one is called.

    Raises:
        SettingsError: the settings, a token file or a TLS file are invalid, or the daemon serves another workspace than
            `--workspace`.
        memoryd.client.MemorydError: a daemon answers, and refuses the token.
    """
    for state_dir, found in _running_endpoints(common):
        client = _first_answering(found)
        if client is not None:
            if not _selects_memory(common):
                _say_which(state_dir)
            return client
    client = _first_answering(_settings_endpoints(common))
    workspace = None if client is None else expected_workspace(common)
    if client is not None and workspace is not None:
        try:
            check_workspace(client, workspace)
        except SettingsError:
            client.close()
            raise
    if client is None and not _selects_memory(common):
        _say_none(Environment.of_process().state_dir)
    return client


def _selects_memory(common: CommonOptions) -> bool:
    return bool(common.state_dir or needs_settings(common)) or selects_memory(Environment.of_process())


def needs_settings(common: CommonOptions) -> bool:
    """Return whether an option or a variable has to be resolved before the daemon is known."""
    return common.token_file is not None or selects_other_workspace(common)


def selects_other_workspace(common: CommonOptions) -> bool:
    """Return whether an option or a variable selects a workspace, or a settings file, which can set one."""
    return bool(common.config or common.workspace) or selects_workspace(Environment.of_process())


def _running_endpoints(common: CommonOptions) -> Iterator[tuple[Path, Iterator[Endpoint]]]:
    """Yield the state directory and the endpoints of each running daemon to try.

    Nothing if the settings have to be read first, because an option or a variable for them is given.
    """
    if not needs_settings(common):
        for state_dir in candidate_state_dirs(Environment.of_process(), common.state_dir):
            yield state_dir, recorded_endpoints(common, state_dir)


def recorded_endpoints(common: CommonOptions, state_dir: Path) -> Iterator[Endpoint]:
    """Yield the endpoints of a running daemon; only for those over TCP, read its settings."""
    settings = None
    for address in recorded_addresses(state_dir):
        if address.startswith("unix:"):
            if Path(address.removeprefix("unix:")).exists():
                yield Endpoint(address)
        else:
            settings = settings or common.settings(read_secrets=False, state_dir=state_dir)
            yield Endpoint(address, _token_of(settings), _own_tls(settings, common.tls))


def _settings_endpoints(common: CommonOptions) -> Iterator[Endpoint]:
    """Yield the endpoints of the daemon of these settings.

    Also those in the settings alone: a daemon whose state directory is not writable records no addresses.
    """
    settings = common.settings(read_secrets=False)
    for address in dict.fromkeys([*recorded_addresses(settings.state_dir), *settings.service.listen]):
        if not address.startswith("unix:"):
            yield Endpoint(address, _token_of(settings), _own_tls(settings, common.tls))
        elif Path(address.removeprefix("unix:")).exists():
            yield Endpoint(address)


def _connect(endpoint: Endpoint) -> MemorydClient:
    """Return a client that does not retry: another endpoint, or a daemon in this process, can take over.

    Of several addresses, it uses the first that can be connected to.

    Raises:
        SettingsError: a TLS file of the endpoint cannot be read.
        memoryd.client.MemorydError: there are several addresses, and no host name can be resolved.
    """
    try:
        return MemorydClient(open_channel(endpoint, retries=False), endpoint.token, addresses=endpoint.addresses)
    except OSError as error:
        raise SettingsError(f"cannot read {error.filename}: {error.strerror}") from error


def _first_answering(endpoints: Iterator[Endpoint]) -> MemorydClient | None:
    """Return a client of the first endpoint at which a daemon answers; None if none does.

    Raises:
        SettingsError: a token file or TLS file cannot be read.
        memoryd.client.MemorydError: a daemon answers, and refuses the token.
    """
    for endpoint in endpoints:
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


_MAX_CHOICES = 5


def _say_which(state_dir: Path) -> None:
    """Print which daemon is called if several run."""
    others = _other_daemons(state_dir)
    if others:
        complain(f"{len(others) + 1} daemons are running; calling the one of {state_dir}. Others: {_choices(others)}")


def _say_none(own: Path) -> None:
    """Print which daemons run if none of them is called."""
    others = _other_daemons(own)
    if others:
        complain(f"no daemon runs for the memory of {own}. To call another daemon: {_choices(others)}")


def _other_daemons(state_dir: Path) -> list[Path]:
    running = running_state_dirs(registry_folder(Environment.of_process()))
    return [each for each in running if each != state_dir]


def _choices(state_dirs: list[Path]) -> str:
    shown = ", ".join(f"--state-dir {shlex.quote(str(each))}" for each in state_dirs[:_MAX_CHOICES])
    return shown + (f" and {len(state_dirs) - _MAX_CHOICES} more" if len(state_dirs) > _MAX_CHOICES else "")


def check_workspace(client: MemorydClient, workspace: Path) -> None:
    """Raise SettingsError if the default agent of the daemon has another workspace."""
    from memoryd_server.cli.index import all_agents  # noqa: PLC0415 -- only for some options

    served = next((agent.workspace for agent in all_agents(client) if agent.default), "")
    if served and Path(served).resolve() != workspace.resolve():
        raise SettingsError(
            f"the running daemon serves {served}, not {workspace}; omit the option or variable that selects the "
            "workspace, or select another state directory with --state-dir"
        )


def expected_workspace(common: CommonOptions) -> Path | None:
    """Return the workspace that the options or the environment select for the default agent; None if none is selected.

    None also if the selected settings keep the memory files in a database.

    Raises:
        SettingsError: the settings are invalid.
    """
    if not selects_other_workspace(common):
        return None
    settings = common.settings(read_secrets=False)
    if settings.service.store.has_documents or not settings.default_agent:
        return None
    return settings.agent(settings.default_agent).workspace


def _own_tls(settings: "ResolvedSettings", tls: Tls | None) -> Tls | None:
    """Return TLS options for a daemon of these settings: its own certificate is trusted, at every address."""
    from memoryd_server.access import CertificateFiles, certificate_validity  # noqa: PLC0415 -- only over TCP

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
