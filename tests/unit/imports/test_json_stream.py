"""The objects of a JSON array, read one at a time from a stream of foreign bytes."""

import io
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile_json import FRAGMENTS
from memoryd_server.imports.conversation import Unreadable
from memoryd_server.imports.json_stream import (
    MAX_UNREADABLE,
    Element,
    Fault,
    limit_unreadable,
    read_elements,
)
from properties import examples
from regex_attacks import takes_longer

SHORT_FRAGMENTS = [fragment for fragment in FRAGMENTS if len(fragment) < 2500]
OBJECT = {"a": [1, {"b": '"]}\\'}], "c": "line\nbreak ü 👋"}


class Blocks(io.RawIOBase):
    """A stream that returns at most `size` bytes at a time, however many are asked for."""

    def __init__(self, data, size):
        self._data = io.BytesIO(data)
        self._size = size

    def read(self, size=-1):
        return self._data.read(self._size)


class Failing(io.RawIOBase):
    def __init__(self, data):
        self._left = [data]

    def read(self, size=-1):
        if self._left:
            return self._left.pop()
        raise OSError("bad sector")


def read(data, size=1 << 16, **options):
    return list(read_elements(Blocks(data, size), **options))


def values(found):
    return [each.value for each in found if isinstance(each, Element)]


def faults(found):
    return [(each.number, each.reason) for each in found if isinstance(each, Fault)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=4), json_values, max_size=3), max_size=5)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(objects, st.integers(1, 40), st.booleans(), st.sampled_from([None, 2]))
def test_objects_of_an_array_are_those_of_the_parser_whatever_the_blocks(written, size, ascii_only, indent):
    data = json.dumps(written, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert read(data, size) == [Element(number, value) for number, value in enumerate(json.loads(data), 1)]


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.sampled_from([*SHORT_FRAGMENTS, ",", "[", "]", "{", "}", '"', "\\", ":", " ", "\n", "\xff"]), max_size=12
    )
)
def test_any_bytes_are_read_to_their_end_and_the_same_in_blocks_of_any_size(parts):
    data = "".join(parts).encode("latin-1", "ignore")
    whole = read(data)
    assert all(isinstance(each, Element | Fault) for each in whole)
    # NaN differs from itself.
    assert repr(whole) == repr(read(data, 1000))


@pytest.mark.parametrize(
    "data",
    [
        b'[{"a": 1}, {"a": 2}]',
        b'\xef\xbb\xbf [{"a": 1},\r\n{"a": 2}] \n',
        b'{"a": 1}\n{"a": 2}\n',
        b'{"a": 1} {"a": 2}',
        b'[{"a": 1},, {"a": 2},]',
    ],
)
def test_arrays_and_lines_of_objects_are_read(data):
    assert read(data) == [Element(1, {"a": 1}), Element(2, {"a": 2})]


def test_blocks_may_end_anywhere_in_a_string():
    data = json.dumps([OBJECT, {"a\\\\": '\\"'}]).encode()
    for size in range(1, len(data)):
        assert values(read(data, size)) == json.loads(data)


def test_file_with_one_object_is_read():
    assert read(json.dumps(OBJECT, indent=1).encode()) == [Element(1, OBJECT)]


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"a": "\\q"}',
        b'{"a": }',
        b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}",
        b"[" * 3000 + b"]" * 3000,
        b'{"a" 1}',
        b"{]",
        b"null",
        b"17",
        b'"text, with ] and {"',
        b"nonsense",
        b"}",
    ],
)
def test_damaged_element_is_left_out_and_the_next_one_is_read(damaged):
    found = read(b'[{"a": 1}, ' + damaged + b', {"a": 3}]')
    assert values(found) == [{"a": 1}, {"a": 3}]
    ((number, reason),) = faults(found)
    assert number == 2
    assert reason.startswith(("it is not valid JSON", "it is not a JSON object"))
    assert len(reason) < 200


def test_bytes_that_are_not_utf8_are_replaced():
    assert read(b'[{"a": "\xff\\ud800"}, {"b": NaN, "b": 1}]') == [Element(1, {"a": "��"}), Element(2, {"b": 1})]


