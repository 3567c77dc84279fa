"""The inspector: a read-only web page, and the calls that it makes with the token of its session.

The calls are POST requests of the page's own origin, because browsers also send cookies with requests of pages of other
ports of the same host. Only methods that change nothing can be called, and fields by which they would change or start
something in the daemon are refused. Tokens, scopes, limits, log and metrics are those of gRPC.
"""

import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import structlog

from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import FieldViolation, InvalidRequest, TokenInvalid
from memoryd_server.foreign_text import parse_json
from memoryd_server.http.exchange import ClientLeft, HttpExchange
from memoryd_server.http.inspector_assets import FILES_PATH, ISOLATION_HEADERS, PageFile
from memoryd_server.http.inspector_sign_in import SESSION_SECONDS, InspectorSession, InspectorSessions, SignInThrottle
from memoryd_server.http.refusals import Refusal
from memoryd_server.http.request_headers import RequestHeaders
from memoryd_server.http.routes import BodyHandler, Handler, Route
from memoryd_server.rpc import LocalCaller, LocalCalls

CALLS = (
    "ListAgents",
    "Status",
    "ListFiles",
    "MemoryGet",
    "MemoryHistory",
    "MemorySearch",
    "ExplainMiss",
    "MemoryRecall",
    "SessionContext",
)

# A session key can start a sync, and the daemon records what the session was shown. A probe calls providers. Frequent
# heartbeats cost more than the page needs.
_KEY = ("sessionKey", "session_key")
_REFUSED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Status": ("probe",),
    "MemorySearch": _KEY,
    "MemoryRecall": (*_KEY, "rememberShown", "remember_shown"),
    "SessionContext": _KEY,
    "WatchIndex": ("heartbeatInterval", "heartbeat_interval"),
}
# The key of a session that does not exist, with which SessionContext returns what a private main session loads.
_PAGE_SESSION = re.compile(r"agent:[a-z0-9_-]{1,64}:main:thread:inspector", re.ASCII)

_HEARTBEAT = "15s"
_MOST_SIGN_IN_BYTES = 4096
# Much more than the page sends. Larger requests take long to convert, and occupy the room for the bodies of all callers
# as long as they are in progress, which a watch is for hours.
_MOST_CALL_BYTES = 64 * 1024
_JSON = b"application/json"


class ServeCaller(Protocol):
    """Serves a request that needs a token, until it ends or its token is revoked."""

    async def __call__(
        self,
        exchange: HttpExchange,
        request: RequestHeaders,
        token: bytes,
        handle: BodyHandler,
        *,
        most_body_bytes: int | None = None,
    ) -> None:
        """Pass the request and its body to `handle`."""


