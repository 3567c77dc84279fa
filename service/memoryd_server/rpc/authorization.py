"""Who may call: the token of a call, the agents and methods that it allows, the stop of the daemon, log and metrics.

`Authorizer` admits calls and `RunningCalls` counts them until the daemon has stopped. `CallRecorder` does both for one
call, whichever edge it came by, and reports its end.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health

from memoryd_server.access import ALL_AGENTS_GRANT, CallLimits, Credentials, Grant, RateLimiter, confine
from memoryd_server.errors import (
    AgentNotFound,
    MemorydError,
    ScopeMissing,
    ShuttingDown,
    TokenInvalid,
    TokenMissing,
)
from memoryd_server.observe import Meter
from memoryd_server.rpc.errors import code_of, release_after_call
from memoryd_server.rpc.method_scopes import METHOD_SCOPES
from memoryd_server.rpc.requests import name_agent
from memoryd_server.rpc.wire import Context

# After the grace of a stop, calls get this time to send their errors; after the last of them, refusals in progress do.
_LAST_REPLIES_SECONDS = 0.2
_LAST_REFUSALS_SECONDS = 0.2


class RunningCalls:
    """The calls in progress, until their replies are sent. Belongs to the event loop's thread.

    gRPC's own stop would end calls with CANCELLED, without a reason: those that arrive while it stops, and those that
    still run. A stop therefore refuses calls and lets gRPC serve until the last one has ended. `closing` is set when a
    stop begins.
    """

    def __init__(self) -> None:
        self._admitted = self._all = 0
        self._changed = asyncio.Event()
        # The handlers that end when a stop begins, and those that get its grace.
        self._waiting: set[asyncio.Timeout] = set()
        self._working: set[asyncio.Timeout] = set()
        self.closing = asyncio.Event()
        self._ended = False

    @contextmanager
    def arrived(self) -> Iterator[None]:
        """Count a call that may be refused."""
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._wake()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count an admitted call."""
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1
            self._wake()

    def _wake(self) -> None:
        self._changed.set()

    @asynccontextmanager
    async def handled(self, *, waits: bool = False) -> AsyncIterator[None]:
        """Run a handler, which ends when the grace of a stop ends or, if it `waits` for its client, when a stop begins.

        Raises:
            ShuttingDown: it was ended.
        """
        limits, is_over = (self._waiting, self.closing.is_set()) if waits else (self._working, self._ended)
        try:
            async with asyncio.timeout(0 if is_over else None) as limit:
                limits.add(limit)
                try:
                    yield
                finally:
                    limits.discard(limit)
        except TimeoutError:
            if limit.expired():
                raise shutting_down() from None
            raise

    def close(self) -> None:
        """End the handlers that wait for their clients."""
        self.closing.set()
        _end(self._waiting)

    async def finish(self, grace_seconds: float) -> None:
        """Wait for the admitted calls for the grace, then end the others with `ShuttingDown`."""
        if not await self._wait(lambda: not self._admitted, grace_seconds):
            self._ended = True
            _end(self._working)
            await self._wait(lambda: not self._admitted, _LAST_REPLIES_SECONDS)
        await self._wait(lambda: not self._all, _LAST_REFUSALS_SECONDS)

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()


def _end(limits: Iterable[asyncio.Timeout]) -> None:
    for limit in limits:
        if not limit.expired():  # A handler that is ending already has no limit to change.
            limit.reschedule(asyncio.get_running_loop().time())


# The longest time that a stream without messages stays open after its token was revoked.
RECHECK_SECONDS = 2.0


class Authorizer:
    """Decides which calls are admitted. Tokens are required on TCP only; a caller on the Unix socket is the owner.

    `admission` limits how many calls run, and how often.
    """

    def __init__(self, access: Credentials, limits: CallLimits) -> None:
        self._access = access
        self.admission = RateLimiter(limits)
        self.running = RunningCalls()
        self.recheck_seconds = RECHECK_SECONDS
        self._stopping = False

    def close(self) -> None:
        """Admit no further calls, except those about the daemon's health."""
        self._stopping = True
        self.running.close()

    async def admit(self, context: Context, *, about_health: bool) -> Grant:
        """Admit a call and return what its caller may use. Calls about health are admitted while the daemon stops.

        Raises:
            ShuttingDown, TokenMissing, TokenInvalid: the call is refused.
        """
        if self._stopping and not about_health:
            raise shutting_down()
        return await self.identify(context)

    async def identify(self, context: Context) -> Grant:
        """Return what the caller may use now, by the current token files.

        Raises:
            TokenMissing, TokenInvalid: the call has no valid token.
        """
        if not requires_token(context):
            return ALL_AGENTS_GRANT
        token = _presented(context)
        await self._access.refresh_tokens()
        return self._granted(token)

    async def readmit(self, method: str, context: Context) -> None:
        """Check the caller of a stream again, by the current token files.

        Raises:
            TokenMissing, TokenInvalid: the call has no valid token any more.
            ScopeMissing: the token has lost the scope that the method requires.
        """
        require_scope(method, await self.identify(context))

    def grant_of(self, context: Context) -> Grant:
        """Return what the caller may use, by the tokens as they were last read.

        Raises:
            TokenMissing, TokenInvalid: the call has no token, or one that is not valid.
        """
        return self._granted(_presented(context)) if requires_token(context) else ALL_AGENTS_GRANT

    def _granted(self, token: bytes) -> Grant:
        grant = self._access.grant(token)
        if grant is None:
            raise _invalid_token()
        return grant


