"""Tells systemd how the start and the end of a service of `Type=notify` go."""

import socket
from collections.abc import Mapping
from contextlib import suppress


def notify(environ: Mapping[str, str], *lines: str) -> None:
    """Sends `lines`, such as "READY=1", to whoever started this process, where it wants to be told."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # A supervisor that is away must not keep the daemon from its work.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
        # An abstract name begins with a NUL, which a variable cannot hold.
        one.connect("\0" + address[1:] if address.startswith("@") else address)
        one.sendall("\n".join(lines).encode())
