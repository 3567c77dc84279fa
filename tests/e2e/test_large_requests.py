"""Requests that are large and useless: those of streams are refused, and others are answered without their excess."""

import grpc
import pytest
from grpc_health.v1 import health_pb2

from daemon_process import serving_heron
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.rpc.requests import SMALL_REQUEST_BYTES

pytestmark = pytest.mark.attacks

LARGE_BYTES = 3_900_000
TIMEOUT = 90
MEMORY = "/memoryd.v1.MemoryService/"
WATCH_HEALTH = "/grpc.health.v1.Health/Watch"


def with_unknown_field(request, size=LARGE_BYTES):
    """Return the bytes of a request with a field that no version of memoryd knows."""
    unknown = pb.SyncRequest(reason="x" * size).SerializeToString().replace(b"\x4a", b"\xba\x3e", 1)
    return request.SerializeToString() + unknown


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    home = tmp_path_factory.mktemp("large")
    with serving_heron(home, "{memoryd: {limits: {shutdownGraceSeconds: 1}}}") as served:
        yield served


@pytest.fixture
def metadata(served):
    return (("authorization", f"Bearer {(served.state / 'memoryd.token').read_text().split()[0]}"),)


@pytest.fixture(params=[0, 1], ids=["tcp", "unix"])
def channel(request, served):
    with grpc.insecure_channel(served.address.split(", ")[request.param]) as channel:
        yield channel


def test_request_with_an_unknown_field_is_still_that_request(channel, metadata):
    search = channel.unary_unary(f"{MEMORY}MemorySearch", response_deserializer=pb.MemorySearchResponse.FromString)
    found = search(with_unknown_field(pb.MemorySearchRequest(query="heron")), metadata=metadata, timeout=TIMEOUT)
    assert [hit.path for hit in found.results] == ["memory/a.md"]


@pytest.mark.parametrize(
    ("method", "data"),
    [
        (f"{MEMORY}WatchIndex", with_unknown_field(pb.WatchIndexRequest(), SMALL_REQUEST_BYTES)),
        (f"{MEMORY}Sync", pb.SyncRequest(reason="x" * SMALL_REQUEST_BYTES).SerializeToString()),
        (WATCH_HEALTH, health_pb2.HealthCheckRequest(service="x" * LARGE_BYTES).SerializeToString()),
    ],
    ids=["WatchIndex", "Sync", "Health"],
)
def test_large_request_of_a_stream_is_refused(channel, metadata, method, data):
    with pytest.raises(grpc.RpcError) as refusal:
        next(channel.unary_stream(method)(data, metadata=metadata, timeout=TIMEOUT))
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"requests of this method have at most {SMALL_REQUEST_BYTES:,}" in refusal.value.details()
