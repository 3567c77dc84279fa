"""Attacks on the HTTP edge: foreign pages, malformed and slow requests, large bodies, floods, unread responses."""

import asyncio
import contextlib
import dataclasses
import re
import resource
import socket

import pytest

from rpc.callers import new_token
from rpc.http_client import (
    PING,
    McpSession,
    address_of,
    any_agent,
    authorized,
    client,
    http_settings,
    message,
    raw,
    reason_of,
    request_bytes,
    status_of,
)
from waiting import eventually

pytest.importorskip("mcp")
pytestmark = pytest.mark.attacks

LOOPBACK = ("localhost", "127.0.0.1:80", "[::1]:9", "LOCALHOST:1")
FOREIGN = (
    "evil.example",
    "127.0.0.1.evil.example",
    "evil.example:80",
    "localhost.evil",
    "127.0.0.1@evil",
    "0.0.0.0",
    "",
)


def limited(running, **limits):
    """Lower limits of the connections from now on."""
    server = running.daemon.edges.http
    server.limits = dataclasses.replace(server.limits, **limits)
    return server


async def test_a_foreign_host_or_origin_is_refused_on_every_route(serve, home):
    allowed = {"allowedHosts": ["memory.example"], "allowedOrigins": ["https://app.example"]}
    running = await serve(http_settings(**allowed))
    own = running.daemon.edges.http_url.partition("://")[2]
    async with client(running, any_agent(home)) as http:

        async def answer(path="/metrics", **headers):
            return await http.get(path, headers=headers)

        for host in (*LOOPBACK, own, "memory.example", "memory.example:443"):
            assert (await answer(host=host)).status_code == 200, host
        for path in ("/healthz", "/readyz", "/metrics", "/mcp", "/absent"):
            response = await answer(path, host="evil.example")
            assert (response.status_code, reason_of(response)) == (421, "HOST_NOT_ALLOWED")
            response = await answer(path, origin="https://evil.example")
            assert (response.status_code, reason_of(response)) == (403, "ORIGIN_NOT_ALLOWED")
        for host in FOREIGN:
            assert (await answer(host=host)).status_code == 421, host
        for origin in ("null", "", "file://", "https://evil.example", "http://localhost.evil.example", "localhost"):
            assert (await answer(origin=origin)).status_code == 403, origin
        for origin in ("http://localhost:3000", f"http://{own}", "https://[::1]", "https://APP.example"):
            assert (await answer(origin=origin)).status_code == 200, origin
        for scheme in ("http", "https"):
            assert (await answer(host="memory.example", origin=f"{scheme}://memory.example")).status_code == 200
        for host, origin in (("memory.example", "https://memory.example:8443"), (own, "https://memory.example")):
            assert (await answer(host=host, origin=origin)).status_code == 403, origin


async def test_only_pages_of_configured_origins_can_read_responses(serve, home):
    running = await serve(http_settings(allowedOrigins=["https://app.example"]))
    asked = {"access-control-request-method": "POST"}
    async with client(running, any_agent(home)) as http:
        response = await http.get("/metrics", headers={"origin": "https://app.example"})
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        assert response.headers["vary"] == "origin"
        preflight = await http.options("/mcp", headers={"origin": "https://app.example", **asked})
        assert preflight.status_code == 204
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        for origin in ("http://localhost:3000", "https://evil.example"):
            for response in (
                await http.get("/metrics", headers={"origin": origin}),
                await http.options("/mcp", headers={"origin": origin, **asked}),
            ):
                assert not [name for name in response.headers if name.startswith("access-control")]
        assert (await http.options("/mcp", headers={"origin": "http://localhost:3000", **asked})).status_code == 405


BEARER = "Authorization: Bearer x"
MALFORMED = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 600, 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "no host": (request_bytes(host=""), 400),
    "two hosts": (request_bytes(headers=["Host: localhost"]), 400),
    "two tokens": (request_bytes(target="/metrics", headers=[BEARER, BEARER]), 400),
    "two origins": (request_bytes(headers=["Origin: http://localhost", "Origin: http://localhost"]), 400),
    "two agents": (request_bytes(target="/mcp", headers=["Memoryd-Agent: a", "Memoryd-Agent: b"]), 400),
    "two lengths": (request_bytes("POST", "/mcp", headers=["Content-Length: 1", "Content-Length: 2"]), 400),
    "length and chunks": (
        request_bytes("POST", "/mcp", headers=["Content-Length: 3", "Transfer-Encoding: chunked"], body=b"0\r\n\r\n"),
        400,
    ),
    "negative length": (request_bytes("POST", "/mcp", headers=["Content-Length: -1"]), 400),
    "unknown encoding": (request_bytes("POST", "/mcp", headers=["Transfer-Encoding: gzip"]), 400),
    "absolute target": (request_bytes(target="http://127.0.0.1/healthz"), 400),
    "asterisk": (request_bytes("OPTIONS", "*"), 400),
    "authority": (request_bytes("CONNECT", "127.0.0.1:1"), 400),
    "control character": (request_bytes(headers=["X-A: a\x00b"]), 400),
    "bare newline in a name": (request_bytes(headers=["X-A\n: b"]), 400),
    "space before the colon": (request_bytes(headers=["X-A : b"]), 400),
    "long header": (request_bytes(headers=["X-A: " + "a" * 17_000]), 431),
    "many headers": (request_bytes(headers=[f"X-{n}: a" for n in range(120)]), 431),
    "endless header": (b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 300_000, 400),
    "endless target": (b"GET /" + b"a" * 300_000, 400),
    "too many headers to parse": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * 60_000 + b"\r\n", 400),
    "two slashes": (request_bytes(target="//mcp"), 404),
    "dots": (request_bytes(target="/healthz/../metrics"), 404),
    "escaped dot": (request_bytes(target="/%2e/mcp"), 404),
    "escaped letter": (request_bytes(target="/%6dcp"), 404),
    "escaped newline": (request_bytes(target="/healthz%0d%0aX-Injected:1"), 404),
    "semicolon": (request_bytes(target="/mcp;x"), 404),
    "unknown method": (request_bytes("BREW"), 405),
    "lower case": (request_bytes("get"), 405),
}


