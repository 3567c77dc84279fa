"""McpService: MCP sessions of `memoryd mcp` over gRPC, with the tokens and limits of any other stream.

A session passes JSON-RPC messages to an MCP server and back. Both directions are bounded: the server gets the next
message when it asks for one, and waits while the client does not read. Requests in progress are counted, so that their
number and size are limited, and so that a stop of the daemon lets them finish.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from memoryd.v1 import mcp_service_pb2 as pb
from memoryd.v1.mcp_service_pb2_grpc import McpServiceServicer, add_McpServiceServicer_to_server
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.json_rpc import MalformedMessage, RpcMessage, failed_response, read_message
from memoryd_server.rpc.authorization import Authorizer, address_request, shutting_down
from memoryd_server.rpc.health import ExtensionService
from memoryd_server.rpc.local_calls import LocalCaller
from memoryd_server.rpc.wire import Context

MCP_SERVICE = "memoryd.v1.McpService"

MOST_REQUESTS = 128
"""The maximum number of requests of one session that are in progress."""

MOST_REQUEST_BYTES = 8 * 2**20
"""The maximum size of the requests of one session that are in progress."""

MOST_REQUEST_BYTES_OF_ALL = 64 * 2**20
"""The same for all sessions."""

_QUEUED_RESPONSES = 8
# Its response comes at the end of a subscription, so a stop does not wait for it.
_SUBSCRIPTION = "subscriptions/listen"

McpWrite = Callable[[bytes], Awaitable[None]]
ServeSession = Callable[[AsyncIterator[bytes], McpWrite, LocalCaller, str], Awaitable[None]]
"""Serves a session until the messages end: the messages, a function that sends one, the caller and the agent ID."""


class RequestBudget:
    """The bytes of the requests in progress of all sessions."""

    def __init__(self, most_bytes: int = MOST_REQUEST_BYTES_OF_ALL) -> None:
        self.most_bytes = most_bytes
        self.used = 0


class McpSession:
    """The messages of one session. On the event loop's thread alone."""

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget
        self._requests: dict[str, int] = {}
        self._subscriptions: dict[str, int] = {}
        self._responses: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED_RESPONSES)
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def incoming(
        self, first: pb.SessionRequest, others: AsyncIterator[pb.SessionRequest]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the messages of the client that the server handles; answer the others."""
        if (text := await self._accepted(first)) is not None:
            yield text
        async for request in others:
            if (text := await self._accepted(request)) is not None:
                yield text

    async def _accepted(self, request: pb.SessionRequest) -> bytes | None:
        text = request.message.encode()
        if not text:
            return None
        try:
            message = read_message(text)
        except MalformedMessage as malformed:
            await self._responses.put(malformed.response)
            return None
        refusal = self._count(message, len(text))
        if not refusal:
            return text
        await self._responses.put(failed_response(message.method, message.request_id, refusal))
        return None

    def _count(self, message: RpcMessage, size: int) -> str:
        """Count a request; return why it is refused, or an empty text."""
        if message.cancelled_key:
            # A cancelled request gets no response.
            self._finish(message.cancelled_key)
        if not message.is_request:
            return ""
        key = _server_key(message.key)
        if key in self._requests or key in self._subscriptions:
            return "a request with this id is in progress; use another id"
        in_progress = len(self._requests) + len(self._subscriptions)
        if in_progress >= MOST_REQUESTS:
            return f"{in_progress} requests of this session are in progress; wait for their responses"
        used = sum(self._requests.values()) + sum(self._subscriptions.values())
        if used and (used + size > MOST_REQUEST_BYTES or self._budget.used + size > self._budget.most_bytes):
            return "the requests in progress are too large together; wait for their responses"
        counted = self._subscriptions if message.method == _SUBSCRIPTION else self._requests
        counted[key] = size
        self._budget.used += size
        if self._requests:
            self._is_idle.clear()
        return ""

    def _finish(self, id_key: str) -> None:
        key = _server_key(id_key)
        self._budget.used -= self._requests.pop(key, 0) + self._subscriptions.pop(key, 0)
        if not self._requests:
            self._is_idle.set()

    async def write(self, text: bytes) -> None:
        """Send a message to the client; wait while it does not read. A message that is too long becomes an error."""
        try:
            message = read_message(text)
        except MalformedMessage as malformed:
            text = malformed.response
            message = read_message(text)
        await self._responses.put(text)
        if message.is_response:
            self._finish(message.key)

    async def next_response(self) -> bytes | None:
        """Return the next message for the client; None at the end of the session."""
        return await self._responses.get()

    async def end(self) -> None:
        """End the session when the client has read the messages written so far."""
        await self._responses.put(None)

    async def drained(self) -> None:
        """Wait until no request is in progress. A subscription does not count."""
        await self._is_idle.wait()

    def close(self) -> None:
        """Stop counting the requests, which have ended with the session."""
        for key in (*self._requests, *self._subscriptions):
            self._finish(key)


def _server_key(id_key: str) -> str:
    """Return a key that is equal for ids that the MCP server does not distinguish, such as 7 and "7"."""
    try:
        return str(int(json.loads(id_key)))
    except ValueError:
        return id_key


class McpService(McpServiceServicer):
    """The servicer. `load` returns the function that serves a session; it may import modules on a thread."""

    def __init__(
        self, gate: Authorizer, load: Callable[[], Awaitable[ServeSession]], failures: TaskFailures | None = None
    ) -> None:
        self._gate = gate
        self._load = load
        self._budget = RequestBudget()
        self._tasks = BackgroundTasks(failures)

    async def Session(
        self, requests: AsyncIterator[pb.SessionRequest], context: Context
    ) -> AsyncGenerator[pb.SessionResponse, None]:
        """Serve a session until its client closes it.

        Raises:
            InvalidRequest: the client sent no message.
            AgentForbidden: the caller may not use the agent.
            NotImplementedYet: the packages of MCP are not installed.
            ShuttingDown: the daemon stops.
        """
        # A client that sends before its call is admitted may get an error of gRPC instead of the refusal.
        yield pb.SessionResponse()
        async with self._gate.running.handled(waits=True):
            first = await anext(requests, None)
        if first is None:
            raise InvalidRequest([FieldViolation("request", "the session ended without a message; send one")])
        address_request(first, self._gate.grant_of(context))
        serve = await self._load()
        session = McpSession(self._budget)
        yield pb.SessionResponse()
        failed: list[Exception] = []
        caller = LocalCaller.of(context)

        async def serve_messages() -> None:
            try:
                async with aclosing(session.incoming(first, requests)) as messages:
                    await serve(messages, session.write, caller, first.agent_id)
            except Exception as error:  # noqa: BLE001 -- the caller of the session gets it
                failed.append(error)
            await session.end()

        tasks = (
            self._tasks.spawn("MCP session", serve_messages()),
            self._tasks.spawn("end of an MCP session", self._end_at_stop(session)),
        )
        try:
            while (text := await session.next_response()) is not None:
                yield pb.SessionResponse(message=text.decode())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            session.close()
        if failed:
            raise failed[0]
        if self._gate.running.closing.is_set():
            raise shutting_down()

    async def _end_at_stop(self, session: McpSession) -> None:
        """End a session when the daemon stops and the requests in progress have their responses."""
        await self._gate.running.closing.wait()
        await session.drained()
        await session.end()


def make_mcp_service(
    gate: Authorizer, load: Callable[[], Awaitable[ServeSession]], failures: TaskFailures | None = None
) -> ExtensionService:
    """Return the McpService, which has no health of its own."""
    return ExtensionService(MCP_SERVICE, McpService(gate, load, failures), add_McpServiceServicer_to_server)
