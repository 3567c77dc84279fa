"""The Python client with several addresses: the targets of gRPC, and lookups of host names."""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from clients.daemon_fixture import has_ipv6
from memoryd._list_channel import AsyncListChannel, ListChannel
from memoryd._targets import Lookup, has_names, target_of
from memoryd.client import AsyncMemorydClient, MemorydClient, MemorydError, connect, connect_async
from memoryd.discovery import Endpoint, Environment, find_endpoint, split_addresses
from memoryd.messages import ListAgentsResponse, WatchIndexResponse
from waiting import eventually, wait_until


class Hosts:
    """The IP addresses of host names, which a test can change; counts the lookups."""

    def __init__(self, **ips):
        self.ips = ips
        self.lookups = 0

    def __call__(self, host):
        self.lookups += 1
        if host not in self.ips:
            raise OSError("unknown")
        return self.ips[host]


class Daemon(grpc.GenericRpcHandler):
    """Answers `list_agents` with its name, and keeps each `watch` open until `ended` is set."""

    def __init__(self, name):
        self.name = name
        self.ended = threading.Event()

    def service(self, details):
        if details.method.endswith("/WatchIndex"):
            return grpc.unary_stream_rpc_method_handler(self._watch)
        answer = ListAgentsResponse(next_page_token=self.name).SerializeToString()
        return grpc.unary_unary_rpc_method_handler(lambda *_: answer)

    def _watch(self, *_):
        event = WatchIndexResponse(agent_id=self.name).SerializeToString()
        yield event
        self.ended.wait(30)
        yield event


@contextmanager
def serving(*ips):
    """Yield the port at which a daemon listens at each of these IP addresses, and the daemons."""
    daemons = [Daemon(ip) for ip in ips]
    servers = [grpc.server(ThreadPoolExecutor(4), [daemon]) for daemon in daemons]
    port = 0
    for ip, server in zip(ips, servers, strict=True):
        port = server.add_insecure_port(f"{ip}:{port}")
        server.start()
    try:
        yield port, daemons
    finally:
        for daemon, server in zip(daemons, servers, strict=True):
            daemon.ended.set()
            server.stop(None).wait()


def is_closed(channel):
    """Return whether gRPC refuses calls of the channel."""
    try:
        MemorydClient(channel).list_agents()
    except ValueError:
        return True
    except MemorydError:
        # The channel was closed during the call.
        return False
    return False


@pytest.mark.parametrize(
    ("addresses", "target"),
    [
        (["127.0.0.1:1", "10.0.0.2:2"], "ipv4:127.0.0.1:1,10.0.0.2:2"),
        (["[::1]:1", "[2001:db8::1]:2"], "ipv6:[::1]:1,[2001:db8::1]:2"),
        (["10.0.0.2:2", "[fe80::1%eth0]:1"], "ipv6:[::ffff:10.0.0.2]:2,[fe80::1%25eth0]:1"),
        (["a:1", "b:2", "10.0.0.1:1"], "ipv4:10.0.0.1:1,10.0.0.2:1,10.0.0.3:2"),
        (["b:2", "c:3", "unknown:4"], "ipv6:[::ffff:10.0.0.3]:2,[::ffff:127.0.0.1]:3,[::1]:3"),
    ],
)
def test_target_lists_the_ip_addresses_of_all_hosts(addresses, target):
    hosts = Hosts(a=["10.0.0.2", "10.0.0.1"], b=["10.0.0.3", "10.0.0.3"], c=["127.0.0.1", "::1"])
    assert Lookup(addresses, hosts).target() == target


def test_target_of_one_address_is_the_address_and_its_name_is_not_looked_up():
    for address in ("unix:/a,b", "nowhere.invalid:1", "[::1]:1"):
        assert target_of([address]) == address
        assert not has_names([address])


