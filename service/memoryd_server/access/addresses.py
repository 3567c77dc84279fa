"""Listening addresses: parsed, and refused if they would expose the service without TLS."""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.errors import SettingsError

# The path in sockaddr_un has 108 bytes, including the closing NUL.
MOST_SOCKET_PATH_BYTES = 107

LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A listening address: the path of a Unix socket, or a host and a port."""

    text: str
    socket_path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def loopback(self) -> bool:
        """Whether the address can only be reached from this machine."""
        return self.socket_path is not None or _is_loopback(self.host)


def parse_address(text: str) -> Address:
    """Parse `unix:PATH` or `HOST:PORT`.

    Raises:
        SettingsError: the text has neither form, or the path is too long.
    """
    if text.startswith("unix:"):
        return _socket(text)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > LAST_PORT:
        raise SettingsError(f"cannot listen at {text!r}: write unix:PATH or HOST:PORT, for example 127.0.0.1:7627")
    return Address(text, host=host.strip("[]") or "127.0.0.1", port=int(port))


def refuse_exposed(addresses: Sequence[Address], *, tls: bool) -> None:
    """Refuse addresses beyond loopback without TLS. TCP requires a token in any case.

    Raises:
        SettingsError: an address can be reached from other machines, and there is no TLS.
    """
    exposed = [address.text for address in addresses if not address.loopback]
    if exposed and not tls:
        raise SettingsError(
            f"refusing to listen at {', '.join(exposed)}: without TLS, texts and tokens could be read on the network; "
            "set memoryd.tls.certFile and memoryd.tls.keyFile, or listen at 127.0.0.1 or a Unix socket and forward it"
        )


def _socket(text: str) -> Address:
    path = Path(text.removeprefix("unix:").removeprefix("//") if text.startswith("unix://") else text[5:]).absolute()
    size = len(os.fsencode(path))
    if size > MOST_SOCKET_PATH_BYTES:
        raise SettingsError(
            f"the socket path {path} is {size} bytes long; the system allows {MOST_SOCKET_PATH_BYTES}: "
            "choose a shorter one with --listen unix:PATH"
        )
    return Address(text, socket_path=path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
