"""The loop of `memoryd mcp`, with a daemon that the test plays."""

import asyncio
import json

import pytest

from memoryd_server.cli.mcp_bridge import Bridge
from memoryd_server.cli.mcp_connector import Backoff, ConnectionFailed
from memoryd_server.cli.mcp_stream import StreamEnded
from memoryd_server.json_rpc import MalformedMessage
from waiting import eventually

INITIALIZE = {"id": 0, "method": "initialize", "params": {}}
KILLED = StreamEnded("connection reset", is_absent=True)


class FakeDaemon:
    """One session as its daemon sees it: `received` has the messages, and `say` answers them."""

    def __init__(self):
        self.received = asyncio.Queue()
        self.closed = False
        self._replies = asyncio.Queue()
        self.refusal = None

    async def send(self, text):
        if self.refusal is not None:
            raise self.refusal
        await self.received.put(json.loads(text))

    async def receive(self):
        reply = await self._replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self):
        self.closed = True

    async def next(self):
        return await asyncio.wait_for(self.received.get(), 10)

    def say(self, **fields):
        self._replies.put_nowait(json.dumps({"jsonrpc": "2.0", **fields}).encode())

    def end(self, error):
        self.refusal = error
        self._replies.put_nowait(error)


class Bridged:
    """A bridge between a client and the daemons of a test, in their order."""

    def __init__(self, *daemons):
        self.daemons = list(daemons)
        self.input = asyncio.Queue()
        self.output = asyncio.Queue()
        self.warnings = []
        self.writes = asyncio.Event()
        self.writes.set()
        bridge = Bridge(self.input.get, self._write, self._connect, self.warnings.append)
        self.running = asyncio.ensure_future(bridge.run())

    async def _write(self, message):
        await self.output.put(message)
        await self.writes.wait()

    async def _connect(self):
        daemon = self.daemons.pop(0)
        if isinstance(daemon, Exception):
            raise daemon
        return daemon

    def send(self, **fields):
        self.input.put_nowait(json.dumps({"jsonrpc": "2.0", **fields}).encode())

    async def next(self):
        return json.loads(await asyncio.wait_for(self.output.get(), 10))

    async def end(self):
        self.input.put_nowait(None)
        await asyncio.wait_for(self.running, 10)


async def started(*daemons):
    """Return a bridge whose client has completed the handshake with the first daemon."""
    bridged = Bridged(*daemons)
    bridged.send(**INITIALIZE)
    await daemons[0].next()
    daemons[0].say(id=0, result={})
    await bridged.next()
    bridged.send(method="notifications/initialized")
    await daemons[0].next()
    return bridged


async def test_messages_are_copied_both_ways():
    daemon = FakeDaemon()
    bridged = await started(daemon)
    bridged.send(id=1, method="ping")
    assert (await daemon.next())["method"] == "ping"
    daemon.say(method="notifications/progress", params={})
    daemon.say(id=1, result={})
    assert (await bridged.next())["method"] == "notifications/progress"
    assert (await bridged.next())["id"] == 1
    await bridged.end()
    assert daemon.closed


async def test_the_last_requests_get_their_responses_before_the_end():
    daemon = FakeDaemon()
    bridged = await started(daemon)
    bridged.send(id=1, method="ping")
    bridged.input.put_nowait(None)
    await daemon.next()
    assert not bridged.running.done()
    daemon.say(id=1, result={})
    assert (await bridged.next())["id"] == 1
    await asyncio.wait_for(bridged.running, 10)


async def test_a_daemon_that_stops_fails_its_requests_and_the_next_message_finds_another():
    first, second = FakeDaemon(), FakeDaemon()
    bridged = await started(first, second)
    bridged.send(id=1, method="tools/call")
    bridged.send(id=2, method="resources/list")
    await first.next()
    await first.next()
    first.end(KILLED)
    tool, other = await bridged.next(), await bridged.next()
    assert tool["result"]["isError"]
    assert "connection reset" in tool["result"]["content"][0]["text"]
    assert "try again" in other["error"]["message"]
    bridged.send(id=3, method="ping")
    assert [(await second.next())["method"] for _ in range(3)] == ["initialize", "notifications/initialized", "ping"]
    second.say(id="memoryd-replay-1", result={})
    second.say(id=3, result={})
    assert (await bridged.next())["id"] == 3
    assert first.closed
    assert len(bridged.warnings) == 1
    await bridged.end()


async def test_a_message_sent_while_failures_are_passed_on_goes_to_the_next_session():
    """The client reads a failure and sends its next request before the bridge has finished writing the failures."""
    first, second = FakeDaemon(), FakeDaemon()
    bridged = await started(first, second)
    bridged.send(id=1, method="tools/call")
    await first.next()
    bridged.writes.clear()
    first.end(KILLED)
    assert (await bridged.next())["result"]["isError"]
    bridged.send(id=2, method="ping")
    await eventually(bridged.input.empty)
    bridged.writes.set()
    assert [(await second.next())["method"] for _ in range(3)] == ["initialize", "notifications/initialized", "ping"]
    second.say(id=2, result={})
    assert (await bridged.next())["id"] == 2
    await bridged.end()


async def test_a_message_that_the_session_no_longer_takes_fails():
    first = FakeDaemon()
    bridged = await started(first)
    first.refusal = KILLED
    bridged.send(id=1, method="ping")
    await asyncio.sleep(0)
    first.end(KILLED)
    assert "error" in await bridged.next()
    await bridged.end()


async def test_a_daemon_that_cannot_be_reached_fails_each_request_until_it_can():
    daemon = FakeDaemon()
    bridged = Bridged(ConnectionFailed("no daemon"), ConnectionFailed("no daemon"), daemon)
    bridged.send(**INITIALIZE)
    assert (await bridged.next())["error"]["message"] == "no daemon"
    bridged.send(method="notifications/cancelled", params={"requestId": 0})
    bridged.send(id=1, method="tools/list")
    assert (await daemon.next())["method"] == "tools/list"
    daemon.say(id=1, result={})
    await bridged.next()
    await bridged.end()
    assert bridged.warnings


async def test_a_malformed_line_is_answered_without_a_daemon():
    bridged = Bridged()
    bridged.input.put_nowait(b"{")
    bridged.input.put_nowait(MalformedMessage(-32600, "too long", 5))
    assert (await bridged.next())["error"]["code"] == -32700
    assert (await bridged.next())["id"] == 5
    await bridged.end()


def is_delayed(backoff):
    try:
        backoff.check()
    except ConnectionFailed:
        return True
    return False


def test_failed_connections_are_not_repeated_immediately():
    now = [0.0]
    backoff = Backoff(lambda: now[0])
    pauses = []
    for _ in range(6):
        assert str(backoff.failed("no daemon")) == "no daemon"
        began = now[0]
        while is_delayed(backoff):
            now[0] += 0.5
        pauses.append(now[0] - began)
    assert pauses == [1, 2, 4, 8, 10, 10]
    backoff.worked()
    backoff.failed("again")
    now[0] += 1
    assert not is_delayed(backoff)


async def test_a_client_that_does_not_read_ends_the_bridge():
    lines = asyncio.Queue()
    lines.put_nowait(b"{")

    async def respond(_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await Bridge(lines.get, respond, lines.get, list).run()