def test_name_that_is_not_resolved_any_more_keeps_its_ip_addresses():
    hosts = Hosts(a=["10.0.0.1"], b=["10.0.0.2"])
    lookup = Lookup(["a:1", "b:1"], hosts)
    assert lookup.target() == "ipv4:10.0.0.1:1,10.0.0.2:1"
    del hosts.ips["a"]
    hosts.ips["b"] = ["10.0.0.3"]
    assert lookup.target() == "ipv4:10.0.0.1:1,10.0.0.3:1"
    with pytest.raises(MemorydError, match=r"UNAVAILABLE: cannot resolve any host name of a:1, c:1"):
        Lookup(["a:1", "c:1"], hosts).target()


def test_unix_socket_is_the_only_address():
    assert split_addresses("unix:/a,b:1") == ("unix:/a,b:1",)
    assert Endpoint("unix:/a,b:1").addresses == ("unix:/a,b:1",)
    assert Endpoint("a:1,b:1").addresses == ("a:1", "b:1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:1,,b:1", "'a:1,,b:1' contains an empty address; write a list as HOST:PORT,HOST:PORT"),
        ("a:1,unix:/x", "'a:1,unix:/x' contains 'unix:/x'; write a list as HOST:PORT,HOST:PORT"),
        ("a:1, A:1", "'a:1, A:1' contains 'a:1' more than once"),
        ("a:1,b", "'b' is not an address; write unix:PATH or HOST:PORT, for example 127.0.0.1:7627"),
        (",".join(f"a:{port}" for port in range(1, 66)), "a list has at most 64 addresses, not 65"),
    ],
)
def test_invalid_list_is_refused(text, problem):
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        split_addresses(text)


def test_list_is_normalized_and_the_refusal_names_the_hosts_beyond_this_machine(tmp_path):
    environment = Environment({"MEMORYD_ADDRESS": " 127.0.0.1:1 , b:2,c:3 "}, tmp_path)
    assert find_endpoint(environment) == Endpoint("127.0.0.1:1,b:2,c:3")
    with pytest.raises(ValueError, match=r"^refusing to send the token to b:2, c:3 in the clear; use TLS"):
        find_endpoint(environment, token="t0ken")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_one_channel_reaches_ipv4_and_ipv6():
    with (
        serving("127.0.0.1") as (port, _),
        serving("[::1]") as (port6, _),
        connect(f"127.0.0.1:{port},[::1]:{port6}") as client,
    ):
        wait_until(lambda: {client.list_agents().next_page_token for _ in range(4)} == {"127.0.0.1", "[::1]"})


def test_no_call_before_the_first_looks_up_names():
    with connect("nowhere.invalid:1,nowhere2.invalid:1") as client:
        with pytest.raises(MemorydError) as caught:
            client.list_agents()
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        assert "nowhere.invalid:1, nowhere2.invalid:1" in caught.value.message
    with pytest.raises(ValueError, match="the client is closed"):
        client.list_agents()


def test_changed_ip_addresses_are_used_by_the_next_calls_and_running_streams_go_on():
    hosts = Hosts(a=["127.0.0.1"], b=["127.0.0.1"])
    opened = []

    def open_channel(target):
        opened.append(grpc.insecure_channel(target))
        return opened[-1]

    with serving("127.0.0.1", "127.0.0.2") as (port, daemons):
        channel = ListChannel(Lookup([f"a:{port}", f"b:{port}"], hosts), open_channel, 0.0)
        with MemorydClient(channel) as client, client.watch() as stream:
            assert next(stream).agent_id == "127.0.0.1"
            hosts.ips = {"a": ["127.0.0.2"], "b": ["127.0.0.2"]}
            wait_until(lambda: client.list_agents().next_page_token == "127.0.0.2")
            assert not is_closed(opened[0])
            daemons[0].ended.set()
            assert next(stream).agent_id == "127.0.0.1"
            with pytest.raises(StopIteration):
                next(stream)
            wait_until(lambda: is_closed(opened[0]))
            assert not is_closed(opened[1])
            assert client.list_agents().next_page_token == "127.0.0.2"


