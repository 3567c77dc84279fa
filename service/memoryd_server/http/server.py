"""HttpServer: the routes of the HTTP edge, with the tokens, limits, log and metrics of gRPC.

`/mcp` is MCP over streamable HTTP, and `/metrics` is for tokens that allow every agent. `/healthz`, `/readyz` and the
files of the inspector need no token; the calls of the inspector have that of a session. An open request counts as one
stream of its token, in addition to the calls that it makes. When the daemon stops, new requests are refused, event
streams end, and other responses are completed.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from uvicorn.server import ServerState

from memoryd_server.access import Address, Credentials, Grant, confine
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import MemorydError, ShuttingDown
from memoryd_server.http.connection import HttpConnection, HttpLimits, protocol_config
from memoryd_server.http.exchange import AsgiApp, BodyBudget, ClientLeft, HttpExchange, Receive, Scope, Send
from memoryd_server.http.inspector import Inspector
from memoryd_server.http.inspector_assets import PageFile
from memoryd_server.http.listener import HttpListener
from memoryd_server.http.refusals import Refusal
from memoryd_server.http.request_headers import AllowedSources, RequestHeaders, check_source, read_headers
from memoryd_server.http.routes import BodyHandler, Handler, Route, Router
from memoryd_server.observe import Meter, Metrics
from memoryd_server.rpc import Authorizer, HealthReporter, LocalCaller, LocalCalls, fit_request_id

# At a stop, the time in which responses are sent and connections end.
_LAST_REPLIES_SECONDS = 0.5

_PLAIN = b"text/plain; charset=utf-8"
_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class McpEdge(Protocol):
    """MCP over streamable HTTP: an ASGI application whose sessions exist within `run`."""

    @property
    def asgi_app(self) -> AsgiApp:
        """The application of `/mcp`."""

    def run(self) -> AbstractAsyncContextManager[None]:
        """Return the block in which the application can be called."""


@dataclass(frozen=True, slots=True)
class EdgeParts:
    """The parts of the daemon that the routes use. `page` has the files of the inspector, none if it is disabled."""

    calls: LocalCalls
    gate: Authorizer
    access: Credentials
    readiness: HealthReporter
    metrics: Metrics
    mcp: McpEdge
    page: Mapping[str, PageFile]
    log: structlog.typing.FilteringBoundLogger
    meter: Meter
    failures: TaskFailures


class HttpServer:
    """Serves HTTP at `address` from `start` to `stop`. On the event loop's thread alone.

    `limits` may be replaced; open connections keep their own.
    """

    def __init__(self, parts: EdgeParts, address: Address, sources: AllowedSources, limits: HttpLimits) -> None:
        self._parts = parts
        self._tasks = BackgroundTasks(parts.failures)
        self._sources = sources
        self._router = Router(self._routes(), sources)
        self.limits = limits
        self.body_budget = BodyBudget(limits.all_body_bytes)
        self._config = protocol_config(self._serve, limits)
        self._state = ServerState()
        self._open: set[HttpExchange] = set()
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()
        self._scraping = asyncio.Lock()
        self._listener = HttpListener(
            address,
            self._connection,
            parts.access.tls_context,
            max_connections=limits.connections,
            handshake_seconds=limits.handshake_seconds,
            failures=parts.failures,
        )

    @property
    def url(self) -> str:
        """The URL of the server, without a path; empty while it is stopped."""
        scheme = "http" if self._parts.access.certificates is None else "https"
        return f"{scheme}://{self._listener.address}" if self._listener.address else ""

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._listener.connections

    @property
    def requests(self) -> int:
        """The number of requests in progress."""
        return len(self._open)

    async def start(self) -> None:
        """Bind the address and serve.

        Raises:
            SettingsError: the address is taken or cannot be used.
        """
        await self._listener.bind()
        self._parts.access.start()
        started = asyncio.Event()
        sessions = self._tasks.spawn("MCP sessions", self._hold_sessions(started))
        sessions.add_done_callback(lambda _: started.set())
        await started.wait()
        if sessions.done():
            self._listener.close()
            await sessions
        seconds = self._parts.gate.recheck_seconds
        self._tasks.repeat("HTTP token check", self._recheck, interval_seconds=seconds, delay_seconds=seconds)
        self._listener.start()

    async def _hold_sessions(self, started: asyncio.Event) -> None:
        # The task group of the sessions must be left by the task that entered it.
        async with self._parts.mcp.run():
            started.set()
            await self._stopping.wait()

    def close_gate(self) -> None:
        """End the event streams that wait for events. The gate, which all edges share, refuses requests from now on."""
        for exchange in [each for each in self._open if each.waits]:
            exchange.end(_stopping())

    async def stop(self) -> None:
        """Let responses in progress end, and close everything. The calls of the requests have ended, or end now."""
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._wait_until_closed(_LAST_REPLIES_SECONDS)
        await self._listener.stop()
        for exchange in list(self._open):
            exchange.end(_stopping())
        self._stopping.set()
        await self._wait_until_closed(_LAST_REPLIES_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        await self._tasks.stop()

    async def _wait_until_closed(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._listener.connections:
                    self._lost.clear()
                    await self._lost.wait()

    def _connection(self, on_lost: Callable[[], None]) -> HttpConnection:
        admission = self._parts.gate.admission

        def reply_seconds(is_stream: bool) -> float:
            return admission.limits.stream_reply_seconds if is_stream else admission.limits.reply_seconds

        def lost() -> None:
            on_lost()
            self._lost.set()

        return HttpConnection(
            self._config,
            self._state,
            self.limits,
            reply_seconds=reply_seconds,
            on_refused=self._report_malformed,
            on_unread=partial(self._parts.log.warning, "cancel-unread-reply", method="http"),
            on_lost=lost,
        )

    def _report_malformed(self, refusal: Refusal) -> None:
        self._parts.log.info("refuse-request", path="other", code=refusal.status, reason=refusal.reason)
        self._parts.meter.call_ended("http/other", str(refusal.status), 0.0)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as an ASGI application."""
        began = time.monotonic()
        admission = self._parts.gate.admission
        exchange = HttpExchange(
            scope, receive, send, admission=admission, limits=self.limits, body_budget=self.body_budget
        )
        self._open.add(exchange)
        try:
            await self._answer(exchange)
        except ClientLeft:
            pass
        except Exception:  # the edge: a bug becomes a status and a log line
            self._parts.log.exception("fail-request", **self._fields(exchange))
            message = f"internal error of memoryd; its log has the details under request id {exchange.request_id}"
            await self._refuse(exchange, Refusal(500, "INTERNAL", message))
        finally:
            self._open.discard(exchange)
            exchange.release()
            seconds = time.monotonic() - began
            self._parts.meter.call_ended(f"http/{exchange.route}", str(exchange.status), seconds)

    async def _answer(self, exchange: HttpExchange) -> None:
        scope = exchange.scope
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        exchange.request_id = fit_request_id(given)
        try:
            request = read_headers(scope["method"], scope["raw_path"], scope["headers"])
            check_source(request, self._sources)
            await self._router.serve(exchange, request)
        except Refusal as refusal:
            await self._refuse(exchange, refusal)
        except MemorydError as error:
            await self._refuse(exchange, Refusal.of(error))

    async def _refuse(self, exchange: HttpExchange, refusal: Refusal) -> None:
        self._parts.log.info("refuse-request", **self._fields(exchange), code=refusal.status, reason=refusal.reason)
        if exchange.started:
            await exchange.complete()
        else:
            await exchange.refuse(refusal)

    def _fields(self, exchange: HttpExchange) -> dict[str, str]:
        token_id = exchange.grant.token_id
        token = {"token_id": token_id} if token_id else {}
        method = exchange.scope["method"]
        shown = method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "other"
        return {"method": shown, "path": exchange.route, "request_id": exchange.request_id, **token}

    def _routes(self) -> dict[str, Route]:
        routes = {
            "/mcp": Route("mcp", ("GET", "POST", "DELETE"), self._with_token(self._mcp)),
            "/healthz": Route("healthz", ("GET", "HEAD"), _healthz),
            "/readyz": Route("readyz", ("GET", "HEAD"), self._readyz),
            "/metrics": Route("metrics", ("GET", "HEAD"), self._with_token(self._metrics)),
        }
        if self._parts.page:
            inspector = Inspector(self._parts.calls, self._serve_caller, self._tasks, self._parts.log)
            routes |= inspector.routes(self._parts.page)
        return routes

    async def _readyz(self, exchange: HttpExchange, _request: RequestHeaders) -> None:
        ready = self._parts.readiness.is_serving
        await exchange.respond(200 if ready else 503, _PLAIN, b"ok\n" if ready else b"not ready\n")

    def _with_token(self, handle: BodyHandler) -> Handler:
        """Return the handler of requests with a bearer token."""

        async def serve(exchange: HttpExchange, request: RequestHeaders) -> None:
            await self._serve_caller(exchange, request, request.token, handle)

        return serve

    async def _serve_caller(
        self,
        exchange: HttpExchange,
        request: RequestHeaders,
        token: bytes,
        handle: BodyHandler,
        *,
        most_body_bytes: int | None = None,
    ) -> None:
        """Serve a request that needs a token, until it ends or its token is revoked."""
        caller = LocalCaller(token, request_id=exchange.request_id)
        exchange.grant = await self._parts.calls.identify(caller)
        exchange.caller = caller
        with self._parts.gate.admission.token_place(exchange.grant):
            body = await exchange.read_body(request, most_body_bytes)
            async with exchange.handled():
                await handle(exchange, request, body)

    async def _mcp(self, exchange: HttpExchange, request: RequestHeaders, body: bytes) -> None:
        agent_id = chosen_agent(request.agent_id, exchange.grant)
        scope = exchange.scope
        scope["state"] |= {"memoryd_caller": exchange.caller, "memoryd_agent": agent_id}
        # A session belongs to the token and the agent that it began with.
        owner = AccessToken(token="", client_id=exchange.grant.share, subject=agent_id, scopes=[])
        scope["user"] = AuthenticatedUser(owner)
        await self._parts.mcp.asgi_app(scope, exchange.replay(body), exchange.send)

    async def _metrics(self, exchange: HttpExchange, _request: RequestHeaders, _body: bytes) -> None:
        if exchange.grant.limited:
            raise Refusal(403, "AGENT_FORBIDDEN", "the metrics name every agent, and this token is limited to some")
        async with self._scraping:
            text = await asyncio.to_thread(self._parts.metrics.exposition)
        await exchange.respond(200, _METRICS_TYPE, text)

    async def _recheck(self) -> None:
        """End the requests whose tokens were revoked or have expired since they began."""
        for exchange in list(self._open):
            if exchange.caller is not None:
                try:
                    await self._parts.calls.identify(exchange.caller)
                except ShuttingDown:
                    return
                except MemorydError as error:
                    exchange.end(error)


async def _healthz(exchange: HttpExchange, _request: RequestHeaders) -> None:
    await exchange.respond(200, _PLAIN, b"ok\n")


def _stopping() -> Refusal:
    return Refusal(503, "SHUTTING_DOWN", "the daemon is stopping; try again after its restart", retry_after_seconds=5)


@dataclass(slots=True)
class _AgentChoice:
    agent_id: str


def chosen_agent(named: str, grant: Grant) -> str:
    """Return the agent of a request: the one that it names, else the only one of its token, else the default one.

    Raises:
        AgentForbidden: the token does not allow it.
    """
    if not named and grant.agents is not None and len(grant.agents) == 1:
        return next(iter(grant.agents))
    choice = _AgentChoice(named)
    confine(choice, grant)
    return choice.agent_id
