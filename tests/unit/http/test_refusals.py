"""The HTTP status of each reason, and the bodies of refusals."""

import json

import grpc
import pytest

pytest.importorskip("mcp")

from memoryd.v1 import error_reason_pb2
from memoryd_server.errors import FieldViolation, InvalidRequest, MemorydError
from memoryd_server.http.refusals import Refusal
from memoryd_server.rpc.errors import code_of

# google/rpc/code.proto
STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
REASONS = [name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.keys() if "UNSPEC" not in name]  # noqa: SIM118


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_has_the_http_status_of_its_grpc_status(reason):
    error = type("OfReason", (MemorydError,), {"reason": reason})("text")
    assert Refusal.of(error).status == STATUSES[code_of(error)]


def test_the_page_gets_the_reason_the_wait_and_the_violations():
    refusal = Refusal.of(InvalidRequest([FieldViolation("query", "must not be blank")]))
    error = json.loads(refusal.body())["error"]
    assert error == {
        "reason": "INVALID_REQUEST",
        "message": "query: must not be blank",
        "violations": [{"field": "query", "description": "must not be blank"}],
    }
    refusal = Refusal(429, "TOO_MANY_REQUESTS", "later", retry_after_seconds=1.5)
    assert json.loads(refusal.body())["error"]["retryAfterSeconds"] == 1.5
    assert (b"retry-after", b"2") in refusal.headers()


def test_mcp_clients_get_a_json_rpc_error():
    refusal = Refusal(404, "NOT_FOUND", "no such path")
    assert json.loads(refusal.json_rpc_body()) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32600, "message": "no such path", "data": {"reason": "NOT_FOUND"}},
    }
