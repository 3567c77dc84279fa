"""Requests to the HTTP edge of a daemon in the test's process: by httpx, and by raw sockets for malformed ones."""

import asyncio
import json
import ssl

import httpx

from rpc.callers import new_token

HTTP = {"memoryd": {"http": {"listen": "127.0.0.1:0"}}}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def http_settings(limits=None, **http):
    return {"memoryd": {"http": {"listen": "127.0.0.1:0", **http}, "limits": limits or {}}}


def authorized(token):
    return {"authorization": f"Bearer {token}"}


def address_of(running):
    """The host and the port of the HTTP server."""
    host, _, port = running.daemon.edges.http_url.partition("://")[2].rpartition(":")
    return host, int(port)


def client(running, token=None, **options):
    headers = {**JSON, **(authorized(token) if token else {})}
    return httpx.AsyncClient(
        base_url=running.daemon.edges.http_url, headers=headers, trust_env=False, timeout=30, **options
    )


def any_agent(home):
    return new_token(home)[1]


async def raw(running, data, *, until_closed=True, seconds=20, context=None):
    """Send bytes, and return everything that the server sends until it closes the connection."""
    host, port = address_of(running)
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(seconds):
            return await (reader.read() if until_closed else reader.readuntil(b"\r\n\r\n"))
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def status_of(response):
    """The status of a raw response; 0 if there is none."""
    return int(response.split(b" ", 2)[1]) if response.startswith(b"HTTP/1.1 ") else 0


def request_bytes(method="GET", target="/healthz", *, headers=(), body=b"", host="127.0.0.1"):
    lines = [f"{method} {target} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def reason_of(response):
    return response.json()["error"]["data"]["reason"]


def tls_client(certificate_authority):
    context = ssl.create_default_context(cafile=certificate_authority)
    context.check_hostname = False
    return context


def message(method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


VERSION = "2025-06-18"


class McpSession:
    """A session of MCP as it is on the wire, by an httpx client that has the token."""

    def __init__(self, http, **headers):
        self.http = http
        self.headers = headers
        self._next = 0

    async def open(self):
        """Begin the session, and return the response."""
        about = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        response = await self._post("initialize", about)
        if response.status_code == 200:
            self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
            self.headers["mcp-protocol-version"] = VERSION
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await self.http.post("/mcp", json=note, headers=self.headers)).status_code == 202
        return response

    async def _post(self, method, params):
        self._next += 1
        body = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        return await self.http.post("/mcp", json=body, headers=self.headers)

    async def request(self, method, **params):
        """The HTTP status and the JSON-RPC response; the last message if the response is a stream of events."""
        response = await self._post(method, params)
        lines = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
        text = lines[-1] if lines else response.text
        return response.status_code, json.loads(text) if text else {}

    async def tool(self, name, **arguments):
        """The result of a tool."""
        status, response = await self.request("tools/call", name=name, arguments=arguments)
        assert status == 200, response
        return response["result"]
