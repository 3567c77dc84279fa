"""Find the address, the token and the TLS options of a daemon, with the rules in clients/README.md.

The `memoryd` command uses the same rules. Only `Environment.of_process` reads the environment variables.
"""

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memoryd.tls import Tls

_ENDPOINT_FILE = "memoryd.endpoint.json"
_TOKEN_FILE = "memoryd.token"  # noqa: S105 -- a file's name
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_MAX_ADDRESSES = 64
_TCP = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:\[\]/]+):[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a daemon, the token to send, and the TLS options; None: no TLS.

    The address is `unix:PATH`, `HOST:PORT`, or several of `HOST:PORT` separated by commas.
    """

    address: str
    token: str | None = None
    tls: Tls | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, one by one."""
        return tuple(self.address.split(",")) if self.over_tcp else (self.address,)

    @property
    def over_tcp(self) -> bool:
        """Whether the address is not a Unix socket."""
        return not self.address.startswith("unix:")


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment variables of a process, and the home directory of its user."""

    environ: Mapping[str, str]
    home: Path

    @classmethod
    def of_process(cls) -> "Environment":
        """Return the environment of this process."""
        return cls(os.environ, Path.home())

    def text(self, name: str) -> str | None:
        """Return the value of a variable, or None if it is blank or not set."""
        return self.environ.get(name, "").strip() or None

    def flag(self, name: str) -> bool | None:
        """Return the value of a variable as a boolean, or None if it is blank or not set.

        Raises:
            ValueError: the value is neither yes nor no.
        """
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in _YES + _NO:
            raise ValueError(f"{name} is {text!r}; write 1 for yes or 0 for no")
        return text.lower() in _YES

    def path(self, name: str) -> Path | None:
        """Return the path in a variable, or None if it is blank or not set. A leading `~` is the home directory."""
        text = self.text(name)
        return None if text is None else _expanded(text, self.home)

    @property
    def state_dir(self) -> Path:
        """The state directory of a daemon that this user starts."""
        home = self._openclaw_path("OPENCLAW_HOME", self.home) or self.home
        folders = [home / name for name in (".openclaw", ".clawdbot", ".moltbot")]
        found = next((folder for folder in folders if folder.exists()), folders[0])
        return self.path("MEMORYD_STATE_DIR") or self._openclaw_path("OPENCLAW_STATE_DIR", home) or found

    def _openclaw_path(self, name: str, home: Path) -> Path | None:
        text = self.text(name)
        return None if text in (None, "undefined", "null") else _expanded(text, home)


def _expanded(text: str, home: Path) -> Path:
    return home / text[2:] if text.startswith("~/") else home if text == "~" else Path(text)


def find_endpoint(
    environment: Environment,
    address: str | None = None,
    token: str | None = None,
    tls: Tls | Literal[False] | None = None,
) -> Endpoint:
    """Return the endpoint of a daemon; find the values that are None. An empty `token` and a false `tls` mean none.

    Raises:
        OSError: the token file cannot be read.
        ValueError: an address is invalid, the token file contains no token, the token would be sent to another machine
            without TLS, or the environment variables for TLS are invalid.
    """
    addresses = split_addresses(address or find_address(environment))
    if addresses[0].startswith("unix:"):
        return Endpoint(addresses[0])
    used_tls = (tls_from(environment) if tls is None else tls) or None
    remote = ", ".join(each for each in addresses if not _is_local(each))
    used_token = _find_token(environment, local=not remote) if token is None else token
    if used_token and used_tls is None and remote:
        raise ValueError(f"refusing to send the token to {remote} in the clear; use TLS (tls or MEMORYD_TLS)")
    return Endpoint(",".join(addresses), used_token or None, used_tls)


def split_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in `text`: one, or several TCP addresses separated by commas.

    A Unix socket is always the only address, also if there is a comma in its path.

    Raises:
        ValueError: an address is invalid, empty or repeated, or there are more than 64.
    """
    if text.startswith("unix:"):
        return (text,)
    addresses = tuple(each.strip() for each in text.split(",")) if "," in text else (text,)
    if len(addresses) > _MAX_ADDRESSES:
        raise ValueError(f"a list has at most {_MAX_ADDRESSES} addresses, not {len(addresses)}")
    for address in addresses:
        if len(addresses) > 1 and (not address or address.startswith("unix:")):
            found = repr(address) if address else "an empty address"
            raise ValueError(f"{text!r} contains {found}; write a list as HOST:PORT,HOST:PORT")
        if not _TCP.fullmatch(address):
            raise ValueError(f"{address!r} is not an address; write unix:PATH or HOST:PORT, for example 127.0.0.1:7627")
    names = [address.lower() for address in addresses]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"{text!r} contains {repeated!r} more than once")
    return addresses


def find_address(environment: Environment) -> str:
    """Return the address in MEMORYD_ADDRESS, else the one in the endpoint file, else the default Unix socket."""
    named = environment.text("MEMORYD_ADDRESS")
    if named is not None:
        return named
    for address in recorded_addresses(environment.state_dir):
        if not address.startswith("unix:") or Path(address.removeprefix("unix:")).exists():
            return address
    runtime = environment.path("XDG_RUNTIME_DIR")
    folder = environment.state_dir / "run" if runtime is None or not runtime.is_absolute() else runtime / "memoryd"
    return f"unix:{folder / 'memoryd.sock'}"


def recorded_addresses(state_dir: Path) -> list[str]:
    """Return the addresses that a daemon wrote to its endpoint file; none if the file is missing or invalid."""
    try:
        content = json.loads((state_dir / _ENDPOINT_FILE).read_text("utf-8"))
        return [str(address) for address in content["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def tls_from(environment: Environment) -> Tls | None:
    """Return the TLS options in the environment variables, or None if TLS is not enabled.

    MEMORYD_TLS enables or disables TLS. If it is not set, a file in MEMORYD_TLS_CA, _CERT or _KEY enables TLS.

    Raises:
        ValueError: MEMORYD_TLS is neither yes nor no, or only one of MEMORYD_TLS_CERT and MEMORYD_TLS_KEY is set.
    """
    enabled = environment.flag("MEMORYD_TLS")
    ca, certificate, key = files = [environment.path(f"MEMORYD_TLS_{part}") for part in ("CA", "CERT", "KEY")]
    if enabled is False or (enabled is None and files == [None] * 3):
        return None
    try:
        return Tls(ca, certificate, key, environment.text("MEMORYD_TLS_SERVER_NAME") or "")
    except ValueError as error:
        raise ValueError(f"MEMORYD_TLS_CERT, MEMORYD_TLS_KEY: {error}") from error


def _find_token(environment: Environment, *, local: bool) -> str | None:
    named = environment.path("MEMORYD_TOKEN_FILE")
    if named is not None:
        token = _first_line(named)
        if token is None:
            raise ValueError(f"the token file {named} contains no token")
        return token
    file = environment.state_dir / _TOKEN_FILE
    return _first_line(file) if local and file.exists() else None


def _first_line(file: Path) -> str | None:
    lines = (line.strip() for line in file.read_text("utf-8").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), None)


def host_of(address: str) -> str:
    """Return the host of a TCP address, without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


def _is_local(address: str) -> bool:
    host = host_of(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
