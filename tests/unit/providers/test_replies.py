"""The fast decoder of replies returns what `parse_json` returns, whatever the server sends."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.foreign_text import MAX_BRACKETS, MAX_DEPTH, is_bounded, parse_json
from memoryd_server.providers.http_client import parse_reply

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def outcome(parse, data):
    """Return the value with its types, in which NaN equals itself; "refused" for a ValueError."""
    try:
        return repr(parse(data))
    except ValueError:
        return "refused"


@given(TREES)
def test_a_json_text_has_the_same_value(tree):
    data = json.dumps(tree).encode()
    assert outcome(parse_reply, data) == outcome(parse_json, data) != "refused"


@given(st.binary(max_size=40) | st.text('[]{}",:.0123456789eE+-naNIfity \\u\n', max_size=40).map(str.encode))
def test_what_is_no_json_text_is_refused_or_repaired_alike(data):
    assert outcome(parse_reply, data) == outcome(parse_json, data)


@pytest.mark.parametrize(
    "data",
    [
        b"[9223372036854775807, -9223372036854775808]",
        b"[9223372036854775808]",
        b'{"a": {"b": [0.5, -9223372036854775809]}}',
        b"[0.5, 1e400, -1e-400, NaN, -Infinity]",
        b"[" + b"1" * 5_000 + b"]",
        b'{"a": 1, "a": 2}',
        b'{"\\ud800": "\\ud83d\\ude00 \\udc00"}',
        b'"\xff\xfe"',
        b"\xef\xbb\xbf[1]",
        "[1, 2]".encode("utf-16"),
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"[" * 100_000,
        b"[" + b"[]," * MAX_BRACKETS + b"0]",
    ],
    ids=range(14),
)
def test_every_bound_is_that_of_parse_json(data):
    assert outcome(parse_reply, data) == outcome(parse_json, data)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=200))
def test_a_vector_keeps_every_bit(numbers):
    (vector,) = parse_reply(json.dumps([numbers]).encode())
    assert [math.copysign(1, x) for x in vector] == [math.copysign(1, x) for x in numbers]
    assert vector == numbers


@pytest.mark.parametrize(
    ("value", "bounded"),
    [
        (2**63 - 1, True),
        (2**63, False),
        ([-(2**63), 0.5, True, None, "a"], True),
        ([[0.5] * 3, {"a": [-(2**63) - 1]}], False),
        ({"a": 2**64}, False),
    ],
)
def test_only_ints_of_64_bits_are_bounded(value, bounded):
    assert is_bounded(value) is bounded
