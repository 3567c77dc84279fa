"""Where the daemon listens: a Unix socket that nobody can steal, or TCP."""

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from memoryd_server.errors import SettingsError
from memoryd_server.system import FileLock

# sockaddr_un holds 108 bytes with the closing NUL.
MOST_SOCKET_PATH_BYTES = 107

LAST_PORT = 65_535

_ADVICE: Mapping[int, str] = {
    errno.EADDRINUSE: "the port is taken, perhaps by another memoryd; stop that one, or choose another --listen",
    errno.EACCES: "the port is not ours to use; choose one from 1024 on",
    errno.EADDRNOTAVAIL: "the address is none of this machine's",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen at: a Unix socket's path, or a host and a port."""

    text: str
    socket_path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def loopback(self) -> bool:
        """Whether it can only be reached from this machine."""
        return self.socket_path is not None or _is_loopback(self.host)


def parse(text: str) -> Address:
    """`unix:PATH` or `HOST:PORT`.

    Raises:
        SettingsError: it is neither, or the path is too long.
    """
    if text.startswith("unix:"):
        return _socket(text)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > LAST_PORT:
        raise SettingsError(f"cannot listen at {text!r}: write unix:PATH or HOST:PORT, for example 127.0.0.1:7627")
    return Address(text, host=host.strip("[]") or "127.0.0.1", port=int(port))


def refuse_exposed(addresses: Sequence[Address], *, tls: bool) -> None:
    """Sees to it that nothing is sent in the clear beyond this machine. A token is asked for on TCP in any case.

    Raises:
        SettingsError: an address can be reached from elsewhere, and there is no TLS.
    """
    exposed = [address.text for address in addresses if not address.loopback]
    if exposed and not tls:
        raise SettingsError(
            f"refusing to listen at {', '.join(exposed)}: beyond loopback TLS is needed besides a token, or texts and "
            "tokens could be read on the way; set memoryd.tls.certFile and memoryd.tls.keyFile, or listen at 127.0.0.1 "
            "or a Unix socket and forward it"
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


def _obstacles(address: Address) -> list[OSError]:
    """What the system says against listening there, which gRPC does not tell: found out by trying the same."""
    found: list[OSError] = []
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return [error]
    for family, kind, protocol, _, place in places:
        try:
            with socket.socket(family, kind, protocol) as attempt:
                attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                attempt.bind(place)
                attempt.listen()
        except OSError as error:
            found.append(error)
    return found


def _words(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, error.strerror or str(error))


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
        self._lock: FileLock | None = None
        self._bound = False

    @property
    def tcp(self) -> bool:
        """Whether callers come by TCP."""
        return self._address.socket_path is None

    def bind(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> str:
        """Binds `server` and answers with the address that clients dial. `credentials` are used on TCP alone.

        Raises:
            SettingsError: the address is taken or cannot be used.
        """
        if self._address.socket_path is not None:
            return self._bind_socket(server, self._address.socket_path)
        return self._bind_tcp(server, credentials)

    def _bind_tcp(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> str:
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        where = f"{host}:{self._address.port}"
        taken = [error for error in _obstacles(self._address) if error.errno == errno.EADDRINUSE]
        if taken:
            # A name may stand for several addresses. To gRPC one of them is enough, and callers of the others would
            # reach whoever has those.
            raise SettingsError(f"cannot listen at {self._address.text}: {_words(taken[0])}")
        try:
            port = (
                server.add_insecure_port(where) if credentials is None else server.add_secure_port(where, credentials)
            )
        except RuntimeError as error:
            why = next(map(_words, _obstacles(self._address)), "the system did not let us")
            raise SettingsError(f"cannot listen at {self._address.text}: {why}") from error
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
        lock = FileLock(path.with_name(f"{path.name}.lock"))
        if not lock.try_acquire():
            raise SettingsError(
                f"another memoryd listens at unix:{path}; use that one, stop it, or choose another --listen"
            )
        self._lock = lock

    def close(self) -> None:
        """Removes the socket and gives its lock up."""
        if self._bound and self._address.socket_path is not None:
            self._address.socket_path.unlink(missing_ok=True)
            self._bound = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None
