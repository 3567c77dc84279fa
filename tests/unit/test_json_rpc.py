"""The envelope of JSON-RPC messages: kinds, ids, and the errors of malformed ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.json_rpc import (
    MOST_MESSAGE_BYTES,
    MalformedMessage,
    failed_response,
    oversized_message,
    read_message,
)

IDS = st.one_of(st.integers(-(10**17), 10**17), st.text(max_size=20))
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | IDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "a", "params"]), inner),
    max_leaves=8,
)


def message(**fields):
    return read_message(json.dumps({"jsonrpc": "2.0", **fields}).encode())


def error_of(text):
    with pytest.raises(MalformedMessage) as malformed:
        read_message(text)
    return json.loads(malformed.value.response)


def test_requests_notifications_and_responses_are_told_apart():
    request, notification = message(id=7, method="ping"), message(method="notifications/initialized")
    result, error = message(id=7, result={}), message(id="7", error={"code": 1, "message": "no"})
    assert (request.is_request, request.is_response, request.request_id) == (True, False, 7)
    assert (notification.is_request, notification.is_response, notification.key) == (False, False, "")
    assert (result.is_request, result.is_response) == (False, True)
    assert request.key == result.key != error.key


def test_a_cancellation_names_its_request():
    cancel = message(method="notifications/cancelled", params={"requestId": "a"})
    assert cancel.cancelled_key == message(id="a", method="ping").key
    assert message(method="notifications/cancelled", params=[1]).cancelled_key == ""
    assert message(method="ping", id=1, params={"requestId": "a"}).cancelled_key == ""


@pytest.mark.parametrize(
    ("text", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b'{"id": "\xff"}', -32700, None),
        (b"[" * 100_000, -32700, None),
        ('{"method": "ping"}'.encode("utf-16"), -32700, None),
        ('{"method": "ping"}'.encode("utf-32-le"), -32700, None),
        (b"[]", -32600, None),
        (b"null", -32600, None),
        (b'{"id": 3}', -32600, 3),
        (b'{"id": 3, "method": 4}', -32600, 3),
        (b'{"id": 1.5, "method": "ping"}', -32600, None),
        (b'{"id": true, "method": "ping"}', -32600, None),
    ],
)
def test_a_malformed_message_has_an_error_as_its_response(text, code, request_id):
    error = error_of(text)
    assert (error["error"]["code"], error["id"]) == (code, request_id)
    assert error["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"jsonrpc": "2.0", "id": 12, "method": "ping", "params": {"id": 5}},
        {"method": "ping", "params": {"id": 5}, "jsonrpc": "2.0", "id": 12},
        {"method": "ping", "params": {"id": 5}, "id": 12, "jsonrpc": "2.0"},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_message_that_is_too_long_is_answered_by_its_id(fields, separators):
    fields["params"]["text"] = "x" * MOST_MESSAGE_BYTES
    assert error_of(json.dumps(fields, separators=separators).encode())["id"] == 12


def test_the_id_of_a_message_that_is_too_long_is_not_guessed():
    fields = {"method": "ping", "id": 12, "params": {"text": "x" * MOST_MESSAGE_BYTES, "id": 5}}
    assert error_of(json.dumps(fields).encode())["id"] is None


@given(fields=st.dictionaries(st.sampled_from(["id", "jsonrpc", "method", "params"]), VALUES, min_size=1))
def test_a_long_message_never_gets_the_id_of_another(fields):
    text = json.dumps(fields).encode()
    answered = json.loads(oversized_message(text[:512], text[-512:]).response)["id"]
    assert answered is None or answered == fields.get("id")


@given(text=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_text_is_a_message_or_has_an_error(text):
    try:
        read = read_message(text)
    except MalformedMessage as malformed:
        response = malformed.response
    else:
        response = failed_response(read.method, read.request_id, "no")
        assert repr(read.value) == repr(json.loads(text))
    assert json.loads(response)["jsonrpc"] == "2.0"


def test_a_failed_tool_is_a_result_that_the_model_reads_and_other_requests_have_an_error():
    tool, other = json.loads(failed_response("tools/call", 1, "gone")), json.loads(failed_response("ping", "a", "gone"))
    assert tool["result"]["isError"]
    assert tool["result"]["content"] == [{"type": "text", "text": "gone"}]
    assert (other["id"], other["error"]["message"]) == ("a", "gone")
