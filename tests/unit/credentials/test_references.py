"""The grammar of SecretRefs, and JSON pointers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.credentials import (
    MalformedReference,
    SecretReference,
    environment_reference,
    parse_reference,
)
from memoryd_server.credentials.references import at_pointer
from properties import examples

VALID = [
    ("env", "default", "OPENAI_API_KEY"),
    ("file", "filemain", "/providers/openai/apiKey"),
    ("file", "filemain", "/a~1b/~0/0"),
    ("file", "one", "value"),
    ("exec", "vault", "providers/openai/apiKey#value"),
    ("store", "team-store", "OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("source", "provider", "name"), VALID)
def test_a_reference_of_each_source_is_read(source, provider, name):
    found = parse_reference({"source": source, "provider": provider, "id": name})
    assert found == SecretReference(source, provider, name)


MALFORMED = [
    {},
    {"source": "env", "id": "X"},
    {"source": "vault", "provider": "a", "id": "X"},
    {"source": ["env"], "provider": "a", "id": "X"},
    {"source": "env", "provider": "Default", "id": "X"},
    {"source": "env", "provider": "", "id": "X"},
    {"source": "env", "provider": 5, "id": "X"},
    {"source": "env", "provider": "a", "id": "x"},
    {"source": "env", "provider": "a", "id": "X" * 129},
    {"source": "env", "provider": "a", "id": "X", "default": "sk-secret"},
    {"source": "file", "provider": "a", "id": "openai"},
    {"source": "file", "provider": "a", "id": "/a~2"},
    {"source": "file", "provider": "a", "id": "/" + "a" * 1024},
    {"source": "exec", "provider": "a", "id": "a/../b"},
    {"source": "exec", "provider": "a", "id": "-rf"},
    {"source": "store", "provider": "a", "id": None},
]


@pytest.mark.parametrize("raw", MALFORMED, ids=str)
def test_anything_else_is_malformed_and_its_values_are_not_shown(raw):
    found = parse_reference(raw)
    assert isinstance(found, MalformedReference)
    assert "sk-secret" not in found.reason


def test_the_default_alias_is_used_where_a_provider_may_be_left_out():
    raw = {"source": "file", "id": "value"}
    assert parse_reference(raw, {"file": "main"}) == SecretReference("file", "main", "value")
    assert parse_reference(raw, {}) == SecretReference("file", "default", "value")


anything = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.text(max_size=3), max_size=2)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from(["source", "provider", "id", "x"]) | st.text(max_size=4), anything, max_size=5))
def test_no_object_is_an_error(raw):
    found = parse_reference(raw)
    if isinstance(found, SecretReference):
        assert (found.source, found.provider, found.id) == (raw["source"], raw["provider"], raw["id"])


@pytest.mark.parametrize(
    ("text", "name"),
    [("${KEY}", "KEY"), (" $KEY ", "KEY"), ("$key", None), ("${KEY}x", None), ("$${KEY}", None), ("$", None)],
)
def test_a_text_that_is_a_variable_is_a_reference(text, name):
    assert environment_reference(text, "default") == (name and SecretReference("env", "default", name))


documents = st.recursive(
    st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def pointers(value, path=""):
    """Yield each pointer into `value` with the value that it points to."""
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, each in inner:
        here = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield here, each
        yield from pointers(each, here)


@settings(max_examples=examples(300), deadline=None)
@given(documents)
def test_every_value_is_found_by_its_pointer(document):
    for pointer, value in pointers(document):
        assert at_pointer(document, pointer) == value
        if len(pointer) <= 1024:
            assert parse_reference({"source": "file", "provider": "a", "id": pointer}) == SecretReference(
                "file", "a", pointer
            )


@settings(max_examples=examples(300), deadline=None)
@given(documents, st.text(max_size=12))
def test_any_other_pointer_finds_nothing(document, text):
    known = dict(pointers(document))
    pointer = f"/{text}"
    if pointer in known:
        return
    try:
        found = at_pointer(document, pointer)
    except LookupError:
        return
    # A `~` that is not followed by 0 or 1 stands for itself.
    assert "~" in text
    assert found in known.values()


@pytest.mark.parametrize("pointer", ["/a/01", "/a/-", "/a/-1", "/a/2", "/b", "/a/0/x", "/a/1e0"])
def test_an_index_is_written_without_signs_and_leading_zeros(pointer):
    with pytest.raises(LookupError):
        at_pointer({"a": ["x", "y"]}, pointer)
