"""Bytes that are no request, or a hostile one, sent to every method of a real daemon: refused, and that is all.

Half of what is sent is a valid request with its bytes changed, so that it gets beyond the first look; the rest is made
of the wire format's own parts, or of nothing at all.
"""

import json
import random

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon_process import serving
from malformed_bytes import changed, changes, made_of_parts, nested
from memoryd.v1 import entry_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.agent_calls import AGENT_CALLS

pytestmark = pytest.mark.attacks

SERVICES = {
    service.full_name: service
    for service in (
        *pb.DESCRIPTOR.services_by_name.values(),
        *entry_service_pb2.DESCRIPTOR.services_by_name.values(),
        *health_pb2.DESCRIPTOR.services_by_name.values(),
    )
}
METHODS = {
    f"/{name}/{method.name}": method
    for name, service in SERVICES.items()
    for method in service.methods_by_name.values()
}
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# A call may wait for a revision that never comes; nothing else takes as long.
DEADLINE_SECONDS = 2.0
# Never INTERNAL or UNKNOWN: those are faults of ours.
REFUSALS = {
    "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "FAILED_PRECONDITION", "OUT_OF_RANGE", "ABORTED",
    "DEADLINE_EXCEEDED", "UNIMPLEMENTED",
}  # fmt: skip


def valid(method):
    name = method.rpartition("/")[2]
    request = AGENT_CALLS.get(name) if "memoryd" in method else None
    return b"" if request is None else request.SerializeToString()


payloads = st.one_of(
    st.builds(lambda steps: lambda method: changed(valid(method), steps), st.lists(changes, max_size=4)),
    st.builds(lambda more: lambda method: valid(method) + more, made_of_parts),
    (made_of_parts | nested | st.binary(max_size=200)).map(lambda data: lambda _: data),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    home = tmp_path_factory.mktemp("malformed")
    workspace, state = home / "workspace", home / "state"
    (workspace / "memory").mkdir(parents=True)
    state.mkdir()
    (workspace / "memory" / "a.md").write_text("the heron nests by the weir\n")
    (home / "outside.md").write_text("SECRET")
    config = home / "memoryd.json5"
    config.write_text(json.dumps({"memoryd": {"entries": {"enabled": True}}}))
    with serving(workspace, state, "--config", config, home=home) as served:
        yield served


def send(channel, method, data):
    """Sends bytes as the request of a method; returns the status, after the first message where many may come."""
    streams = method == REFLECTION or METHODS[method].server_streaming
    try:
        if method == REFLECTION:
            call = channel.stream_stream(method)(iter([data]), timeout=DEADLINE_SECONDS)
        elif streams:
            call = channel.unary_stream(method)(data, timeout=DEADLINE_SECONDS)
        else:
            channel.unary_unary(method)(data, timeout=DEADLINE_SECONDS)
            return "OK"
        next(call, None)
        call.cancel()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def check_unharmed(served, channel):
    """The daemon lives, is ready, met no fault of its own, and has written nothing but memory."""
    assert served.process.poll() is None
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    faults = [line for line in (served.home / "daemon.log").read_text().splitlines() if '"fail-call"' in line]
    assert faults == [], faults[-1]
    # The registry of running daemons is in .local.
    assert [file.suffix for file in served.home.glob(".local/**/*") if file.is_file()] == [".json"]
    assert {file.name for file in served.home.iterdir()} == {
        ".local",
        "daemon.log",
        "memoryd.json5",
        "outside.md",
        "workspace",
        "state",
    }
    assert (served.home / "outside.md").read_text() == "SECRET"
    assert all(file.suffix == ".md" for file in served.workspace.rglob("*") if file.is_file())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bytes_that_are_no_request_are_refused_and_harm_nothing(served):
    with grpc.insecure_channel(served.address) as channel:

        @settings(max_examples=3_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(method=st.sampled_from([*METHODS, REFLECTION]), payload=payloads)
        def every_method_refuses_or_answers(method, payload):
            code = send(channel, method, payload(method))
            assert code == "OK" or code in REFUSALS, (method, payload(method).hex(), code)

        every_method_refuses_or_answers()
        check_unharmed(served, channel)


@pytest.mark.slow
def test_every_method_is_attacked_with_each_cut_of_a_valid_request(served):
    chance = random.Random(1)
    with grpc.insecure_channel(served.address) as channel:
        for method in METHODS:
            data = valid(method)
            for end in sorted(chance.sample(range(len(data) + 1), min(4, len(data) + 1))):
                assert send(channel, method, data[:end]) in {"OK", *REFUSALS}
        check_unharmed(served, channel)


@pytest.mark.slow
def test_bytes_that_are_no_message_are_an_invalid_argument(served):
    with grpc.insecure_channel(served.address) as channel:
        codes = {method: send(channel, method, b"\xff\xff\xff") for method in METHODS if "memoryd" in method}
    assert set(codes.values()) == {"INVALID_ARGUMENT"}, codes
