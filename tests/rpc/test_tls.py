"""TLS on TCP: certificates, those of clients, and new ones that come while the daemon runs."""

import asyncio
import os
import ssl
import stat

import grpc
import pytest

from certificates import Authority, needs_openssl
from memoryd.client import MemorydError, Tls, connect
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.errors import SettingsError
from rpc.callers import bearer, new_token
from rpc.wire import TIMEOUT, Home, check_refused, quiet, start
from waiting import eventually

pytestmark = needs_openssl
# A handshake that is refused is tried again by the client until its deadline, so the deadline is short.
REFUSED_SECONDS = 2.0


@pytest.fixture
def authority(home):
    return Authority(home.root)


@pytest.fixture
def pair(authority):
    return authority.issue("first")


def tls_settings(pair, client_ca=None):
    tls = {"certFile": str(pair[0]), "keyFile": str(pair[1])}
    return {"memoryd": {"tls": {**tls, **({"clientCaFile": str(client_ca)} if client_ca else {})}}}


def channel(running, ca, *client, name="localhost"):
    certificate, key = client or (None, None)
    credentials = grpc.ssl_channel_credentials(
        ca.read_bytes(), key.read_bytes() if key else None, certificate.read_bytes() if certificate else None
    )
    # Channels to one address share their connection otherwise, and with it the handshake.
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(address(running), credentials, options=options)


def address(running):
    return f"127.0.0.1:{running.address.rpartition(':')[2]}"


async def asked(channel_, token, seconds=TIMEOUT):
    async with channel_:
        stub = stubs.MemoryServiceStub(channel_)
        return (await stub.Status(pb.StatusRequest(), timeout=seconds, **bearer(token))).agent_id


async def check_no_connection(channel_, token):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(channel_, token, REFUSED_SECONDS)
    assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def shown(running):
    """The certificate that a new connection is shown."""
    host, _, port = address(running).rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=TIMEOUT)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"])
async def test_a_daemon_with_a_certificate_and_a_token_may_listen_anywhere(serve, home, authority, pair, listen):
    running = await serve(tls_settings(pair), listen=listen)
    _, token = new_token(home)
    assert await asked(channel(running, authority.ca), token) == "main"
    async with channel(running, authority.ca) as bare:
        call = stubs.MemoryServiceStub(bare).Status(pb.StatusRequest())
        await check_refused(call, "UNAUTHENTICATED", "TOKEN_MISSING")
    assert (home.state_dir / "memoryd.token").exists()


async def test_nothing_is_answered_in_the_clear(serve, home, authority, pair):
    running = await serve(tls_settings(pair), listen="127.0.0.1:0")
    _, token = new_token(home)
    await check_no_connection(grpc.aio.insecure_channel(address(running)), token)


async def test_the_socket_needs_neither_tls_nor_token(serve, home, pair):
    settings = tls_settings(pair)
    settings["memoryd"]["listen"] = ["127.0.0.1:0", f"unix:{home.socket}"]
    await serve(settings, listen=None)
    async with grpc.aio.insecure_channel(f"unix:{home.socket}") as plain:
        assert (await stubs.MemoryServiceStub(plain).Status(pb.StatusRequest())).agent_id == "main"


async def test_several_listeners_have_the_certificate_each(serve, home, authority, pair):
    settings = tls_settings(pair)
    settings["memoryd"]["listen"] = ["127.0.0.1:0", "127.0.0.1:0"]
    running = await serve(settings, listen=None)
    _, token = new_token(home)
    first, second = running.server.addresses
    assert first != second
    for listener in (first, second):
        over = grpc.aio.secure_channel(listener, grpc.ssl_channel_credentials(authority.ca.read_bytes()))
        assert await asked(over, token) == "main"


async def test_a_client_that_trusts_another_or_wants_another_name_does_not_connect(serve, home, authority, pair):
    running = await serve(tls_settings(pair), listen="127.0.0.1:0")
    _, token = new_token(home)
    await check_no_connection(channel(running, Authority(home.root, "stranger").ca), token)
    await check_no_connection(channel(running, authority.ca, name="elsewhere.example"), token)


async def test_clients_show_a_certificate_where_one_is_asked_for_and_a_token_besides(serve, home, authority, pair):
    clients, strangers = Authority(home.root, "clients"), Authority(home.root, "strangers")
    running = await serve(tls_settings(pair, client_ca=clients.ca), listen="127.0.0.1:0")
    _, token = new_token(home)
    assert await asked(channel(running, authority.ca, *clients.issue("gateway")), token) == "main"
    await check_no_connection(channel(running, authority.ca), token)
    await check_no_connection(channel(running, authority.ca, *strangers.issue("gateway2")), token)
    async with channel(running, authority.ca, *clients.issue("gateway3")) as bare:
        call = stubs.MemoryServiceStub(bare).Status(pb.StatusRequest())
        await check_refused(call, "UNAUTHENTICATED", "TOKEN_MISSING")


async def test_a_new_certificate_is_shown_to_new_connections_and_open_ones_stay(serve, home, authority, pair):
    running = await serve(tls_settings(pair), listen="127.0.0.1:0")
    _, token = new_token(home)
    before = await asyncio.to_thread(shown, running)
    async with channel(running, authority.ca) as open_one:
        stub = stubs.MemoryServiceStub(open_one)
        states = aiter(stub.WatchIndex(pb.WatchIndexRequest(heartbeat_interval={"seconds": 1}), **bearer(token)))
        await anext(states)
        other = Authority(home.root, "next")
        for old, new in zip(pair, other.issue("second"), strict=True):
            new.replace(old)
        assert await asyncio.to_thread(shown, running) != before
        assert await asked(channel(running, other.ca), token) == "main"
        await check_no_connection(channel(running, authority.ca), token)
        assert (await anext(states)).heartbeat
    assert len(running.logged("load-certificates")) == 1


