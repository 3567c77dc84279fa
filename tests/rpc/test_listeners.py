"""Where the daemon listens: the socket and its lock, ports, and addresses that it refuses."""

import os
import socket
import stat

import grpc
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.access.addresses import parse_address
from memoryd_server.errors import IndexBusy, SettingsError
from memoryd_server.rpc.server import Listener
from rpc.callers import bearer, new_token
from rpc.wire import Home, quiet, start
from waiting import eventually


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.com", "[2001:db8::1]"])
async def test_beyond_loopback_nothing_is_listened_at_without_tls(home, host):
    with pytest.raises(SettingsError, match=r"without TLS, texts and tokens.*memoryd\.tls\.certFile.*127\.0\.0\.1"):
        await start(home, quiet(), listen=f"{host}:0")


async def test_one_address_beyond_loopback_among_others_is_refused_by_its_name(home):
    listen = [f"unix:{home.socket}", "127.0.0.1:0", "192.0.2.1:7627"]
    with pytest.raises(SettingsError, match=r"refusing to listen at 192\.0\.2\.1:7627: "):
        await start(home, quiet({"memoryd": {"listen": listen}}), listen=None)
    assert not home.socket.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_loopback_address_is_bound_and_its_port_reported(serve, home, host):
    if host == "[::1]" and not os.path.exists("/proc/net/if_inet6"):  # noqa: ASYNC240, PTH110 -- a look at the host
        pytest.skip("this host has no IPv6")
    running = await serve(listen=f"{host}:0")
    assert running.address.startswith(f"{host}:")
    assert not running.address.endswith(":0")
    _, token = new_token(home)
    assert (await running.stub.Status(pb.StatusRequest(), **bearer(token))).agent_id == "main"


async def test_a_port_that_is_taken_is_refused_with_its_name(serve, home):
    running = await serve(listen="127.0.0.1:0")
    other = Home(home.root / "other")
    with pytest.raises(SettingsError, match=f"{running.address}: the port is taken, perhaps by another memoryd"):
        await start(other, quiet(), listen=running.address)


async def test_an_address_of_another_machine_is_distinguished_from_a_taken_port(home):
    listener = Listener(parse_address("192.0.2.1:7627"))
    server = grpc.aio.server()
    with pytest.raises(SettingsError, match=r"192\.0\.2\.1:7627: this machine does not have the address"):
        listener.bind(server, None)


async def test_the_socket_is_its_owner_s_alone_and_gone_after_the_stop(serve, home):
    running = await serve()
    assert stat.S_IMODE(home.socket.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(home.socket.stat().st_mode)
    await running.stop()
    assert not home.socket.exists()


async def test_folders_above_the_socket_are_made_for_the_owner_alone(serve, home):
    await serve(listen=f"unix:{home.root / 'run' / 's'}")
    assert stat.S_IMODE((home.root / "run").stat().st_mode) == 0o700


async def test_a_second_daemon_does_not_steal_the_socket(serve, home):
    first = await serve()
    other = Home(home.root / "other")
    with pytest.raises(SettingsError, match=f"another memoryd listens at unix:{home.socket}"):
        await start(other, quiet(), listen=f"unix:{home.socket}")
    async with grpc.aio.insecure_channel(first.address) as channel:
        assert (await stubs.MemoryServiceStub(channel).Status(pb.StatusRequest())).workspace == str(home.workspace)


async def test_a_second_daemon_on_the_same_index_is_refused_and_says_who_holds_it(serve, home):
    await serve()
    # The holder of a lock in PostgreSQL may be on another machine.
    holder = f"process {os.getpid()}" if home.store.is_sqlite else "another memoryd holds the index of the agent 'main'"
    with pytest.raises(IndexBusy, match=holder):
        await start(home, quiet(), listen=f"unix:{home.root / 't'}")


async def test_a_daemon_that_could_not_start_leaves_nothing_locked(serve, home):
    with pytest.raises(SettingsError):
        await start(home, quiet(), listen=f"unix:{home.workspace}")
    assert (await (await serve()).status()).agent_id == "main"


async def test_a_socket_left_by_a_killed_daemon_is_replaced(serve, home):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    assert (await (await serve()).status()).agent_id == "main"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_a_file_that_is_no_socket_is_not_removed(home, kind):
    precious = home.root / "precious"
    precious.write_text("keep me")
    if kind == "file":
        home.socket.write_text("keep me")
    elif kind == "folder":
        home.socket.mkdir()
    else:
        home.socket.symlink_to(precious)
    with pytest.raises(SettingsError, match="socket"):
        await start(home, quiet())
    assert home.socket in home.root.iterdir()
    assert precious.read_text() == "keep me"


async def test_a_socket_path_that_is_too_long_is_refused_with_its_length(home):
    path = home.root / ("x" * 110)
    with pytest.raises(SettingsError, match=rf"{len(str(path))} bytes long; the system allows 107"):
        await start(home, quiet(), listen=f"unix:{path}")


class BindingServer:
    """Binds like gRPC, and notes the modes of a file created at the same time and of the socket's folder."""

    def __init__(self, folder):
        self.folder = folder
        self.modes = []

    def add_insecure_port(self, address):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(address.removeprefix("unix:"))
        (self.folder / "note.md").touch(0o666)
        holder = os.path.dirname(address.removeprefix("unix:"))  # noqa: PTH120
        self.modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (self.folder / "note.md", holder)]  # noqa: PTH116


