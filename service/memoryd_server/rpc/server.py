"""RpcServer: the gRPC servers with their services, limits and listeners.

A listener is a Unix socket, locked so that no other process can replace it, or a TCP address. With certificates, TCP
listeners use TLS; the certificates may change while the daemon runs.
"""

import asyncio
import errno
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from memoryd.v1.memory_service_pb2_grpc import add_MemoryServiceServicer_to_server
from memoryd_server.access import MOST_SOCKET_PATH_BYTES, Address, CallLimits, Certificates, Credentials, PemFiles
from memoryd_server.errors import SettingsError
from memoryd_server.observe import Meter
from memoryd_server.rpc.authorization import Authorizer
from memoryd_server.rpc.health import SERVICE, ExtensionService, HealthReporter
from memoryd_server.rpc.interceptors import CallInterceptor
from memoryd_server.rpc.memory_service import MemoryService
from memoryd_server.system import FileLock

# The default limit of clients, used for both directions.
MOST_MESSAGE_BYTES = 4 * 1024 * 1024

# The socket and TCP have separate gRPC servers, so that callers over the network, who may have no token, cannot use up
# what the owner's calls need. These limits count calls from their headers on.
_MOST_RPCS = 8_192
_MOST_RPCS_A_CONNECTION = 4_096
_MOST_PENDING_RPCS = 2_048
_MOST_METADATA_BYTES = 16 * 1024
_MOST_HANDSHAKE_MS = 10_000

# A TCP connection may hold the calls and streams of one token, and these in addition.
_SPARE_RPCS_A_CONNECTION = 64
_PING_AFTER_MS = 30_000
_PING_ANSWER_MS = 20_000

# Between the end of the last call and the end of the connections.
_LAST_READS_SECONDS = 0.05

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.server_handshake_timeout_ms", _MOST_HANDSHAKE_MS),
    # Calls wait if they arrive faster than they are accepted; gRPC would cancel the 1,000th and later ones.
    ("grpc.server.max_pending_requests", _MOST_PENDING_RPCS),
    ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING_RPCS),
    # A second daemon on the port must fail loudly instead of sharing it.
    ("grpc.so_reuseport", 0),
    # A client may ping every 10 s, also without a call, and is not disconnected.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


def _socket_options() -> tuple[tuple[str, int], ...]:
    return (("grpc.max_concurrent_streams", _MOST_RPCS_A_CONNECTION),)


def _tcp_options(limits: CallLimits) -> tuple[tuple[str, int], ...]:
    streams = limits.token_concurrent_calls + limits.token_concurrent_streams + _SPARE_RPCS_A_CONNECTION
    return (
        ("grpc.max_concurrent_streams", min(streams, _MOST_RPCS_A_CONNECTION)),
        # A connection whose client does not read is closed, also while its calls are refused.
        ("grpc.keepalive_time_ms", _PING_AFTER_MS),
        ("grpc.keepalive_timeout_ms", _PING_ANSWER_MS),
        ("grpc.http2.max_pings_without_data", 0),
    )


