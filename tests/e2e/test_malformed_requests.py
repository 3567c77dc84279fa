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


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, kind, payload):
    body = varint(len(payload)) + payload if kind == 2 else payload
    return varint(number << 3 | kind) + body


def _nest(number, depth, core):
    for _ in range(depth):
        core = field(number, 2, core)
    return core


numbers = st.integers(0, 40) | st.sampled_from([2**29 - 1, 2**29, 2**32, 2**61])
varints = (st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**31, 2**63 - 1])).map(varint)
texts = st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30)
parts = st.one_of(
    st.builds(field, numbers, st.just(0), varints),
    st.builds(field, numbers, st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(field, numbers, st.just(2), texts),
    st.builds(field, numbers, st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(field, numbers, st.sampled_from([3, 4, 6, 7]), st.binary(max_size=4)),
    # A length that promises more than there is.
    st.builds(lambda number, size: varint(number << 3 | 2) + varint(size), numbers, st.integers(1, 2**63)),
)
made_of_parts = st.lists(parts, max_size=8).map(b"".join)
nested = st.builds(_nest, st.integers(1, 16), st.integers(1, 150), parts)
changes = st.tuples(st.integers(0, 2**16), st.sampled_from(["flip", "cut", "insert", "double"]), st.binary(max_size=6))


def changed(data, changes):
    for place, how, extra in changes:
        at = place % (len(data) + 1)
        if how == "flip" and data:
            at = place % len(data)
            data = data[:at] + bytes([data[at] ^ (1 << place % 8)]) + data[at + 1 :]
        elif how == "cut":
            data = data[:at]
        elif how == "insert":
            data = data[:at] + extra + data[at:]
        else:
            data += data[:at]
    return data


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
    assert {file.name for file in served.home.iterdir()} == {
        "daemon.log",
        "memoryd.json5",
        "outside.md",
        "workspace",
        "state",
    }
    assert (served.home / "outside.md").read_text() == "SECRET"
    assert all(file.suffix == ".md" for file in served.workspace.rglob("*") if file.is_file())


def attack(served, most):
    with grpc.insecure_channel(served.address) as channel:

        @settings(max_examples=most, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(method=st.sampled_from([*METHODS, REFLECTION]), payload=payloads)
        def every_method_refuses_or_answers(method, payload):
            code = send(channel, method, payload(method))
            assert code == "OK" or code in REFUSALS, (method, payload(method).hex(), code)

        every_method_refuses_or_answers()
        check_unharmed(served, channel)


@pytest.mark.slow
@pytest.mark.parametrize("most", [30, pytest.param(6_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_bytes_that_are_no_request_are_refused_and_harm_nothing(served, most):
    attack(served, most)


@pytest.mark.slow
def test_every_method_is_attacked_with_each_cut_of_a_valid_request(served):
    chance = random.Random(1)
    with grpc.insecure_channel(served.address) as channel:
        for method in METHODS:
            data = valid(method)
            for end in sorted(chance.sample(range(len(data) + 1), min(4, len(data) + 1))):
                assert send(channel, method, data[:end]) in {"OK", *REFUSALS}
        check_unharmed(served, channel)


def test_bytes_that_are_no_message_are_an_invalid_argument(served):
    with grpc.insecure_channel(served.address) as channel:
        codes = {method: send(channel, method, b"\xff\xff\xff") for method in METHODS if "memoryd" in method}
    assert set(codes.values()) == {"INVALID_ARGUMENT"}, codes
