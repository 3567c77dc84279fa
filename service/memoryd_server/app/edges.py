"""The edges other than gRPC: HTTP, if an address is set, and the MCP server that it shares with MCP over gRPC.

The packages behind them take a second to import. They are imported when an edge is first used, on a thread.
"""

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING

from memoryd_server.access import Credentials
from memoryd_server.app.config import http_address, require_http_extra
from memoryd_server.background_tasks import TaskFailures
from memoryd_server.errors import NotImplementedYet, SettingsError
from memoryd_server.observe import Log, Meter, Metrics
from memoryd_server.rpc import (
    Authorizer,
    ExtensionService,
    HealthReporter,
    LocalCaller,
    LocalCalls,
    McpWrite,
    MemoryService,
    ServeSession,
    make_mcp_service,
)
from memoryd_server.settings import ResolvedSettings

if TYPE_CHECKING:
    from memoryd_server.http import HttpServer, McpServer


class Edges:
    """The edges other than gRPC, from `start` to `stop`. `http` is None while HTTP is not served."""

    def __init__(
        self,
        settings: ResolvedSettings,
        service: MemoryService,
        gate: Authorizer,
        *,
        access: Credentials,
        log: Log,
        meter: Meter,
        failures: TaskFailures,
    ) -> None:
        self._settings = settings.service.http
        self._address = http_address(settings)
        self._max_connections = settings.service.limits.max_connections
        self._calls = LocalCalls(service, gate, log, meter)
        self._gate = gate
        self._access = access
        self._log = log
        self._meter = meter
        self._failures = failures
        self._mcp: McpServer | None = None
        self._importing = asyncio.Lock()
        self.http: HttpServer | None = None

    @property
    def http_url(self) -> str:
        """Return the URL of the HTTP server, without a path; empty if it is disabled."""
        return "" if self.http is None else self.http.url

    @property
    def http_requests(self) -> int:
        """Return the number of requests over HTTP in progress."""
        return 0 if self.http is None else self.http.requests

    async def start(self, readiness: HealthReporter, metrics: Metrics | None) -> None:
        """Serve HTTP, if an address is set.

        Raises:
            SettingsError: the address cannot be used, the extra `http` is not installed, or files of it are missing.
        """
        if self._address is None or metrics is None:
            return
        await asyncio.to_thread(require_http_extra)
        mcp = await self.mcp_server()
        # The module has been imported on a thread.
        from memoryd_server.http import AllowedSources, EdgeParts, HttpLimits, HttpServer, read_page  # noqa: PLC0415

        parts = EdgeParts(
            calls=self._calls,
            gate=self._gate,
            access=self._access,
            readiness=readiness,
            metrics=metrics,
            mcp=mcp,
            page=await asyncio.to_thread(read_page) if self._settings.inspector else {},
            log=self._log,
            meter=self._meter,
            failures=self._failures,
        )
        sources = AllowedSources.of(self._address, self._settings.allowed_hosts, self._settings.allowed_origins)
        limits = HttpLimits(connections=self._max_connections, body_bytes=self._settings.max_body_bytes)
        server = HttpServer(parts, self._address, sources, limits)
        await server.start()
        self.http = server
        self._log.info("serve-http", url=server.url)

    async def mcp_server(self) -> "McpServer":
        """Return the MCP server of the daemon, which all transports share.

        Raises:
            NotImplementedYet: the extra `http` is not installed.
        """
        async with self._importing:
            if self._mcp is None:
                try:
                    await asyncio.to_thread(require_http_extra)
                except SettingsError as error:
                    message = "MCP needs the extra `http`; install memoryd[http] in the daemon's environment"
                    raise NotImplementedYet(message) from error
                await asyncio.to_thread(import_module, "memoryd_server.http")
                from memoryd_server.http import McpLimits, McpServer  # noqa: PLC0415 -- imported on a thread

                http = self._settings
                limits = McpLimits(http.max_sessions, http.session_idle_seconds, http.max_body_bytes)
                self._mcp = McpServer(self._calls, self._log, self._failures, limits=limits)
            return self._mcp

    def mcp_service(self) -> ExtensionService:
        """Return the gRPC service that carries the sessions of `memoryd mcp`."""
        return make_mcp_service(self._gate, self._session_server, self._failures)

    async def _session_server(self) -> ServeSession:
        mcp = await self.mcp_server()
        from memoryd_server.http import SessionOwner  # noqa: PLC0415 -- imported on a thread

        async def serve(messages: AsyncIterator[bytes], write: McpWrite, caller: LocalCaller, agent_id: str) -> None:
            await mcp.serve_stream(messages, write, SessionOwner(caller, agent_id))

        return serve

    def close_gate(self) -> None:
        """End the subscriptions, with their last messages, and the event streams of HTTP. The gate refuses requests."""
        if self._mcp is not None:
            self._mcp.end_subscriptions()
        if self.http is not None:
            self.http.close_gate()

    async def stop(self) -> None:
        """Close the connections, whose calls have ended, and the MCP server."""
        if self.http is not None:
            await self.http.stop()
        if self._mcp is not None:
            await self._mcp.close()