async def test_malformed_requests_are_refused_and_the_connection_is_closed(serve):
    running = await serve(http_settings())
    wrong = {}
    for name, (data, status) in MALFORMED.items():
        response = await raw(running, data)
        if status_of(response) != status or b"x-content-type-options: nosniff" not in response:
            wrong[name] = response[:200]
        assert b"Injected" not in response
    assert not wrong
    async with client(running) as http:
        assert (await http.get("/healthz", headers={"x-request-id": "a\tb"})).headers["x-request-id"] != "a\tb"
    assert not running.logged("fail-background-task")
    assert not running.logged("fail-request")
    await eventually(lambda: running.daemon.edges.http.connections == 0)


async def test_malformed_bodies_after_valid_headers_are_refused(serve, home):
    running = await serve(http_settings())
    token = any_agent(home)
    headers = [f"Authorization: Bearer {token}", "Content-Type: application/json", "Transfer-Encoding: chunked"]
    for body in (b"zz\r\n", b"-1\r\n", b"f" * 30 + b"\r\n", b"1\r\nab\r\n"):
        response = await raw(running, request_bytes("POST", "/mcp", headers=headers, body=body))
        assert status_of(response) == 400, body
    assert not running.logged("fail-background-task")


@pytest.mark.slow
async def test_slow_requests_are_ended(serve, home):
    running = await serve(http_settings())
    server = limited(running, header_seconds=0.2, body_seconds=0.2, keep_alive_seconds=0.2)
    token = any_agent(home)
    assert status_of(await raw(running, b"")) == 408
    assert status_of(await raw(running, b"GET /healthz HTTP/1.1\r\nX-A: ")) == 408
    head = ["Content-Type: application/json", "Content-Length: 100"]
    late = request_bytes("POST", "/mcp", headers=[*head, f"Authorization: Bearer {token}"], body=b"{")
    assert status_of(await raw(running, late)) == 408
    limited(running, linger_seconds=0.2)
    assert status_of(await raw(running, request_bytes("POST", "/mcp", headers=head, body=b"{"))) == 401
    # A byte now and then does not extend the time.
    host, port = address_of(running)
    reader, writer = await asyncio.open_connection(host, port)
    answer = asyncio.ensure_future(reader.read())
    while not answer.done():
        writer.write(b"a")
        await asyncio.sleep(0.05)
    assert not answer.exception() or isinstance(answer.exception(), ConnectionResetError)
    writer.close()
    await eventually(lambda: server.connections == 0)
    assert not running.logged("fail-background-task")


async def test_large_bodies_are_refused(serve, home):
    running = await serve(http_settings(maxBodyBytes=2_000))
    token = any_agent(home)
    async with client(running, token) as http:
        allowed = await http.post("/mcp", content=message("ping", text="a" * 1_000))
        assert allowed.status_code != 413
        announced = await http.post("/mcp", content=b"a" * 2_001)
        assert (announced.status_code, reason_of(announced)) == (413, "INVALID_REQUEST")

        async def chunks():
            for _ in range(100):
                yield b"a" * 1_000

        assert (await http.post("/mcp", content=chunks())).status_code == 413
    async with client(running) as http:
        # A body without a token is discarded, not stored.
        assert (await http.post("/mcp", content=b"a" * 3_000_000)).status_code == 401
    huge = request_bytes(
        "POST", "/mcp", headers=[f"Authorization: Bearer {token}", f"Content-Length: {10**15}"], body=b"{"
    )
    limited(running, linger_seconds=0.05)
    assert status_of(await raw(running, huge)) == 413


