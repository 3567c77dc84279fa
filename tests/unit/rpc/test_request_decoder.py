"""RequestDecoder: what it keeps of a large request."""

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.rpc.requests import SMALL_REQUEST_BYTES, RequestDecoder

# The tag of a field with the number 999.
UNKNOWN = b"\xba\x3e"


def decoded(text, unknown_bytes):
    length = pb.SyncRequest(reason="x" * unknown_bytes).SerializeToString()[1:]
    data = pb.MemoryAppendRequest(text=text).SerializeToString() + UNKNOWN + length
    return RequestDecoder(pb.MemoryAppendRequest.FromString, 1.0).request(data)


def test_a_large_request_keeps_no_field_that_memoryd_does_not_know():
    text = "heron" * SMALL_REQUEST_BYTES
    request = decoded(text, SMALL_REQUEST_BYTES)
    assert request == pb.MemoryAppendRequest(text=text)
    assert request.ByteSize() < len(text) + 20


def test_a_small_request_is_not_copied():
    assert decoded("heron", 10).ByteSize() > len("heron") + 10
