"""What a session of `memoryd mcp` repeats and answers when its daemon stops."""

import json

import pytest

from memoryd_server.cli.mcp_record import MOST_SUBSCRIPTIONS, SessionRecord
from memoryd_server.json_rpc import read_message

INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
INITIALIZED = {"method": "notifications/initialized"}


def message(fields):
    return read_message(json.dumps({"jsonrpc": "2.0", **fields}).encode())


class Client:
    """A record, and what the client and the daemon say to each other."""

    def __init__(self, *sent):
        self.record = SessionRecord()
        self.send(*sent)

    def send(self, *messages):
        for fields in messages:
            self.record.sent(message(fields))

    def subscribe(self, request_id, uri):
        self.send({"id": request_id, "method": "resources/subscribe", "params": {"uri": uri}})

    def receive(self, **fields):
        return self.record.received(message(fields))

    def failed(self, reason="gone"):
        return [json.loads(text) for text in self.record.failed(reason)]

    def replay(self):
        return [json.loads(text) for text in self.record.replay()]


@pytest.fixture
def client():
    """A client whose handshake is complete."""
    client = Client(INITIALIZE)
    assert client.receive(id=0, result={})
    client.send(INITIALIZED)
    return client


def test_requests_without_a_response_fail_once(client):
    client.send({"id": 1, "method": "tools/call"}, {"id": "1", "method": "tools/list"}, {"id": 2, "method": "ping"})
    assert client.receive(id=2, result={})
    tool, other = client.failed()
    assert (tool["id"], tool["result"]["isError"]) == (1, True)
    assert (other["id"], other["error"]["message"]) == ("1", "gone")
    assert client.failed() == []


def test_a_cancelled_request_gets_no_response(client):
    client.send({"id": 1, "method": "tools/call"}, {"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert client.failed() == []


def test_a_new_session_repeats_the_handshake_and_hides_its_responses(client):
    initialize, initialized = client.replay()
    assert initialize["params"] == INITIALIZE["params"]
    assert initialized["method"] == "notifications/initialized"
    assert initialize["id"] != 0
    assert not client.receive(id=initialize["id"], result={})
    assert client.receive(id=initialize["id"], result={})


def test_a_handshake_that_failed_is_not_repeated():
    client = Client(INITIALIZE)
    assert client.receive(id=0, error={"code": 1, "message": "no"})
    assert client.replay() == []


def test_a_session_without_a_handshake_repeats_nothing():
    client = Client({"id": 1, "method": "server/discover", "params": {"_meta": {}}})
    assert client.receive(id=1, result={})
    assert client.replay() == []


def test_a_new_session_repeats_the_open_subscriptions(client):
    for request_id, uri in enumerate(("memory://main/a", "memory://main/b", "memory://main/c"), 1):
        client.subscribe(request_id, uri)
    client.receive(id=1, result={})
    client.receive(id=2, error={"code": 1, "message": "no"})
    client.receive(id=3, result={})
    client.send({"id": 4, "method": "resources/unsubscribe", "params": {"uri": "memory://main/c"}})
    *_, subscribe = client.replay()
    assert (subscribe["method"], subscribe["params"]) == ("resources/subscribe", {"uri": "memory://main/a"})
    assert len(client.replay()) == 3


def test_the_repeated_subscriptions_are_bounded(client):
    for number in range(3 * MOST_SUBSCRIPTIONS):
        client.subscribe(number, f"memory://main/{number}")
    assert len(client.replay()) == 2 + MOST_SUBSCRIPTIONS


def test_a_subscription_is_no_request_that_the_client_waits_for(client):
    client.send({"id": 1, "method": "subscriptions/listen"})
    assert not client.record.waits
    client.send({"id": 2, "method": "ping"})
    assert client.record.waits


def test_notifications_and_requests_of_the_daemon_are_passed_on(client):
    assert client.receive(method="notifications/progress", params={})
    assert client.receive(id=0, method="ping")
