"""Frames on the socket pair between the daemon and a reader process."""

import pickle
import struct
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.readers.messages import (
    MAX_BODY_BYTES,
    CloseIndex,
    FrameDecoder,
    FrameError,
    IndexClosed,
    Ready,
    ReleaseMemory,
    ResetVectors,
    SearchFailure,
    VectorChanges,
    encode,
)
from properties import examples

NUMBERS = st.integers(0, 2**63)
IDS = st.lists(NUMBERS, max_size=5).map(tuple)
MESSAGES = st.one_of(
    st.builds(Ready),
    st.builds(IndexClosed, NUMBERS),
    st.builds(SearchFailure, NUMBERS, st.text(), st.text()),
    st.builds(CloseIndex, NUMBERS, st.text()),
    st.builds(VectorChanges, st.text(), IDS, IDS),
    st.builds(ResetVectors, st.text()),
    st.builds(ReleaseMemory, st.text()),
)


@given(messages=st.lists(MESSAGES, max_size=6), data=st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_stream_cut_at_any_places_gives_the_messages_in_order(messages, data):
    stream = b"".join(map(encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, received = FrameDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == messages
    assert not decoder.has_partial_frame


@given(message=MESSAGES, data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_a_message_is_complete_only_with_its_last_byte(message, data):
    frame, decoder = encode(message), FrameDecoder()
    cut = data.draw(st.integers(1, len(frame) - 1))
    assert decoder.feed(frame[:cut]) == []
    assert decoder.has_partial_frame
    assert decoder.feed(frame[cut:]) == [message]


@given(garbage=st.binary(min_size=1, max_size=200))
@settings(max_examples=examples(300), deadline=None)
def test_a_body_without_a_message_is_refused(garbage):
    with pytest.raises(FrameError, match="cannot decode a frame"):
        FrameDecoder().feed(struct.pack("<I", len(garbage)) + garbage)


@dataclass(frozen=True)
class Other:
    number: int


@pytest.mark.parametrize("value", [None, 3, "Ready", (1, 2), Other(1), Ready], ids=str)
def test_a_pickled_value_that_is_no_message_is_refused(value):
    body = pickle.dumps(value)
    with pytest.raises(FrameError, match="instead of a message"):
        FrameDecoder().feed(struct.pack("<I", len(body)) + body)


def test_a_length_above_the_limit_is_refused_before_its_body_arrives():
    with pytest.raises(FrameError, match=f"longer than {MAX_BODY_BYTES} bytes"):
        FrameDecoder().feed(struct.pack("<I", MAX_BODY_BYTES + 1))


def test_a_message_above_the_limit_is_not_sent():
    with pytest.raises(FrameError, match="longer than"):
        encode(SearchFailure(1, "x" * (MAX_BODY_BYTES + 1), "internal"))