async def test_new_authorities_of_clients_are_heeded(serve, home, authority, pair):
    old, new = Authority(home.root, "old"), Authority(home.root, "new")
    trusted = home.root / "trusted.pem"
    trusted.write_bytes(old.ca.read_bytes())
    running = await serve(tls_settings(pair, client_ca=trusted), listen="127.0.0.1:0")
    _, token = new_token(home)
    theirs = new.issue("theirs")
    await check_no_connection(channel(running, authority.ca, *theirs), token)
    trusted.write_bytes(new.ca.read_bytes())
    assert await asked(channel(running, authority.ca, *theirs), token) == "main"


SPOILS = {
    "half of a renewal": lambda pair, other: pair[0].write_bytes(other[0].read_bytes()),
    "no PEM": lambda pair, other: pair[0].write_text("not a certificate"),
    "gone": lambda pair, other: pair[0].unlink(),
    "a key for all to read": lambda pair, other: pair[1].chmod(0o644),
}


@pytest.mark.usefixtures("frequent_file_checks")
@pytest.mark.parametrize("spoil", SPOILS)
async def test_unusable_certificates_leave_the_old_ones_in_force_and_are_reported(serve, home, authority, pair, spoil):
    running = await serve(tls_settings(pair), listen="127.0.0.1:0")
    (_, token), before = new_token(home), await asyncio.to_thread(shown, running)
    good = [file.read_bytes() for file in pair]
    SPOILS[spoil](pair, authority.issue("other"))
    await eventually(lambda: running.logged("keep-certificates"))
    assert await asyncio.to_thread(shown, running) == before
    assert await asked(channel(running, authority.ca), token) == "main"

    async def warnings():
        async with channel(running, authority.ca) as open_one:
            status = await stubs.MemoryServiceStub(open_one).Status(pb.StatusRequest(), **bearer(token))
            return list(status.service.settings_warnings)

    (warning,) = await warnings()
    assert "memoryd.tls." in warning
    assert "PRIVATE" not in running.log.getvalue()
    for file, content in zip(pair, good, strict=True):
        file.write_bytes(content)
    pair[1].chmod(0o600)
    await eventually(lambda: _none(warnings))
    assert {line["level"] for line in running.logged("keep-certificates")} == {"error"}


async def _none(warnings):
    return not await warnings()


REFUSALS = {
    "a missing certificate": (lambda pair, home: pair[0].unlink(), "cannot read memoryd.tls.certFile"),
    "a missing key": (lambda pair, home: pair[1].unlink(), "cannot read memoryd.tls.keyFile"),
    "a key that its group can read": (lambda pair, home: _shared(pair[1]), r"mode 0640.*run: chmod 600"),
    "a key that everybody can read": (lambda pair, home: pair[1].chmod(0o644), r"mode 0644.*run: chmod 600"),
    "a key of another": (
        lambda pair, home: pair[1].write_bytes(Authority(home.root, "x").issue("y")[1].read_bytes()),
        "cannot be used together: key values mismatch",
    ),
    "no PEM": (lambda pair, home: pair[0].write_text("hello"), "cannot be used together"),
    "an empty file": (lambda pair, home: pair[0].write_text(""), "cannot be used together"),
}


def _shared(key):
    key.chmod(0o640)
    if key.stat().st_uid == 0:
        # What root owns may be shared with a group, as systems keep such keys; nobody else may.
        os.chown(key, 65_534, -1)


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_certificate_that_cannot_serve_refuses_to_start_and_says_why(home, pair, case):
    spoil, told = REFUSALS[case]
    spoil(pair, home)
    with pytest.raises(SettingsError, match=told):
        await start(home, quiet(tls_settings(pair)), listen="127.0.0.1:0")


async def test_an_authority_that_is_none_refuses_to_start(home, pair):
    (home.root / "ca").write_text("hello")
    with pytest.raises(SettingsError, match=r"clientCaFile .* contains no PEM certificate"):
        await start(home, quiet(tls_settings(pair, client_ca=home.root / "ca")), listen="127.0.0.1:0")


async def test_the_python_client_speaks_tls(serve, home, authority, pair):
    clients = Authority(home.root, "clients")
    running = await serve(tls_settings(pair, client_ca=clients.ca), listen="127.0.0.1:0")
    _, token = new_token(home)
    certificate, key = clients.issue("gateway")

    def ask(**tls):
        with connect(address(running), token, tls=Tls(ca_file=authority.ca, **tls)) as client:
            return client.status(timeout=REFUSED_SECONDS).agent_id

    assert await asyncio.to_thread(ask, cert_file=certificate, key_file=key) == "main"
    named = {"cert_file": str(certificate), "key_file": str(key), "server_name": "memory.example"}
    assert await asyncio.to_thread(ask, **named) == "main"
    with pytest.raises(MemorydError):
        await asyncio.to_thread(ask)
    with pytest.raises(MemorydError):
        await asyncio.to_thread(ask, **{**named, "server_name": "elsewhere.example"})
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(ask, cert_file=home.root / "none", key_file=key)
    with pytest.raises(ValueError, match="must be set together"):
        Tls(cert_file=certificate)


async def test_a_second_daemon_on_a_tls_port_is_refused(serve, home, pair):
    running = await serve(tls_settings(pair), listen="127.0.0.1:0")
    other = Home(home.root / "other")
    with pytest.raises(SettingsError, match="the port is taken, perhaps by another memoryd"):
        await start(other, quiet(tls_settings(pair)), listen=running.address)
    assert stat.S_IMODE((home.state_dir / "memoryd.token").stat().st_mode) == 0o600
