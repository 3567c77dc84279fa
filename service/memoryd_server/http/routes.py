"""Routes of the HTTP edge, and the router, which finds the route of a request and answers preflight requests."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from memoryd_server.http.exchange import INSPECTOR_PREFIX, HttpExchange
from memoryd_server.http.refusals import Refusal
from memoryd_server.http.request_headers import AllowedSources, RequestHeaders

_ALLOWED_HEADERS = b"authorization, content-type, last-event-id, mcp-protocol-version, mcp-session-id, memoryd-agent"

Handler = Callable[[HttpExchange, RequestHeaders], Awaitable[None]]
BodyHandler = Callable[[HttpExchange, RequestHeaders, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """The handler and the methods of a path. `name` identifies the route in the log and the metrics.

    `is_public` is whether web pages of the configured origins can read the responses.
    """

    name: str
    methods: tuple[str, ...]
    serve: Handler
    is_public: bool = True


class Router:
    """The routes by their exact paths."""

    def __init__(self, routes: Mapping[str, Route], sources: AllowedSources) -> None:
        self._routes = routes
        self._sources = sources

    async def serve(self, exchange: HttpExchange, request: RequestHeaders) -> None:
        """Serve a request.

        Raises:
            Refusal, MemorydError: it is refused.
        """
        path = request.target.decode("ascii", "replace")
        route = self._routes.get(path)
        if route is None:
            known = [path for path in self._routes if not path.encode().startswith(INSPECTOR_PREFIX)]
            raise Refusal(404, "NOT_FOUND", f"memoryd has no such path; it has {', '.join(known)}")
        exchange.route = route.name
        methods = ", ".join(route.methods)
        if route.is_public and request.origin in self._sources.configured_origins:
            _allow_reading(exchange, request)
            if request.method == "OPTIONS" and b"access-control-request-method" in request.headers:
                await _answer_preflight(exchange, methods)
                return
        if request.method not in route.methods:
            allow = ((b"allow", methods.encode()),)
            raise Refusal(405, "METHOD_NOT_ALLOWED", f"{path} allows {methods}", headers=allow)
        await route.serve(exchange, request)


def _allow_reading(exchange: HttpExchange, request: RequestHeaders) -> None:
    """Let the web page that sends the request read the response."""
    exchange.added_headers += [
        (b"access-control-allow-origin", request.text(b"origin").encode("latin-1")),
        (b"access-control-expose-headers", b"mcp-session-id, x-request-id"),
        (b"vary", b"origin"),
    ]


async def _answer_preflight(exchange: HttpExchange, methods: str) -> None:
    exchange.added_headers += [
        (b"access-control-allow-methods", methods.encode()),
        (b"access-control-allow-headers", _ALLOWED_HEADERS),
    ]
    await exchange.respond(204)
