"""Puts the gRPC server together: service, health, reflection, limits, listeners."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from memoryd.v1.entry_service_pb2_grpc import add_EntryServiceServicer_to_server
from memoryd.v1.memory_service_pb2_grpc import add_MemoryServiceServicer_to_server
from memoryd_server.access import AccessFiles
from memoryd_server.observe.meter import Meter
from memoryd_server.rpc.credentials import server_credentials
from memoryd_server.rpc.entry_service import ENTRY_SERVICE, EntryService
from memoryd_server.rpc.gate import Gate
from memoryd_server.rpc.health import SERVICE, Readiness
from memoryd_server.rpc.interceptors import CallInterceptor
from memoryd_server.rpc.listeners import Address, Listener
from memoryd_server.rpc.service import MemoryService

# What a client takes by default, and so what goes either way.
MOST_MESSAGE_BYTES = 4 * 1024 * 1024

# Headers whose request has not arrived yet count as neither call nor stream, and nobody knows yet whose they are.
_MOST_RPCS = 8_192
_MOST_RPCS_A_CONNECTION = 4_096
_MOST_METADATA_BYTES = 16 * 1024
_MOST_HANDSHAKE_MS = 10_000

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.max_concurrent_streams", _MOST_RPCS_A_CONNECTION),
    ("grpc.server_handshake_timeout_ms", _MOST_HANDSHAKE_MS),
    # A second daemon on the port must fail loudly instead of sharing it.
    ("grpc.so_reuseport", 0),
    # A client may ping every 10 s, also without a call, and is not sent away.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class RpcServer:
    """A server from `start` to `stop`. `addresses` are where clients dial once it has started.

    Where `access` has certificates, every TCP listener speaks TLS, also one on loopback.
    """

    def __init__(
        self,
        service: MemoryService,
        entries: EntryService,
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
        self._entries = entries
        self._readiness = readiness
        self._gate = gate
        self._listeners = [Listener(address) for address in listen]
        self._access = access
        self._options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", max_connections))
        self._log = log
        self._meter = meter
        self._server: grpc.aio.Server | None = None
        self.addresses: list[str] = []

    async def start(self) -> None:
        """Binds every listener and serves once a search has answered.

        Raises:
            SettingsError: an address is taken or cannot be used.
        """
        server = grpc.aio.server(
            ThreadPoolExecutor(2, thread_name_prefix="grpc-sync"),
            interceptors=(CallInterceptor(self._gate, self._log, self._meter),),
            options=self._options,
            maximum_concurrent_rpcs=_MOST_RPCS,
        )
        add_MemoryServiceServicer_to_server(self._service, server)
        add_EntryServiceServicer_to_server(self._entries, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._readiness.servicer, server)
        services = (SERVICE, ENTRY_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(services, server)
        self._server = server
        try:
            self.addresses = [listener.bind(server, self._credentials()) for listener in self._listeners]
            await self._readiness.start()
            if any(listener.tcp for listener in self._listeners):
                self._access.start()
            await server.start()
        except BaseException:
            await self.stop(0)
            raise

    def _credentials(self) -> grpc.ServerCredentials | None:
        """What one listener shows, where TLS is on. gRPC takes the first certificate of credentials but once."""
        certificates = self._access.certificates
        return None if certificates is None else server_credentials(certificates)

    async def close_gate(self) -> None:
        """Says NOT_SERVING and lets no further call in."""
        await self._readiness.stop()
        self._gate.close()

    async def stop(self, grace_seconds: float) -> None:
        """Lets running calls finish within the grace, and closes the listeners."""
        await self.close_gate()
        if self._server is not None:
            await self._server.stop(grace_seconds)
            self._server = None
        await self._access.stop()
        for listener in self._listeners:
            listener.close()

    async def wait(self) -> None:
        """Returns when the server has stopped."""
        if self._server is not None:
            await self._server.wait_for_termination()
