"""Whatever others write, the text that is made of it can be encoded."""

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.errors import MemorydError
from memoryd_server.foreign_text import parse_json, shown_path, valid_text, valid_tree
from memoryd_server.providers.http_errors import RequestRefused, SecretRedactor, parse_error, raise_for
from memoryd_server.providers.pacing import TransientFailure

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
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


def test_json_that_is_nested_too_deeply_is_a_value_error():
    with pytest.raises(ValueError, match="deep"):
        parse_json("[" * 100_000)


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