@pytest.mark.parametrize(
    "large",
    [b'{"a": "' + b"x" * 2_000_000 + b'"}', b'{"a": ' + b"[]," * 700_000 + b"1}", b"[" + b"1," * 1_000_000 + b"2]"],
)
def test_element_that_is_too_large_is_left_out_and_the_next_one_is_read(large):
    found = read(b'[{"a": 1},' + large + b',{"a": 3}]', max_bytes=1 << 20)
    assert values(found) == [{"a": 1}, {"a": 3}]
    assert faults(found) == [(2, "it has more than 1 MiB")]


def test_element_of_the_maximum_size_is_read():
    text = "x" * ((1 << 20) - len('{"a":""}'))
    assert values(read(b'[{"a":"' + text.encode() + b'"}]', max_bytes=1 << 20)) == [{"a": text}]
    assert values(read(b'[{"a":"x' + text.encode() + b'"}]', max_bytes=1 << 20)) == []


def test_every_prefix_of_a_file_gives_the_objects_that_it_has_and_one_fault():
    data = json.dumps([OBJECT, OBJECT, OBJECT], ensure_ascii=False).encode()
    for end in range(1, len(data)):
        found = read(data[:end])
        assert values(found) == [OBJECT] * data[:end].count('👋"}'.encode())
        ((number, reason),) = faults(found)
        assert "the file ends" in reason
        assert number in (0, len(values(found)) + 1)


def test_empty_file_is_reported():
    assert faults(read(b"")) == faults(read(b" \n")) == [(0, "the file is empty")]
    assert read(b"[]") == []


def test_text_after_the_array_is_reported():
    assert read(b'[{"a": 1}] [{"a": 2}]') == [Element(1, {"a": 1}), Fault(0, "other text follows the end of its list")]


def test_error_of_the_stream_ends_it():
    found = list(read_elements(Failing(b'[{"a": 1}, {"a": 2}')))
    assert found == [Element(1, {"a": 1}), Fault(0, "reading fails: bad sector")]


def test_only_so_many_unreadable_parts_are_reported():
    items = [Unreadable(f"f, part {number}", "why") for number in range(MAX_UNREADABLE + 1_234)]
    limited = list(limit_unreadable([*items[:500], "conversation", *items[500:]], "f"))
    assert limited == [
        *items[:MAX_UNREADABLE],
        "conversation",
        Unreadable("f", "1,234 more of its parts cannot be read"),
    ]


PUMPS = {
    "string": b"x",
    "escapes": b'\\"',
    "backslashes": b"\\\\",
    "quotes": b'"',
    "opening brackets": b"[",
    "closing brackets": b"]}",
    "commas": b",",
    "blanks": b" ",
    "objects": b'{"a":1},',
    "bytes that are not UTF-8": b"\xff",
}


@pytest.mark.attacks
@pytest.mark.parametrize("start", [b'[{"a":"', b'[{"a":', b"[", b""])
@pytest.mark.parametrize("name", PUMPS)
def test_time_is_in_proportion_to_the_size(name, start):
    def work(data):
        for _ in read_elements(io.BytesIO(data)):
            pass

    half = start + PUMPS[name] * (20_000 // len(PUMPS[name]))
    assert not takes_longer(work, half, half + half[len(start) :], 5, 0.005)


MEMORY = """
import io, resource, sys
from memoryd_server.imports.json_stream import read_elements

class Generated(io.RawIOBase):
    def __init__(self, start, pump, size):
        self.blocks = iter([start, *[pump * (65536 // len(pump))] * (size // 65536)])
    def read(self, size=-1):
        return next(self.blocks, b"")

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, pump = (bytes.fromhex(each) for each in sys.stdin.read().split())
count = sum(1 for _ in read_elements(Generated(start, pump, 300 << 20)))
unit = 1 if sys.platform == "darwin" else 1024
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
"""
CONVERSATION = json.dumps({"id": "x", "mapping": {str(n): {"parent": "p", "text": "word " * 300} for n in range(40)}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "pump", "most_mib"),
    [
        pytest.param(b"[", CONVERSATION.encode().ljust(65_535) + b",", 16, id="conversations"),
        # Up to the limit of one element, its bytes are kept.
        pytest.param(b'[{"a":"', b"x", 80, id="one string"),
        pytest.param(b"[", b" ", 16, id="blanks"),
    ],
)
def test_memory_for_a_file_of_300_mib(start, pump, most_mib):
    given = f"{start.hex()} {pump.hex()}"
    done = subprocess.run([sys.executable, "-c", MEMORY], input=given, capture_output=True, text=True, check=True)
    count, grown = map(int, done.stdout.split())
    assert count >= 1
    assert grown < most_mib << 20
