"""Where the daemon listens: a Unix socket that nobody can steal, or loopback TCP."""

import fcntl
import ipaddress
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import grpc

from memoryd_server.errors import SettingsError

# sockaddr_un holds 108 bytes with the closing NUL.
MOST_SOCKET_PATH_BYTES = 107

LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen at: a Unix socket's path, or a host and a port."""

    text: str
    socket_path: Path | None = None
    host: str = ""
    port: int = 0


def parse(text: str) -> Address:
    """`unix:PATH` or `HOST:PORT`.

    Raises:
        SettingsError: it is neither, the path is too long, or the host is not loopback.
    """
    if text.startswith("unix:"):
        return _socket(text)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > LAST_PORT:
        raise SettingsError(f"cannot listen at {text!r}: write unix:PATH or HOST:PORT, for example 127.0.0.1:7627")
    host = host.strip("[]") or "127.0.0.1"
    if not _is_loopback(host):
        raise SettingsError(
            f"refusing to listen at {text!r}: beyond loopback TLS and a token are needed, which this version does not "
            "offer yet; listen at 127.0.0.1, or at a Unix socket and forward it"
        )
    return Address(text, host=host, port=int(port))


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


def _remove_stale(path: Path) -> None:
    """Removes the socket that a daemon left behind when it was killed, and nothing else."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError("something that is no socket stands there; remove it, or choose another --listen")
    path.unlink()


class Listener:
    """One address that a server is bound to, until `close`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock: int | None = None
        self._bound = False

    def bind(self, server: grpc.aio.Server) -> str:
        """Binds `server` and answers with the address that clients dial.

        Raises:
            SettingsError: the address is taken or cannot be used.
        """
        if self._address.socket_path is not None:
            return self._bind_socket(server, self._address.socket_path)
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        try:
            port = server.add_insecure_port(f"{host}:{self._address.port}")
        except RuntimeError as error:
            raise SettingsError(
                f"cannot listen at {self._address.text}: the port is taken or not ours to use"
            ) from error
        return f"{host}:{port}"

    def _bind_socket(self, server: grpc.aio.Server, path: Path) -> str:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._take_lock(path)
            _remove_stale(path)
            mask = os.umask(0o177)
            try:
                server.add_insecure_port(f"unix:{path}")
                self._bound = True
            finally:
                os.umask(mask)
            path.chmod(0o600)
        except (OSError, RuntimeError) as error:
            self.close()
            raise SettingsError(f"cannot listen at unix:{path}: {error}") from error
        return f"unix:{path}"

    def _take_lock(self, path: Path) -> None:
        # gRPC unlinks a socket that is in use and binds anew, which would silently steal it from a running daemon.
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise SettingsError(
                f"another memoryd listens at unix:{path}; use that one, stop it, or choose another --listen"
            ) from error
        self._lock = descriptor

    def close(self) -> None:
        """Removes the socket and gives its lock up."""
        if self._bound and self._address.socket_path is not None:
            self._address.socket_path.unlink(missing_ok=True)
            self._bound = False
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
