"""Where the HTTP edge listens: refused addresses, TLS, the end of the daemon, and what is imported."""

import asyncio
import contextlib
import importlib
import json
import socket
import ssl
import subprocess
import sys
import threading

import httpx
import pytest

from certificates import Authority, needs_openssl
from memoryd_server.access import parse_address
from memoryd_server.access.certificates import CertificateFiles, Certificates
from memoryd_server.app import require_http_extra
from memoryd_server.app.daemon import QUICK_THREADS
from memoryd_server.background_tasks import TaskFailures
from memoryd_server.cli.local_daemon import local_daemon
from memoryd_server.errors import SettingsError
from memoryd_server.observe.log import make_log
from rpc.http_client import (
    HTTP,
    PING,
    McpSession,
    any_agent,
    authorized,
    client,
    http_settings,
    reason_of,
    request_bytes,
)
from rpc.wire import Home, quiet
from waiting import eventually

pytest.importorskip("mcp")

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


async def test_an_address_beyond_loopback_needs_tls(serve):
    for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0", "memory.example:0"):
        with pytest.raises(SettingsError, match=r"refusing to listen at .*memoryd\.tls\.certFile"):
            await serve({"memoryd": {"http": {"listen": listen}}})


async def test_an_address_that_is_taken_is_reported_and_nothing_listens(serve, home, tmp_path):
    running = await serve(http_settings())
    taken = running.daemon.edges.http_url.partition("://")[2]
    other = Home(tmp_path / "other")
    with pytest.raises(SettingsError, match=rf"cannot serve HTTP at {taken}: the port is taken"):
        await serve({"memoryd": {"http": {"listen": taken}}}, at=other)
    assert not other.socket.exists()
    assert await serve(HTTP, at=other)


async def test_small_responses_are_not_delayed():
    listener_module = importlib.import_module("memoryd_server.http.listener")
    made = asyncio.Queue()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport):
            made.put_nowait(transport)

    async def without_tls():
        return None

    listener = listener_module.HttpListener(
        parse_address("127.0.0.1:0"),
        lambda _: Accepted(),
        without_tls,
        max_connections=1,
        handshake_seconds=1,
        failures=TaskFailures(),
    )
    await listener.bind()
    listener.start()
    host, port = listener.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    transport = await asyncio.wait_for(made.get(), 20)
    assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    writer.close()
    transport.close()
    await listener.stop()


def test_a_missing_package_is_reported_with_the_command_that_installs_it():
    with pytest.raises(SettingsError, match=r"absent_package cannot be imported; .*pip install 'memoryd\[http\]'"):
        require_http_extra(("uvicorn", "absent_package"))