class RpcServer:
    """The server from `start` to `stop`. `addresses` are those that clients dial once it has started.

    If `access` has certificates, every TCP listener uses TLS, also one on loopback.
    """

    def __init__(
        self,
        service: MemoryService,
        extensions: Sequence[ExtensionService],
        readiness: HealthReporter,
        gate: Authorizer,
        listen: Sequence[Address],
        *,
        access: Credentials,
        max_connections: int,
        log: structlog.typing.FilteringBoundLogger,
        meter: Meter,
    ) -> None:
        self._service = service
        self._extensions = extensions
        self._readiness = readiness
        self._gate = gate
        self._listeners = [Listener(address) for address in listen]
        self._access = access
        self._options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", max_connections))
        self._log = log
        self._meter = meter
        self._servers: list[grpc.aio.Server] = []
        self.addresses: list[str] = []

    async def start(self) -> None:
        """Bind every listener and serve once a search has answered.

        Raises:
            SettingsError: an address is taken or cannot be used.
        """
        try:
            self.addresses = self._bind()
            await self._readiness.start()
            if any(listener.tcp for listener in self._listeners):
                self._access.start()
            for server in self._servers:
                await server.start()
        except BaseException:
            await self.stop(0)
            raise

    def _bind(self) -> list[str]:
        servers: dict[bool, grpc.aio.Server] = {}
        addresses = []
        for listener in self._listeners:
            if listener.tcp not in servers:
                servers[listener.tcp] = self._new_server(over_tcp=listener.tcp)
                self._servers.append(servers[listener.tcp])
            addresses.append(listener.bind(servers[listener.tcp], self._credentials()))
        return addresses

    def _new_server(self, *, over_tcp: bool) -> grpc.aio.Server:
        server = grpc.aio.server(
            ThreadPoolExecutor(2, thread_name_prefix="grpc-sync"),
            interceptors=(CallInterceptor(self._gate, self._log, self._meter, over_tcp=over_tcp),),
            options=(*self._options, *(_tcp_options(self._gate.admission.limits) if over_tcp else _socket_options())),
            maximum_concurrent_rpcs=_MOST_RPCS,
        )
        add_MemoryServiceServicer_to_server(self._service, server)
        for extension in self._extensions:
            extension.add(extension.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._readiness.servicer, server)
        names = (extension.name for extension in self._extensions)
        services = (SERVICE, *names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(services, server)
        return server

    def _credentials(self) -> grpc.ServerCredentials | None:
        """Return the credentials of one listener; None without TLS. Each listener needs its own."""
        certificates = self._access.certificates
        return None if certificates is None else server_credentials(certificates)

    async def close_gate(self) -> None:
        """Set the health to NOT_SERVING and admit no further call."""
        await self._readiness.stop()
        self._gate.close()

    async def stop(self, grace_seconds: float) -> None:
        """Let running calls finish within the grace, and close the listeners.

        Calls that arrive are refused until the last running call has ended. Then the connections are closed: gRPC would
        end calls that arrive while it stops with CANCELLED, and a client reports a closed connection as UNAVAILABLE.
        """
        await self.close_gate()
        if self._servers:
            await self._gate.running.finish(grace_seconds)
        if self._close_connections(socket.SHUT_WR):
            # A client whose own write fails does not read the last replies, so it first gets the time to read them.
            await asyncio.sleep(_LAST_READS_SECONDS)
        stopping = asyncio.gather(*(server.stop(0) for server in self._servers))
        self._close_connections(socket.SHUT_RDWR)
        # The first step of gRPC's stop closes its listeners. Until then, a client may connect again.
        await asyncio.sleep(0)
        self._close_connections(socket.SHUT_RDWR)
        await stopping
        self._servers = []
        await self._access.stop()
        for listener in self._listeners:
            listener.close()

    def _close_connections(self, how: int) -> bool:
        """Shut down the connections of all listeners. Return False if there are none, True if there may be some."""
        closed = [listener.close_connections(how) for listener in self._listeners]
        return any(closed)


_ADVICE: Mapping[int, str] = {
    errno.EADDRINUSE: "the port is taken, perhaps by another memoryd; stop that one, or choose another --listen",
    errno.EACCES: "the port is reserved for root; choose one from 1024 on",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}


def _obstacles(address: Address) -> list[OSError]:
    """Return why the system refuses to listen there, by trying it: gRPC does not report the reason."""
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
    """Remove the socket that a killed daemon has left behind, and nothing else."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError("the path exists and is not a socket; remove it, or choose another --listen")
    path.unlink()


class Listener:
    """One address that a server is bound to, until `close`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock: FileLock | None = None
        self._bound = False
        self._folder: int | None = None
        # What `getsockname` returns for accepted connections, the path or the port; None if no server is bound.
        self._name: str | int | None = None

    @property
    def tcp(self) -> bool:
        """Whether callers connect by TCP."""
        return self._address.socket_path is None

    def bind(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> str:
        """Bind `server` and return the address that clients dial. `credentials` are used on TCP only.

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
            # A name may resolve to several addresses. gRPC succeeds if it can bind one of them, and callers of the
            # others would reach another process.
            raise SettingsError(f"cannot listen at {self._address.text}: {_words(taken[0])}")
        try:
            port = (
                server.add_insecure_port(where) if credentials is None else server.add_secure_port(where, credentials)
            )
        except RuntimeError as error:
            why = next(map(_words, _obstacles(self._address)), "the system gives no reason")
            raise SettingsError(f"cannot listen at {self._address.text}: {why}") from error
        self._name = port
        return f"{host}:{port}"

    def _bind_socket(self, server: grpc.aio.Server, path: Path) -> str:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._take_lock(path)
            _remove_stale(path)
            self._bind_privately(server, path)
        except (OSError, RuntimeError) as error:
            self.close()
            raise SettingsError(f"cannot listen at unix:{path}: {error}") from error
        return f"unix:{path}"

    def _bind_privately(self, server: grpc.aio.Server, path: Path) -> None:
        """Bind in a folder that only the owner can enter, and rename the socket once it has its mode.

        Otherwise anyone could connect before `chmod`; and a umask would apply to the files of other threads, too.
        """
        folder = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
        try:
            bound = folder / "s"
            if len(os.fsencode(bound)) <= MOST_SOCKET_PATH_BYTES:
                server.add_insecure_port(f"unix:{bound}")
            else:
                # gRPC removes the socket by this path at its end, so the descriptor stays open until then.
                self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                server.add_insecure_port(f"unix:/proc/self/fd/{self._folder}/s")
            self._name = str(bound) if self._folder is None else f"/proc/self/fd/{self._folder}/s"
            bound.chmod(0o600)
            bound.rename(path)
            self._bound = True
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _take_lock(self, path: Path) -> None:
        # gRPC unlinks a socket that is in use and binds it again, which would silently take it from a running daemon.
        lock = FileLock(path.with_name(f"{path.name}.lock"))
        if not lock.try_acquire():
            raise SettingsError(
                f"another memoryd listens at unix:{path}; use that one, stop it, or choose another --listen"
            )
        self._lock = lock

    def close_connections(self, how: int) -> bool:
        """Remove the socket, and shut down the connections that clients have opened to this address; gRPC drops them.

        `how` is SHUT_WR for the sending half or SHUT_RDWR for both. Return False if there are no connections,
        True if there may be some.
        """
        if self._name is None:
            return False
        self._remove_socket()
        for path in ("/proc/self/fd", "/dev/fd"):
            with suppress(OSError):
                descriptors = os.listdir(path)  # noqa: PTH208 -- names of descriptors
                closed = [self._close_connection(int(name), how) for name in descriptors]
                return any(closed)
        # The descriptors cannot be listed.
        return True

    def _close_connection(self, descriptor: int, how: int) -> bool:
        connection = _connection_of(descriptor)
        if connection is None:
            return False
        with suppress(OSError), connection:
            name = connection.getsockname()
            # A TCP address is a tuple whose second part is the port.
            local = name[1] if isinstance(name, tuple) and len(name) > 1 else name
            if local == self._name and not _is_listening(connection):
                connection.shutdown(how)
                return True
        return False

    def _remove_socket(self) -> None:
        if self._bound and self._address.socket_path is not None:
            self._address.socket_path.unlink(missing_ok=True)
            self._bound = False

    def close(self) -> None:
        """Remove the socket and release its lock."""
        self._remove_socket()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _connection_of(descriptor: int) -> socket.socket | None:
    """Return the socket of a descriptor, with a descriptor of its own; None if it is no socket, or closed."""
    try:
        # A copy stays the same socket, whatever another thread does with the descriptor.
        copy = os.dup(descriptor)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


def _is_listening(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that use the newest certificate for each new connection; open connections stay."""
    served = certificates.current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal served
        found = certificates.current()
        if found == served:
            return None
        served = found
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served),
        changed,  # type: ignore[arg-type] # the stubs do not allow None, which means unchanged
        require_client_authentication=certificates.requires_client_certificate,
    )


def _configuration(pem: PemFiles) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], root_certificates=pem.client_ca)