def _presented(context: Context) -> bytes:
    """Return the bearer token of a call.

    Raises:
        TokenMissing, TokenInvalid: there is none, or the authorization has another scheme.
    """
    authorization = dict(context.invocation_metadata() or ()).get("authorization")
    if not authorization:
        raise TokenMissing('this listener requires a token; send the metadata "authorization: Bearer <token>"')
    header = authorization.encode() if isinstance(authorization, str) else authorization
    scheme, _, token = header.partition(b" ")
    if scheme.lower() != b"bearer":
        raise _invalid_token()
    return token.strip()


def _invalid_token() -> TokenInvalid:
    return TokenInvalid("the bearer token is unknown to this daemon, revoked or expired")


def requires_token(context: Context) -> bool:
    """Return whether the call came through a listener that requires tokens."""
    return not context.peer().startswith("unix:")


def shutting_down() -> ShuttingDown:
    """Return the error of calls that arrive, or are still open, while the daemon stops."""
    return ShuttingDown("the daemon is stopping; try again after its restart", retry_after_seconds=5.0)


class CallRecorder:
    """Admits each call, and reports its end to the log and to the metrics."""

    def __init__(self, gate: Authorizer, log: structlog.typing.FilteringBoundLogger, meter: Meter) -> None:
        self._gate = gate
        self._log = log
        self._meter = meter

    @asynccontextmanager
    async def recorded(self, method: str, context: Context, request_id: str) -> AsyncIterator[Grant]:
        """Admit a call of `method` and yield what its caller may use. The block handles the call.

        Raises:
            MemorydError: the call was refused or failed; the error as its caller may see it.
        """
        call = {"method": method, "request_id": request_id}
        began = time.monotonic()
        grant = ALL_AGENTS_GRANT
        code = grpc.StatusCode.UNKNOWN.name
        try:
            grant = await self._gate.admit(context, about_health=is_about_health(method))
            require_scope(method, grant)
            yield grant
        except MemorydError as error:
            code = code_of(error).name
            self._log.info("refuse-call", **call, **_caller(grant), code=code, reason=error.reason)
            raise _visible_to(grant, error) from None
        except grpc.aio.AbortError as aborted:
            # Of a library's service, such as the health service. The services of memoryd raise a MemorydError.
            code = context.code().name
            release_after_call(aborted)
            raise
        except (asyncio.CancelledError, GeneratorExit, grpc.aio.InternalError):
            # InternalError: gRPC could not send the status of a library's service, because the client is gone.
            code = grpc.StatusCode.CANCELLED.name
            raise
        except Exception:  # noqa: BLE001 -- the edge: a bug becomes a status and a log line
            code = grpc.StatusCode.INTERNAL.name
            self._log.exception("fail-call", **call, **_caller(grant))
            message = f"internal error of memoryd; its log has the details under request id {request_id}"
            raise MemorydError(message, metadata={"request_id": request_id}) from None
        else:
            code = grpc.StatusCode.OK.name
            elapsed_ms = round((time.monotonic() - began) * 1000, 2)
            self._log.debug("serve-call", **call, **_caller(grant), elapsed_ms=elapsed_ms)
        finally:
            self._meter.call_ended(method.removeprefix("/"), code, time.monotonic() - began)


def require_scope(method: str, grant: Grant) -> None:
    """Refuse a call of a method, `/package.Service/Method`, that the caller's scopes do not allow.

    Raises:
        ScopeMissing: the caller does not have the scope.
    """
    scope = METHOD_SCOPES[method]
    if not grant.may(scope):
        raise ScopeMissing(method.rpartition(".")[2].replace("/", "."), scope.value)


def address_request(request: Any, grant: Grant) -> None:
    """Set the agent of a request that names none, and refuse one that its caller may not use.

    Raises:
        AgentForbidden: the caller may not use the agent.
    """
    name_agent(request)
    confine(request, grant)


_MOST_REQUEST_ID_CHARS = 128


def fit_request_id(given: object) -> str:
    """Return the caller's request id if it is fit for a log line, else a new one."""
    if isinstance(given, str) and given.isascii() and given.isprintable() and 0 < len(given) <= _MOST_REQUEST_ID_CHARS:
        return given
    return uuid.uuid4().hex


def is_about_health(method: str) -> bool:
    """Return whether a method asks for the health, which it gets while the daemon stops or is merely busy."""
    return method.startswith(f"/{health.SERVICE_NAME}/")


def _caller(grant: Grant) -> dict[str, str]:
    return {"token_id": grant.token_id} if grant.token_id else {}


def _visible_to(grant: Grant, error: MemorydError) -> MemorydError:
    """Return the error as its caller may see it: a limited token does not show which agents are configured."""
    if grant.limited and isinstance(error, AgentNotFound):
        return AgentNotFound("this token allows an agent that is not configured")
    return error
