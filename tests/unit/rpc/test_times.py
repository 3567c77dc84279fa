"""Every number of seconds or nanoseconds becomes a Duration or a Timestamp."""

import math

import pytest
from google.protobuf.json_format import MessageToJson
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.errors import EmbeddingOutage
from memoryd_server.rpc.errors import status_of
from memoryd_server.rpc.wire import MAX_DURATION_SECONDS, duration, timestamp

pytestmark = pytest.mark.attacks


@given(st.floats() | st.integers(-(10**300), 10**300))
def test_any_seconds_become_a_duration(seconds):
    found = duration(seconds)
    assert MessageToJson(found)
    if not math.isnan(seconds) and abs(seconds) <= 1e9:
        assert found.ToMicroseconds() == pytest.approx(seconds * 1e6, abs=1)
    assert abs(found.seconds) <= MAX_DURATION_SECONDS


@given(st.integers(-(10**40), 10**40))
def test_any_nanoseconds_become_a_timestamp(unix_ns):
    assert MessageToJson(timestamp(unix_ns))


@given(st.floats())
def test_any_pause_becomes_a_hint_to_retry(seconds):
    status = status_of(EmbeddingOutage("away", retry_after_seconds=seconds))
    info = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    assert MessageToJson(info)
