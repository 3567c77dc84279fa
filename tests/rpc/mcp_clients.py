"""MCP clients in the process of the daemon: the official client on message streams, and raw JSON-RPC."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.shared.message import SessionMessage

from memoryd_server.http import McpServer, SessionOwner
from memoryd_server.observe import NoMeter
from memoryd_server.observe.log import make_log
from memoryd_server.rpc import LocalCaller, LocalCalls

OWNER = SessionOwner(LocalCaller(None))
MODES = ("legacy", "2026-07-28")


def owner_with(token, agent_id=""):
    return SessionOwner(LocalCaller(token.encode()), agent_id)


def local_calls(running, meter=None):
    log = make_log("debug", "json", running.log)
    return LocalCalls(running.daemon.service, running.gate, log, meter or NoMeter())


@asynccontextmanager
async def mcp_server(running, meter=None, **options):
    """An MCP server for a daemon; it logs where the daemon logs."""
    server = McpServer(local_calls(running, meter), make_log("debug", "json", running.log), **options)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def served(server, owner=OWNER):
    """Two functions: one sends bytes to a session, the other returns the next bytes of the session."""
    to_server, from_client = anyio.create_memory_object_stream(0)
    to_client, from_server = anyio.create_memory_object_stream(0)
    session = asyncio.ensure_future(server.serve_stream(from_client, to_client.send, owner))
    try:
        yield to_server.send, from_server.receive
    finally:
        to_server.close()
        # Whatever the session still writes is read, as by a client that has closed its side only.
        reader = asyncio.ensure_future(_read_all(from_server))
        await asyncio.wait_for(session, 30)
        reader.cancel()
        for stream in (from_client, to_client, from_server):
            stream.close()


async def _read_all(stream):
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
        while True:
            await stream.receive()


@asynccontextmanager
async def transport(server, owner=OWNER):
    """A transport of the official client, which converts its messages to bytes and back."""
    async with served(server, owner) as (send, receive):
        incoming, received = anyio.create_memory_object_stream(0)
        outgoing, sent = anyio.create_memory_object_stream(0)

        async def read():
            with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                while True:
                    data = await receive()
                    message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
                    await incoming.send(SessionMessage(message))

        async def write():
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for each in sent:
                    await send(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield received, outgoing
            finally:
                group.cancel_scope.cancel()
                for stream in (incoming, received, outgoing, sent):
                    stream.close()


@asynccontextmanager
async def client(server, owner=OWNER, *, mode="legacy", **options):
    """The official client, connected to the server."""
    async with Client(transport(server, owner), mode=mode, read_timeout_seconds=60, cache=None, **options) as connected:
        yield connected


class RawClient:
    """JSON-RPC as it is on the wire."""

    def __init__(self, send, receive):
        self.send_bytes = send
        self.receive_bytes = receive
        self._next = 0

    async def send(self, message):
        await self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def receive(self):
        async with asyncio.timeout(60):
            return json.loads(await self.receive_bytes())

    async def request(self, method, params=None):
        """The response to a request; notifications before it are dropped."""
        self._next += 1
        await self.send({"id": self._next, "method": method, "params": params or {}})
        while True:
            message = await self.receive()
            if message.get("id") == self._next:
                return message

    async def initialize(self, version="2025-11-25"):
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        response = await self.request("initialize", params)
        await self.send({"method": "notifications/initialized"})
        return response["result"]

    async def call(self, tool, /, **arguments):
        return await self.request("tools/call", {"name": tool, "arguments": arguments})


@asynccontextmanager
async def raw_client(server, owner=OWNER):
    async with served(server, owner) as (send, receive):
        yield RawClient(send, receive)
