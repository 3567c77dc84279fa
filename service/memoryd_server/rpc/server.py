"""Puts the gRPC server together: service, health, reflection, limits, listeners."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from memoryd.v1.memory_service_pb2_grpc import add_MemoryServiceServicer_to_server
from memoryd_server.access import AccessFiles
from memoryd_server.observe.meter import Meter
from memoryd_server.rpc.admission import CallLimits
from memoryd_server.rpc.credentials import server_credentials
from memoryd_server.rpc.extension import ExtensionService
from memoryd_server.rpc.gate import Gate
from memoryd_server.rpc.health import SERVICE, Readiness
from memoryd_server.rpc.interceptors import CallInterceptor
from memoryd_server.rpc.listeners import Address, Listener
from memoryd_server.rpc.service import MemoryService

# What a client takes by default, and so what goes either way.
MOST_MESSAGE_BYTES = 4 * 1024 * 1024

# The socket and TCP have a gRPC server each, so that callers over the network, who may have no token, cannot use up
# what the owner's calls need. These bounds count calls from their headers on.
_MOST_RPCS = 8_192
_MOST_RPCS_A_CONNECTION = 4_096
_MOST_PENDING_RPCS = 2_048
_MOST_METADATA_BYTES = 16 * 1024
_MOST_HANDSHAKE_MS = 10_000

# A TCP connection may hold the calls and streams of one token, and these besides.
_SPARE_RPCS_A_CONNECTION = 64
_PING_AFTER_MS = 30_000
_PING_ANSWER_MS = 20_000

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.server_handshake_timeout_ms", _MOST_HANDSHAKE_MS),
    # Calls that come faster than they are accepted wait; gRPC would end them with CANCELLED from 1,000 on.
    ("grpc.server.max_pending_requests", _MOST_PENDING_RPCS),
    ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING_RPCS),
    # A second daemon on the port must fail loudly instead of sharing it.
    ("grpc.so_reuseport", 0),
    # A client may ping every 10 s, also without a call, and is not sent away.
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
        # A connection whose client reads nothing is closed, also while its calls are being refused.
        ("grpc.keepalive_time_ms", _PING_AFTER_MS),
        ("grpc.keepalive_timeout_ms", _PING_ANSWER_MS),
        ("grpc.http2.max_pings_without_data", 0),
    )


class RpcServer:
    """A server from `start` to `stop`. `addresses` are where clients dial once it has started.

    Where `access` has certificates, every TCP listener speaks TLS, also one on loopback.
    """

    def __init__(
        self,
        service: MemoryService,
        extensions: Sequence[ExtensionService],
        readiness: Readiness,
        gate: Gate,
        listen: Sequence[Address],
        *,
        access: AccessFiles,
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
        """What one listener shows, where TLS is on. gRPC takes the first certificate of credentials but once."""
        certificates = self._access.certificates
        return None if certificates is None else server_credentials(certificates)

    async def close_gate(self) -> None:
        """Says NOT_SERVING and lets no further call in."""
        await self._readiness.stop()
        self._gate.close()

    async def stop(self, grace_seconds: float) -> None:
        """Let running calls finish within the grace, and close the listeners."""
        await self.close_gate()
        await asyncio.gather(*(server.stop(grace_seconds) for server in self._servers))
        self._servers = []
        await self._access.stop()
        for listener in self._listeners:
            listener.close()
