"""Whatever others write, the text that is made of it can be encoded."""

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.errors import MemorydError
from memoryd_server.foreign_text import (
    MAX_BRACKETS,
    MAX_DEPTH,
    is_nested_deeper,
    parse_json,
    scan_json,
    shown_path,
    valid_text,
    valid_tree,
    whole_number,
)
from memoryd_server.providers.http_errors import RequestRefused, SecretRedactor, parse_error, raise_for
from memoryd_server.providers.pacing import TransientFailure

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=12,
)


def strings(tree):
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        yield from (text for pair in tree.items() for part in pair for text in strings(part))
    elif isinstance(tree, list):
        yield from (text for part in tree for text in strings(part))


def check_valid(*texts):
    for text in texts:
        assert text.encode().decode() == text


@given(ANY_TEXT)
def test_text_is_valid_and_only_surrogates_change(text):
    valid = valid_text(text)
    check_valid(valid)
    assert [c for c in valid if c != "\ufffd" and c <= "\uffff"] == [
        c for c in text if not "\ud800" <= c <= "\udfff" and c != "\ufffd" and c <= "\uffff"
    ]


@given(st.text())
def test_valid_text_is_left_as_it_is(text):
    assert valid_text(text) is text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\ud800b", "a\ufffdb"), ("\udfff", "\ufffd"), ("\ud800\ud800", "\ufffd\ufffd"), ("\ud83d\ude00", "\U0001f600")],
)
def test_each_lone_surrogate_becomes_one_replacement_character(text, shown):
    assert valid_text(text) == shown


@given(st.binary(min_size=1))
def test_a_file_name_shows_its_bytes_that_are_not_utf_8(name):
    shown = shown_path(os.fsdecode(name))
    check_valid(shown)
    assert shown == name.decode("utf-8", "backslashreplace")


@given(ANY_TEXT)
def test_any_path_is_shown(path):
    check_valid(shown_path(path))


@given(TREES)
def test_every_string_of_a_tree_becomes_valid(tree):
    check_valid(*strings(valid_tree(tree)))


@given(TREES, st.booleans())
def test_json_is_parsed_with_valid_strings(tree, as_bytes):
    text = json.dumps(tree)
    parsed = parse_json(text.encode() if as_bytes else text)
    check_valid(*strings(parsed))
    assert json.dumps(parsed) == json.dumps(valid_tree(json.loads(text)))


@given(st.binary())
def test_bytes_that_are_no_json_are_a_value_error(data):
    with contextlib.suppress(ValueError):
        check_valid(*strings(parse_json(b'["' + data + b'"]')))


@pytest.mark.parametrize("text", [b'"\xed\xa0\x80"', b'"\xff"', '"\ud800"', '"\\uD800"', '"\\udFFF"'])
def test_a_surrogate_in_json_is_replaced_however_it_is_written(text):
    assert set(parse_json(text)) == {"\ufffd"}


def nested(depth, opening="[", closing="]"):
    return opening * depth + "1" + closing * depth


@pytest.mark.attacks
@pytest.mark.parametrize("text", ["[" * 100_000, nested(MAX_DEPTH + 1), nested(900), nested(900, '{"a":', "}")])
def test_json_that_is_nested_too_deeply_is_a_value_error(text):
    for parse in (parse_json, lambda text: scan_json(text, 0)):
        with pytest.raises(ValueError, match="deep"):
            parse(text)


@pytest.mark.attacks
def test_json_is_as_deep_as_allowed_on_a_stack_that_is_nearly_full():
    """The depth that is allowed does not depend on the caller."""

    def call(levels):
        return call(levels - 1) if levels else parse_json(nested(MAX_DEPTH))

    assert call(300)


@pytest.mark.attacks
def test_json_of_millions_of_lists_is_refused_before_it_takes_memory():
    with pytest.raises(ValueError, match="lists and objects"):
        parse_json("[" + "[]," * MAX_BRACKETS + "[]]")


def test_brackets_within_strings_do_not_count_as_depth():
    assert parse_json('["' + "[" * 10_000 + '"]') == ["[" * 10_000]


@given(TREES, st.integers(0, 12))
def test_depth_is_that_of_the_deepest_value(tree, most):
    def depth(value):
        inside = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, inside), default=0) if isinstance(value, dict | list) else 0

    assert is_nested_deeper(tree, most) == (depth(tree) > most)


@pytest.mark.attacks
@given(st.integers(-(10**30), 10**30))
def test_an_int_in_json_fits_in_64_bits_or_is_a_float(number):
    value = parse_json(str(number))
    assert value == number if -(2**63) <= number < 2**63 else isinstance(value, float)


@pytest.mark.attacks
def test_an_int_of_any_length_is_read():
    assert parse_json("-" + "9" * 100_000) == float("-inf")


@given(st.integers() | st.floats() | st.booleans() | st.text() | st.none() | st.lists(st.integers()))
def test_a_whole_number_is_in_its_range(value):
    found = whole_number(value, 2**31)
    if isinstance(value, bool) or not isinstance(value, int | float):
        assert found is None
    elif found is not None:
        assert found == value
        assert 0 <= found <= 2**31
    else:
        assert not (0 <= value <= 2**31 and value == value // 1)


@given(TREES, ANY_TEXT)
def test_json_is_found_whatever_follows_it(tree, rest):
    text = json.dumps([tree])
    found = scan_json(f"x{text}{rest}", 1)
    check_valid(*strings(found))
    assert json.dumps(found) == json.dumps(valid_tree(json.loads(text)))


@given(ANY_TEXT, ANY_TEXT)
def test_the_message_and_metadata_of_an_error_are_valid(words, value):
    error = MemorydError(words, metadata={"a": value})
    check_valid(error.message, str(error), *error.metadata.values())


@given(st.sampled_from([400, 401, 402, 403, 404, 413, 429, 500, 503]), TREES | st.binary(), ANY_TEXT)
def test_whatever_an_error_answer_holds_its_message_is_valid_and_bounded(status, tree, name):
    body = tree if isinstance(tree, bytes) else json.dumps({"error": tree}).encode()
    check_valid(parse_error(body).message)
    with pytest.raises((MemorydError, RequestRefused, TransientFailure)) as caught:
        raise_for(status, {}, body, valid_text(name)[:50], SecretRedactor(["secret"]))
    check_valid(str(caught.value))
    assert len(str(caught.value)) < 500
