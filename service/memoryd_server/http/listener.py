"""The listening sockets of the HTTP edge: bound, accepting a limited number of connections, with TLS if configured."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

from memoryd_server.access import Address
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import SettingsError

_BACKLOG = 256
# After a failed accept, such as without a free descriptor.
_ACCEPT_PAUSE_SECONDS = 1.0
_TLS_END_SECONDS = 2.0

_ADVICE: Mapping[int, str] = {
    errno.EADDRINUSE: "the port is taken, perhaps by another memoryd; stop that one",
    errno.EACCES: "the port is reserved for root; choose one from 1024 on",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}

MakeProtocol = Callable[[Callable[[], None]], asyncio.Protocol]


class HttpListener:
    """Accepts connections at `address` from `start` to `close`.

    `make_protocol` returns the protocol of a connection, which calls its argument when the connection is lost.
    `tls_context` returns the TLS context of a new connection; None without TLS.
    """

    def __init__(
        self,
        address: Address,
        make_protocol: MakeProtocol,
        tls_context: Callable[[], Awaitable[ssl.SSLContext | None]],
        *,
        max_connections: int,
        handshake_seconds: float,
        failures: TaskFailures,
    ) -> None:
        self._address = address
        self._make_protocol = make_protocol
        self._tls_context = tls_context
        self._max_connections = max_connections
        self._handshake_seconds = handshake_seconds
        self._sockets: list[socket.socket] = []
        self._places: set[object] = set()
        self._tasks = BackgroundTasks(failures)

    @property
    def connections(self) -> int:
        """The number of open connections, with those whose handshake is in progress."""
        return len(self._places)

    @property
    def address(self) -> str:
        """`HOST:PORT` with the port that was bound; empty while the listener is closed."""
        if not self._sockets:
            return ""
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        return f"{host}:{self._sockets[0].getsockname()[1]}"

    async def bind(self) -> None:
        """Bind every address of the host.

        Raises:
            SettingsError: an address is taken or cannot be used.
        """
        unavailable = OSError(f"{self._address.host} has no address")
        try:
            port = self._address.port
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, place in dict.fromkeys(found):
                try:
                    self._sockets.append(_bound(family, (place[0], port, *place[2:])))
                except OSError as error:
                    # A name such as localhost has an IPv6 address also on machines without IPv6.
                    if error.errno != errno.EADDRNOTAVAIL or len(found) == 1:
                        raise
                    unavailable = error
                else:
                    port = self._sockets[0].getsockname()[1]
            if not self._sockets:
                raise unavailable
        except OSError as error:
            self.close()
            why = _ADVICE.get(error.errno or 0, error.strerror or str(error))
            raise SettingsError(
                f"cannot serve HTTP at {self._address.text}: {why}; or choose another memoryd.http.listen"
            ) from error

    def start(self) -> None:
        """Accept connections."""
        for listening in self._sockets:
            accept = partial(self._accept, listening)
            self._tasks.repeat("HTTP listener", accept, fault_pause_seconds=_ACCEPT_PAUSE_SECONDS)

    async def _accept(self, listening: socket.socket) -> None:
        connection, _ = await asyncio.get_running_loop().sock_accept(listening)
        if len(self._places) >= self._max_connections:
            connection.close()
            return
        place = object()
        self._places.add(place)
        # The thread that reads the certificates ends before the last connections do.
        self._tasks.spawn("HTTP connection", self._open(connection, place), expected=(RuntimeError,))

    async def _open(self, connection: socket.socket, place: object) -> None:
        def leave() -> None:
            self._places.discard(place)

        opened = False
        try:
            context = await self._tls_context()
            seconds = None if context is None else self._handshake_seconds
            # A client that leaves during the handshake, or fails it, is not worth a message.
            with suppress(OSError, EOFError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: self._make_protocol(leave),
                    connection,
                    ssl=context,
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=None if context is None else _TLS_END_SECONDS,
                )
                opened = True
        finally:
            if not opened:
                connection.close()
                leave()

    def close(self) -> None:
        """Close the listening sockets."""
        for listening in self._sockets:
            listening.close()
        self._sockets = []

    async def stop(self) -> None:
        """Stop accepting connections, and those whose handshake is in progress."""
        await self._tasks.stop()
        self.close()


def _bound(family: int, place: tuple[object, ...]) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets with this protocol. Without it, responses are delayed by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