class Inspector:
    """The routes of the inspector. Use it on the event loop's thread only."""

    def __init__(
        self,
        calls: LocalCalls,
        serve_caller: ServeCaller,
        tasks: BackgroundTasks,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._calls = calls
        self._serve_caller = serve_caller
        self._tasks = tasks
        self._log = log
        self._sessions = InspectorSessions()
        self._throttle = SignInThrottle()

    def routes(self, page: Mapping[str, PageFile]) -> dict[str, Route]:
        """Return the routes by their paths, with those of the files of the page."""

        def post(name: str, serve: Handler) -> Route:
            return Route(f"inspector/{name}", ("POST",), serve, is_public=False)

        routes = {
            path: Route("inspector/file", ("GET", "HEAD"), file.send, is_public=False) for path, file in page.items()
        }
        routes[FILES_PATH + "sign-in"] = post("sign-in", self._sign_in)
        routes[FILES_PATH + "session"] = post("session", self._session)
        routes[FILES_PATH + "sign-out"] = post("sign-out", self._sign_out)
        routes[FILES_PATH + "watch"] = post("watch", self._in_session(self._watch))
        for method in CALLS:
            handle = partial(self._call, method)
            routes[f"{FILES_PATH}call/{method}"] = post("call", self._in_session(handle))
        return routes

    async def _sign_in(self, exchange: HttpExchange, request: RequestHeaders) -> None:
        """Exchange a token for a session."""
        _check_page(exchange, request)
        token = _read_token(await exchange.read_body(request, _MOST_SIGN_IN_BYTES))
        wait = self._throttle.take(exchange.client_host)
        if wait:
            seconds = math.ceil(wait * 1000) / 1000
            message = f"too many failed sign-ins; try again in {math.ceil(wait)} s"
            raise Refusal(429, "TOO_MANY_REQUESTS", message, retry_after_seconds=seconds)
        exchange.grant = await self._calls.identify(LocalCaller(token, request_id=exchange.request_id))
        self._throttle.give_back(exchange.client_host)
        self._sessions.close(_session_id(exchange, request))
        session_id = self._sessions.open(token, request.origin, exchange.grant.share)
        self._log.info("open-inspector-session", token_id=exchange.grant.token_id, request_id=exchange.request_id)
        _set_cookie(exchange, request, session_id, SESSION_SECONDS)
        await exchange.respond(204)

    async def _sign_out(self, exchange: HttpExchange, request: RequestHeaders) -> None:
        """End the session, whether or not its token is still valid."""
        _check_page(exchange, request)
        session_id = _session_id(exchange, request)
        await exchange.read_body(request, _MOST_SIGN_IN_BYTES)
        self._token_of(session_id, request)
        self._sessions.close(session_id)
        _set_cookie(exchange, request, "", 0)
        await exchange.respond(204)

    async def _session(self, exchange: HttpExchange, request: RequestHeaders) -> None:
        """Send whether there is a session. Browsers log error responses, so the page requests this before any call."""
        _check_page(exchange, request)
        await exchange.read_body(request, _MOST_SIGN_IN_BYTES)
        session = self._find(_session_id(exchange, request), request)
        await exchange.respond(200, _JSON, _json({"signedIn": session is not None}))

    def _find(self, session_id: str, request: RequestHeaders) -> InspectorSession | None:
        session = self._sessions.use(session_id)
        return session if session is not None and session.origin == request.origin else None

    def _token_of(self, session_id: str, request: RequestHeaders) -> bytes:
        """Return the token of a session.

        Raises:
            Refusal: there is no session with this id, or it belongs to another origin.
        """
        session = self._find(session_id, request)
        if session is None:
            raise _sign_in_required()
        return session.token

    def _in_session(self, handle: BodyHandler) -> Handler:
        """Return the handler of requests that need a session."""

        async def serve(exchange: HttpExchange, request: RequestHeaders) -> None:
            _check_page(exchange, request)
            session_id = _session_id(exchange, request)
            token = self._token_of(session_id, request)
            try:
                await self._serve_caller(exchange, request, token, handle, most_body_bytes=_MOST_CALL_BYTES)
            except TokenInvalid:
                self._sessions.close(session_id)
                raise _sign_in_required() from None

        return serve

    async def _call(self, method: str, exchange: HttpExchange, _request: RequestHeaders, body: bytes) -> None:
        """Call a method and send its response."""
        message = _read_object(body)
        _refuse_effects(method, message)
        async with self._while_connected(exchange) as caller:
            response = await self._calls.call(method, message, caller)
        await exchange.respond(200, _JSON, _json(response))

    async def _watch(self, exchange: HttpExchange, request: RequestHeaders, body: bytes) -> None:
        """Send the changes of an index as events, until the client leaves or the session ends.

        WatchIndex itself ends when a stop of the daemon begins.
        """
        message = _read_object(body)
        _refuse_effects("WatchIndex", message)
        message["heartbeatInterval"] = _HEARTBEAT
        session_id = _session_id(exchange, request)
        async with (
            self._while_connected(exchange) as caller,
            aclosing(self._calls.stream("WatchIndex", message, caller)) as updates,
        ):
            async for update in updates:
                self._token_of(session_id, request)
                if not exchange.started:
                    await exchange.start_events()
                await exchange.send_event(_json(update))

    @asynccontextmanager
    async def _while_connected(self, exchange: HttpExchange) -> AsyncIterator[LocalCaller]:
        """Yield the caller of a request, and end the block when the client closes the connection."""
        if exchange.caller is None:
            raise AssertionError("the request has no caller")

        async def end_when_left() -> None:
            await exchange.wait_until_left()
            exchange.end(ClientLeft())

        waiting = self._tasks.spawn("inspector request", end_when_left())
        try:
            yield exchange.caller
        finally:
            waiting.cancel()


def _check_page(exchange: HttpExchange, request: RequestHeaders) -> None:
    """Check that the request is from the inspector's own page.

    Raises:
        Refusal: it is from another origin, or its body is not JSON.
    """
    exchange.added_headers += ISOLATION_HEADERS
    needs_tls = exchange.scope["scheme"] == "https"
    if not request.is_from_own_page or (needs_tls and not _uses_tls(request)):
        raise Refusal(403, "ORIGIN_NOT_ALLOWED", "only the page of the inspector itself may send this request")
    content_type = request.text(b"content-type").partition(";")[0].strip().lower()
    if content_type != _JSON.decode():
        raise Refusal(415, "INVALID_REQUEST", "the body of the request must be application/json")


def _uses_tls(request: RequestHeaders) -> bool:
    """Return whether the browser uses TLS, perhaps with a proxy."""
    return request.origin.startswith("https:")


def _cookie_name(exchange: HttpExchange) -> str:
    # The ports of a host share cookies, so each daemon needs a name of its own.
    return f"memoryd-inspector-{exchange.scope['server'][1]}"


def _session_id(exchange: HttpExchange, request: RequestHeaders) -> str:
    """Return the session id in the cookie; empty without one, or if a page of another port has set a second one."""
    name = _cookie_name(exchange)
    cookies = [each.strip().partition("=") for each in request.text(b"cookie").split(";")]
    values = [value for key, _, value in cookies if key == name]
    return values[0] if len(values) == 1 else ""


def _set_cookie(exchange: HttpExchange, request: RequestHeaders, value: str, seconds: int) -> None:
    secure = "; Secure" if _uses_tls(request) else ""
    attributes = f"HttpOnly; SameSite=Strict; Path={FILES_PATH.rstrip('/')}; Max-Age={seconds}{secure}"
    exchange.added_headers.append((b"set-cookie", f"{_cookie_name(exchange)}={value}; {attributes}".encode()))


def _sign_in_required() -> Refusal:
    return Refusal(401, "SIGN_IN_REQUIRED", "the session does not exist or has ended; sign in with a token")


def _read_object(body: bytes) -> dict[str, Any]:
    """Return the object in the body of a request.

    Raises:
        InvalidRequest: the body is not a JSON object.
    """
    try:
        value = parse_json(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest([FieldViolation("request", "the body must be a JSON object")])
    return value


def _read_token(body: bytes) -> bytes:
    """Return the token of a sign-in.

    Raises:
        InvalidRequest: the body has no token.
    """
    token = _read_object(body).get("token")
    if not isinstance(token, str) or not token.strip():
        raise InvalidRequest([FieldViolation("token", "must be the text of a token")])
    return token.strip().encode()


def _refuse_effects(method: str, message: Mapping[str, Any]) -> None:
    """Refuse the fields with which a method would change or start something, or cost more than the page needs.

    Raises:
        InvalidRequest: one of them is set.
    """
    refused = [name for name in _REFUSED_FIELDS.get(method, ()) if message.get(name)]
    if method == "SessionContext":
        refused = [name for name in refused if not _PAGE_SESSION.fullmatch(str(message[name]))]
    if refused:
        raise InvalidRequest([FieldViolation(name, "must not be set by the page of the inspector") for name in refused])


def _json(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
