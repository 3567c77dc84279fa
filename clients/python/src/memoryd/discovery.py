"""Where a daemon is and what it asks for, found where the daemon's own command looks; clients/README.md has the rules.

Nothing here reads the environment by itself; `connect` hands it in.
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

_NOTE = "memoryd.endpoint.json"
_OWN_TOKEN = "memoryd.token"  # noqa: S105 -- a file's name
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_TCP = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:\[\]/]+):[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A daemon to dial: `unix:PATH` or `HOST:PORT`, the token to show there, and whether TLS is spoken."""

    address: str
    token: str | None = None
    tls: Tls | None = None

    @property
    def over_tcp(self) -> bool:
        """Whether it is not a Unix socket."""
        return not self.address.startswith("unix:")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The variables of a process, and the home directory of its user."""

    environ: Mapping[str, str]
    home: Path

    @classmethod
    def of_this_process(cls) -> "Surroundings":
        """What this process was started with."""
        return cls(os.environ, Path.home())

    def text(self, name: str) -> str | None:
        """A variable's value; None when it is blank or not set."""
        return self.environ.get(name, "").strip() or None

    def flag(self, name: str) -> bool | None:
        """What a variable says that is yes or no; None when it is blank or not set.

        Raises:
            ValueError: it is neither.
        """
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in _YES + _NO:
            raise ValueError(f"{name} is {text!r}; write 1 for yes or 0 for no")
        return text.lower() in _YES

    def path(self, name: str) -> Path | None:
        """The path in a variable; a leading `~` is the home directory."""
        text = self.text(name)
        if text is None:
            return None
        return self.home / text[2:] if text.startswith("~/") else self.home if text == "~" else Path(text)

    @property
    def state_dir(self) -> Path:
        """The state directory of the daemon that its user would start."""
        current, older = self.home / ".openclaw", self.home / ".moltbot"
        found = older if older.exists() and not current.exists() else current
        return self.path("MEMORYD_STATE_DIR") or self.path("OPENCLAW_STATE_DIR") or found


def find(
    around: Surroundings, address: str | None = None, token: str | None = None, tls: Tls | Literal[False] | None = None
) -> Endpoint:
    """The daemon that is meant; what is not given is looked for. No token is `""`, and no TLS `False`.

    Raises:
        OSError: a file that is named cannot be read.
        ValueError: the address is none, a file holds no token, the token would travel in the clear beyond this
            machine, or what the environment says of TLS makes no sense.
    """
    address = address or find_address(around)
    if address.startswith("unix:"):
        return Endpoint(address)
    if not _TCP.fullmatch(address):
        raise ValueError(f"{address!r} is no address; write unix:PATH or HOST:PORT, for example 127.0.0.1:7627")
    spoken = (named_tls(around) if tls is None else tls) or None
    shown = _find_token(around, address) if token is None else token
    if shown and spoken is None and not _is_here(address):
        raise ValueError(f"refusing to send the token to {address} in the clear; speak TLS (tls or MEMORYD_TLS)")
    return Endpoint(address, shown or None, spoken)


def find_address(around: Surroundings) -> str:
    """The address that the environment names, that a daemon has noted, or where it would listen by itself."""
    named = around.text("MEMORYD_ADDRESS")
    if named is not None:
        return named
    for noted in noted_addresses(around.state_dir):
        if not noted.startswith("unix:") or Path(noted.removeprefix("unix:")).exists():
            return noted
    runtime = around.path("XDG_RUNTIME_DIR")
    folder = around.state_dir / "run" if runtime is None or not runtime.is_absolute() else runtime / "memoryd"
    return f"unix:{folder / 'memoryd.sock'}"


def noted_addresses(state_dir: Path) -> list[str]:
    """The addresses that a daemon noted in its state directory; none where there is no such note, or no sense in it."""
    try:
        noted = json.loads((state_dir / _NOTE).read_text("utf-8"))
        return [str(address) for address in noted["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def named_tls(around: Surroundings) -> Tls | None:
    """TLS where MEMORYD_TLS asks for it, or does not say no where files are named; with these files.

    Raises:
        ValueError: MEMORYD_TLS is neither yes nor no, or a certificate is named and not its key, or the other way
            round.
    """
    asked = around.flag("MEMORYD_TLS")
    ca, certificate, key = files = [around.path(f"MEMORYD_TLS_{part}") for part in ("CA", "CERT", "KEY")]
    if asked is False or (asked is None and files == [None] * 3):
        return None
    try:
        return Tls(ca, certificate, key, around.text("MEMORYD_TLS_SERVER_NAME") or "")
    except ValueError as error:
        raise ValueError(f"MEMORYD_TLS_CERT, MEMORYD_TLS_KEY: {error}") from error


def _find_token(around: Surroundings, address: str) -> str | None:
    named = around.path("MEMORYD_TOKEN_FILE")
    if named is not None:
        token = _first_line(named)
        if token is None:
            raise ValueError(f"there is no token in the token file {named}")
        return token
    own = around.state_dir / _OWN_TOKEN
    return _first_line(own) if _is_here(address) and own.exists() else None


def _first_line(file: Path) -> str | None:
    lines = (line.strip() for line in file.read_text("utf-8").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), None)


def _is_here(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