@pytest.mark.parametrize("length", [1, 40])
def test_binding_a_socket_leaves_the_modes_of_other_files_alone(tmp_path_factory, length):
    tmp_path, name = tmp_path_factory.mktemp("b"), "s" * length
    address = parse_address(f"unix:{tmp_path}/{name}")
    listener, server = Listener(address), BindingServer(tmp_path)
    before = os.umask(0o027)
    try:
        listener.bind(server, None)
    finally:
        os.umask(before)
    assert server.modes == [0o640, 0o700]
    assert stat.S_IMODE(address.socket_path.stat().st_mode) == 0o600
    listener.close()
    server.socket.close()
    assert {path.name for path in tmp_path.iterdir()} == {"note.md", f"{name}.lock"}


async def test_path_of_the_greatest_length_is_listened_at(serve, home):
    path = home.root / ("s" * (107 - len(os.fsencode(home.root)) - 1))
    folder = home.root / ("f" * (107 - len(os.fsencode(home.root)) - 3))
    for place in (path, folder / "s"):
        running = await serve(listen=f"unix:{place}")
        assert len(os.fsencode(place)) == 107
        assert (await running.stub.Status(pb.StatusRequest())).agent_id == "main"
        await running.stop()
        assert not place.exists()


async def test_a_listener_that_is_not_bound_closes_no_connection_of_others():
    """The sockets of the event loop, for example, have no name."""
    for address in ("127.0.0.1:0", "unix:/nowhere/s"):
        listener = Listener(parse_address(address))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            listener.close_connections(socket.SHUT_RDWR)
            ours.send(b"x")
            assert theirs.recv(1) == b"x"


@pytest.mark.parametrize("where", ["127.0.0.1:0", "unix:"])
async def test_a_listener_reports_whether_a_client_was_connected(tmp_path_factory, where):
    address = f"{where}{tmp_path_factory.mktemp('l')}/s" if where == "unix:" else where
    listener, server = Listener(parse_address(address)), grpc.aio.server()
    bound = listener.bind(server, None)
    await server.start()
    try:
        host, _, port = bound.rpartition(":")
        family, place = (socket.AF_UNIX, port) if host == "unix" else (socket.AF_INET, (host, int(port)))
        with socket.socket(family) as client:
            client.connect(place)
            await eventually(lambda: listener.close_connections(socket.SHUT_WR))
        await eventually(lambda: not listener.close_connections(socket.SHUT_WR))
    finally:
        await server.stop(0)
        listener.close()
