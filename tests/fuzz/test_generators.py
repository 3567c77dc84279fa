"""The generators of the fuzzing run: they reach every field, and steps survive a file."""

import pytest
from hypothesis import HealthCheck, Phase, find, settings

from fuzz.frames import grpc_statuses
from fuzz.messages import METHODS, messages, with_learned
from fuzz.steps import Burst, Call, Change, Connection, Release, from_line, to_line
from memoryd.v1 import memory_service_pb2 as pb
from raw_http2 import literal

OPTIONS = settings(
    max_examples=2_000, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None
)
REQUESTS = sorted({method.input_type.full_name: method.input_type for method in METHODS.values()}.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # some values are long
@pytest.mark.parametrize("descriptor", [pytest.param(request, id=name) for name, request in REQUESTS])
def test_every_field_of_every_request_is_generated(descriptor):
    for field in descriptor.fields:
        find(messages(descriptor), lambda message, field=field: field in dict(message.ListFields()), settings=OPTIONS)


def test_steps_are_the_same_after_a_file():
    call = Call("tcp", "none", "/a/b", b"\xff\0", (("x", "y"), ("z-bin", b"\1")), 0.5, 2, True, 1)
    parts = (("headers", 4, 1, ((":path", "/"),)), ("bytes", b"\0"), ("frame", 3, 0, 1, b"\0\0\0\0"))
    steps = [
        call,
        Burst((call, call)),
        Connection("unix", parts, 0.1, 0, held=True),
        Release(),
        Change("write", "workspace", "memory/\udcff.md", b"x"),
    ]
    assert [from_line(to_line(step)) for step in steps] == steps


def test_values_of_replies_replace_their_names_in_requests():
    body = pb.SyncRequest(cursor="@cursor:1", reason="@cursor:x").SerializeToString()
    method = "/memoryd.v1.MemoryService/Sync"
    replaced = pb.SyncRequest.FromString(with_learned(method, body, {"cursor": ["a", "b"]}))
    assert (replaced.cursor, replaced.reason) == ("b", "@cursor:x")
    assert with_learned(method, body, {}) == body


@pytest.mark.parametrize("size", [3, 200])
def test_status_of_a_reply_is_read_from_its_trailers(size):
    message = "x" * size
    block = b"\x88\x20" + literal("content-type", "y" * size) + literal("grpc-status", "13")
    assert grpc_statuses([block + literal("grpc-message", message)]) == [(13, message)]
    assert grpc_statuses([b"\x88"]) == []