async def test_the_bodies_of_all_requests_are_bounded(serve, home):
    running = await serve(http_settings())
    server = running.daemon.edges.http
    server.body_budget.most_bytes = 2_000
    token = any_agent(home)
    headers = [f"Authorization: Bearer {token}", "Content-Type: application/json", "Content-Length: 1900"]
    host, port = address_of(running)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request_bytes("POST", "/mcp", headers=headers, body=b"a" * 1_500))
    await eventually(lambda: server.body_budget.used == 1_500)
    async with client(running, token) as http:
        response = await http.post("/mcp", content=b"a" * 1_000)
        assert (response.status_code, reason_of(response)) == (503, "TOO_MANY_REQUESTS")
        assert int(response.headers["retry-after"]) > 0
        writer.close()
        await eventually(lambda: server.body_budget.used == 0)
        assert (await http.post("/mcp", content=message("ping", text="a" * 1_000))).status_code != 503
    del reader


async def test_connections_are_bounded(serve, home):
    running = await serve(http_settings({"maxConnections": 5}))
    server = running.daemon.edges.http
    host, port = address_of(running)
    opened = [await asyncio.open_connection(host, port) for _ in range(20)]
    await eventually(lambda: server.connections == 5)
    ends = await asyncio.gather(*(asyncio.wait_for(reader.read(1), 20) for reader, _ in opened[5:]))
    assert ends == [b""] * 15
    for _, writer in opened:
        writer.close()
    await eventually(lambda: server.connections == 0)
    async with client(running) as http:
        assert (await http.get("/healthz")).status_code == 200


async def test_pipelined_requests_are_answered_in_order(serve):
    running = await serve(http_settings())
    data = b"".join(request_bytes(target=path) for path in ["/healthz", "/readyz"] * 3 + ["/absent", "/healthz"])
    response = await raw(running, data)
    assert re.findall(rb"HTTP/1.1 (\d+) ", response) == [*[b"200"] * 6, b"404"]


async def test_a_client_that_does_not_read_is_cut(serve, home):
    running = await serve(http_settings({"replySeconds": 0.5}))
    server = running.daemon.edges.http
    host, port = address_of(running)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect((host, port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1)
    writer.transport.pause_reading()
    one = request_bytes(target="/metrics", headers=[f"Authorization: Bearer {any_agent(home)}"])
    writer.write(one * 1_000)
    await eventually(lambda: running.logged("cancel-unread-reply"), seconds=60)
    await eventually(lambda: server.connections == 0 and server.requests == 0)
    assert running.gate.admission.reply_bytes == 0
    writer.close()
    del reader


@pytest.mark.slow
async def test_floods_do_not_grow_memory(serve, home):
    running = await serve(http_settings())
    host, port = address_of(running)

    async def flood(data):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(data)
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 60)
        writer.close()

    async def rounds(count):
        for _ in range(count):
            await asyncio.gather(*(flood(data) for data, _ in MALFORMED.values()))

    await rounds(10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await rounds(40)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 20_000
    await eventually(lambda: running.daemon.edges.http.connections == 0)


async def test_the_requests_of_a_token_are_limited(serve, home):
    running = await serve(http_settings({"tokenConcurrentStreams": 2}))
    server = running.daemon.edges.http
    token_id, token = new_token(home)
    other = any_agent(home)
    host, port = address_of(running)
    headers = [f"Authorization: Bearer {token}", "Content-Type: application/json", "Content-Length: 10"]
    opened = [await asyncio.open_connection(host, port) for _ in range(2)]
    for _, writer in opened:
        writer.write(request_bytes("POST", "/mcp", headers=headers))
    await eventually(lambda: server.requests == 2)
    async with client(running, token) as http:
        response = await http.post("/mcp", json=PING)
        assert (response.status_code, reason_of(response)) == (429, "TOO_MANY_REQUESTS")
        assert int(response.headers["retry-after"]) > 0
        assert (await http.post("/mcp", json=PING, headers=authorized(other))).status_code != 429
        (line,) = running.logged("refuse-request")
        assert (line["code"], line["token_id"]) == (429, token_id)
        for _, writer in opened:
            writer.close()
        await eventually(lambda: server.requests == 0)
        assert (await http.post("/mcp", json=PING)).status_code != 429


BODIES = (
    b"", b"{", b"null", b"1", b"[]", b"\xff\xfe{}", b"[" * 200_000, b'{"a":' * 200_000, b'{"jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}', b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b'{"jsonrpc":"2.0","id":1,"method":"' + b"a" * 100_000 + b'"}',
    b"[" + b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 10_000) + b"]",
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', b'{"jsonrpc":"2.0","id":{},"method":1,"params":"x"}',
)  # fmt: skip


async def test_hostile_json_causes_no_error_of_the_server(serve, home):
    running = await serve(http_settings())
    async with client(running, any_agent(home)) as http:
        opened = McpSession(http)
        await opened.open()
        for headers in (opened.headers, {}, {"mcp-protocol-version": "2026-07-28"}, {"mcp-protocol-version": "x" * 99}):
            for body in BODIES:
                response = await http.post("/mcp", content=body, headers=headers)
                assert response.status_code < 500, (headers, body[:60], response.text[:200])
        assert (await opened.request("ping"))[1]["result"] == {}
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            response = await http.post("/mcp", json=PING, headers={**opened.headers, "content-type": kind})
            assert 400 <= response.status_code < 500, kind
    assert not running.logged("fail-request")
    assert not running.logged("fail-background-task")