def test_a_command_without_a_daemon_does_not_serve_http(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = home.settings(http_settings(listen=f"127.0.0.1:{taken.getsockname()[1]}"))
        with local_daemon(settings, background=False) as (_, address):
            assert address.startswith("unix:")


async def test_the_token_of_the_state_directory_is_created_for_http_alone(serve, home):
    running = await serve(http_settings())
    token = (home.state_dir / "memoryd.token").read_text().strip()
    async with client(running, token) as http:
        assert (await http.get("/metrics")).status_code == 200


async def test_a_change_of_http_takes_effect_at_the_next_restart(serve, home):
    running = await serve(http_settings())
    url = running.daemon.edges.http_url
    report = await running.daemon.reload(
        lambda: home.settings(quiet(http_settings(maxBodyBytes=4096, inspector=False)))
    )
    assert report.awaiting_restart == ("memoryd.http.maxBodyBytes", "memoryd.http.inspector")
    assert running.daemon.edges.http_url == url


@needs_openssl
async def test_tls_is_used_and_follows_its_files(serve, home):
    authority = Authority(home.root)
    certificate, key = authority.issue("first")
    tls = {"certFile": str(certificate), "keyFile": str(key)}
    settings = http_settings(listen="0.0.0.0:0")
    settings["memoryd"]["tls"] = tls
    running = await serve(settings)
    port = int(running.daemon.edges.http_url.rpartition(":")[2])
    assert running.daemon.edges.http_url.startswith("https://")
    trusted = ssl.create_default_context(cafile=authority.ca)
    async with httpx.AsyncClient(verify=trusted, trust_env=False, base_url=f"https://localhost:{port}") as http:
        assert (await http.get("/healthz")).status_code == 200
        authorized = {"authorization": f"Bearer {any_agent(home)}"}
        assert (await http.get("/metrics", headers=authorized)).status_code == 200

    def shown():
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=20)

    assert await asyncio.to_thread(shown) == certificate.read_text()
    second, second_key = authority.issue("second")
    second_key.replace(key)
    second.replace(certificate)
    assert await asyncio.to_thread(shown) == certificate.read_text()
    served = Certificates(CertificateFiles(certificate, key), make_log("error", "json")).context()
    assert served.minimum_version is ssl.TLSVersion.TLSv1_2
    # Plain HTTP at the port of TLS, and a handshake that does not continue.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes())
    assert not (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP")
    writer.close()
    await eventually(lambda: running.daemon.edges.http.connections == 0)
    assert not running.logged("fail-background-task")


@needs_openssl
async def test_a_client_certificate_is_required_if_its_authority_is_configured(serve, home):
    authority, clients = Authority(home.root), Authority(home.root, "clients")
    certificate, key = authority.issue("server")
    settings = http_settings()
    settings["memoryd"]["tls"] = {"certFile": str(certificate), "keyFile": str(key), "clientCaFile": str(clients.ca)}
    running = await serve(settings)
    url = running.daemon.edges.http_url.replace("127.0.0.1", "localhost")
    trusted = ssl.create_default_context(cafile=authority.ca)
    async with httpx.AsyncClient(verify=trusted, trust_env=False) as http:
        with pytest.raises(httpx.HTTPError):
            await http.get(f"{url}/healthz")
    trusted.load_cert_chain(*clients.issue("client"))
    async with httpx.AsyncClient(verify=trusted, trust_env=False) as http:
        assert (await http.get(f"{url}/healthz")).status_code == 200


async def test_readiness_follows_the_health_of_the_indexes(serve):
    running = await serve(http_settings())
    async with client(running) as http:
        assert (await http.get("/readyz")).status_code == 200
        running.readiness.servicer.set("", 2)
        not_ready = await http.get("/readyz")
        assert (not_ready.status_code, not_ready.text) == (503, "not ready\n")
        assert (await http.get("/healthz")).status_code == 200


async def test_during_a_stop_requests_are_refused_streams_end_and_running_calls_finish(serve, home):
    home.write(a="the heron nests by the weir\n")
    running = await serve(http_settings({"shutdownGraceSeconds": 60}))
    await running.synced()
    server = running.daemon.edges.http
    release = threading.Event()
    async with client(running, any_agent(home)) as http, client(running, any_agent(home)) as late:
        session = McpSession(http)
        await session.open()
        async with http.stream("GET", "/mcp", headers={**session.headers, "accept": "text/event-stream"}) as events:
            # The search waits for a thread.
            held = [running.threads.quick.share().submit(release.wait, 60) for _ in range(QUICK_THREADS)]
            call = asyncio.ensure_future(session.tool("memory_search", query="heron"))
            await eventually(lambda: running.gate.admission.calls == 1)
            stop = asyncio.ensure_future(running.stop_daemon())
            assert [line async for line in events.aiter_lines() if line.startswith("data")] == []
            response = await late.post("/mcp", json=PING)
            assert (response.status_code, reason_of(response)) == (503, "SHUTTING_DOWN")
            assert response.headers["retry-after"] == "5"
            assert (await late.get("/readyz")).status_code == 503
            assert (await late.get("/healthz")).status_code == 200
            assert not stop.done()
            release.set()
            assert "weir" in json.dumps(await call)
        await asyncio.wait_for(stop, 30)
    assert all(future.done() for future in held)
    assert server.connections == 0
    assert not running.logged("fail-request")
    assert not running.logged("fail-background-task")


async def test_a_subscription_ends_without_an_error_when_the_daemon_stops(serve, home):
    running = await serve(http_settings({"shutdownGraceSeconds": 60}))
    url = f"{running.daemon.edges.http_url}/mcp"
    async with httpx2.AsyncClient(headers=authorized(any_agent(home)), trust_env=False, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        official = Client(transport, mode="2026-07-28", cache=None, read_timeout_seconds=60)
        async with official as connected, connected.listen(resources_list_changed=True) as events:
            assert running.daemon.edges.http.requests == 1
            stop = asyncio.ensure_future(running.stop_daemon())
            assert [event async for event in events] == []
            await asyncio.wait_for(stop, 30)
    assert not running.logged("fail-request")
    assert not running.logged("cancel-unread-reply")


async def test_open_connections_do_not_delay_a_stop(serve, home):
    running = await serve(http_settings({"shutdownGraceSeconds": 0.1}))
    token = any_agent(home)
    host, port = running.daemon.edges.http_url.partition("://")[2].split(":")
    head = [f"Authorization: Bearer {token}", "Content-Length: 10"]
    started = [b"", b"GET /he", request_bytes(), request_bytes("POST", "/mcp", headers=head, body=b"{")]
    opened = []
    for data in started:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        opened.append((reader, writer))
    await eventually(lambda: running.daemon.edges.http.requests == 1)
    await asyncio.wait_for(running.stop_daemon(), 10)
    for reader, writer in opened:
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


START = """
import asyncio, json, sys
from pathlib import Path
from memoryd_server.app.daemon import Daemon
from memoryd_server.observe.log import make_log
from memoryd_server.settings.loading import load

root = Path(sys.argv[1])
(root / "workspace" / "memory").mkdir(parents=True)
(root / "state").mkdir()
flags = {"workspace": str(root / "workspace"), "state_dir": str(root / "state"), "listen": f"unix:{root}/s"}

async def run():
    daemon = Daemon(load(environ={}, home=root, flags=flags), make_log("error", "json"))
    await daemon.start()
    found = sorted(sys.modules)
    await daemon.stop()
    print(json.dumps(found))

asyncio.run(run())
"""
HTTP_PACKAGES = {"mcp", "mcp_types", "starlette", "uvicorn", "h11", "sse_starlette", "memoryd_server.http"}


def test_nothing_of_http_is_imported_while_it_is_off(tmp_path):
    importlib.import_module("memoryd_server.http")
    assert set(sys.modules) >= HTTP_PACKAGES
    command = [sys.executable, "-c", START, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert HTTP_PACKAGES.isdisjoint(json.loads(done.stdout))