class Channel:
    """A channel of gRPC whose `close` waits until `may_close` is set."""

    def __init__(self, target, may_close):
        self._channel, self._may_close = grpc.insecure_channel(target), may_close
        self.unary_unary, self.unary_stream = self._channel.unary_unary, self._channel.unary_stream

    def close(self):
        assert self._may_close.wait(30)
        self._channel.close()


def test_stream_ends_and_calls_go_on_while_grpc_closes_the_channel():
    hosts, may_close = Hosts(a=["127.0.0.1"], b=["127.0.0.1"]), threading.Event()
    with serving("127.0.0.1", "127.0.0.2") as (port, daemons):
        channel = ListChannel(Lookup([f"a:{port}", f"b:{port}"], hosts), lambda to: Channel(to, may_close), 0.0)
        client = MemorydClient(channel)
        with client.watch() as stream:
            assert next(stream).agent_id == "127.0.0.1"
            hosts.ips = {"a": ["127.0.0.2"], "b": ["127.0.0.2"]}
            wait_until(lambda: client.list_agents().next_page_token == "127.0.0.2")
            daemons[0].ended.set()
            assert [event.agent_id for event in stream] == ["127.0.0.1"]
            for _ in range(3):
                assert client.list_agents().next_page_token == "127.0.0.2"
        may_close.set()
        client.close()


def test_names_are_looked_up_again_only_after_a_while():
    hosts = Hosts(a=["127.0.0.1"], b=["127.0.0.1"])
    with serving("127.0.0.1") as (port, _):
        channel = ListChannel(Lookup([f"a:{port}", f"b:{port}"], hosts), grpc.insecure_channel)
        with MemorydClient(channel) as client:
            for _ in range(5):
                client.list_agents()
    assert hosts.lookups == 2


async def test_asyncio_client_uses_changed_ip_addresses_and_its_running_streams_go_on():
    hosts = Hosts(a=["127.0.0.1"], b=["127.0.0.1"])
    with serving("127.0.0.1", "127.0.0.2") as (port, daemons):
        channel = AsyncListChannel(Lookup([f"a:{port}", f"b:{port}"], hosts), grpc.aio.insecure_channel, 0.0)
        async with AsyncMemorydClient(channel) as client, client.watch() as stream:
            assert (await anext(stream)).agent_id == "127.0.0.1"
            hosts.ips = {"a": ["127.0.0.2"], "b": ["127.0.0.2"]}

            async def changed():
                return (await client.list_agents()).next_page_token == "127.0.0.2"

            await eventually(changed)
            daemons[0].ended.set()
            assert (await anext(stream)).agent_id == "127.0.0.1"
            with pytest.raises(StopAsyncIteration):
                await anext(stream)


async def test_asyncio_calls_share_the_first_lookup_and_a_stream_can_be_cancelled_during_it():
    begun, known = threading.Event(), threading.Event()
    lookups = []

    def resolve(host):
        lookups.append(host)
        begun.set()
        known.wait(30)
        return ["127.0.0.1"]

    with serving("127.0.0.1") as (port, _):
        channel = AsyncListChannel(Lookup([f"a:{port}", f"b:{port}"], resolve), grpc.aio.insecure_channel)
        async with AsyncMemorydClient(channel) as client:
            calls = [asyncio.create_task(client.list_agents()) for _ in range(3)]
            stream = client.watch()
            await asyncio.to_thread(begun.wait, 30)
            stream.close()
            with pytest.raises(MemorydError) as caught:
                await anext(stream)
            assert caught.value.code is grpc.StatusCode.CANCELLED
            known.set()
            assert {(await call).next_page_token for call in calls} == {"127.0.0.1"}
    assert sorted(lookups) == ["a", "b"]


async def test_asyncio_client_reports_that_no_name_can_be_resolved():
    async with connect_async("nowhere.invalid:1,nowhere2.invalid:1") as client:
        for call in (client.list_agents(), anext(client.watch())):
            with pytest.raises(MemorydError) as caught:
                await call
            assert caught.value.code is grpc.StatusCode.UNAVAILABLE
            assert "nowhere.invalid:1, nowhere2.invalid:1" in caught.value.message
