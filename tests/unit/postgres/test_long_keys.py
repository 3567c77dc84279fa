"""Texts that are longer than a row of an index of PostgreSQL, which has at most 2,704 bytes, do not fail a sync."""

import random
from dataclasses import replace

import pytest

from memoryd_server.store.filters import (
    ALL_CHUNKS,
    ChunkFilter,
    FileFilter,
    FrontMatterCondition,
    front_matter_value,
)
from memoryd_server.store.rows import MAX_KEY_CHARS, MAX_VALUE_CHARS, CacheKey
from memoryd_server.text.terms import QueryTerm
from unit.store.contract import document

pytestmark = pytest.mark.postgres

pytest.importorskip("psycopg")


def random_text(length, first, last):
    """A text that the server cannot compress."""
    return "".join(map(chr, random.Random(length).choices(range(first, last + 1), k=length)))


LETTERS = random_text(10_000, ord("a"), ord("z"))
IDEOGRAPHS = random_text(10_000, 0x20000, 0x2A6D0)
DIGITS = random_text(10_000, ord("0"), ord("9"))


@pytest.fixture
def store(postgres_module, request):
    store = postgres_module.new_store(f"agent of {request.node.name}")
    store.open()
    yield store
    store.close()


@pytest.mark.parametrize("word", [LETTERS, IDEOGRAPHS, f"x_{DIGITS}"], ids=["letters", "ideographs", "digits"])
def test_a_word_of_10_000_characters_is_indexed_and_found(store, word):
    store.writer().write([document("a.md", (f"heron {word} robin", word)), document("b.md", ("heron", ""))])
    with store.read() as reader:
        for term, count in (("heron", 2), ("robin", 1), (word, 1)):
            assert len(reader.keyword_hits([QueryTerm(term)], ALL_CHUNKS, 10)) == count
        assert len(reader.keyword_hits([QueryTerm(word[:200], prefix=True)], ALL_CHUNKS, 10)) == 1
    writer = store.writer()
    writer.write([], writer.files().values())
    with store.read() as reader:
        assert reader.keyword_hits([QueryTerm("heron")], ALL_CHUNKS, 10) == []


def test_the_longest_values_of_front_matter_that_filters_compare_are_found_and_longer_ones_are_ignored(store):
    key, value = IDEOGRAPHS[:MAX_KEY_CHARS], IDEOGRAPHS[-MAX_VALUE_CHARS:]
    metadata = {key: value, "long": IDEOGRAPHS, IDEOGRAPHS: "long", "tags": [LETTERS, "harbour"]}
    store.writer().write([replace(document("a.md", ("heron", "")), metadata=metadata)])
    with store.read() as reader:

        def found(key, value):
            condition = FrontMatterCondition(key, (front_matter_value(value),))
            return len(reader.matching_files(ChunkFilter(files=FileFilter(front_matter=(condition,)))))

        assert found(key, value) == found("tags", "harbour") == 1
        assert found(key, "harbour") == found("long", IDEOGRAPHS) == found("tags", LETTERS) == 0


def test_the_vectors_of_a_model_with_a_long_name_are_cached(postgres_module, request):
    agent = f"agent of {request.node.name}"
    cache = postgres_module.child.PostgresEmbeddingCache(postgres_module.database(), agent, 10, lambda: 1)
    long, other = (CacheKey("openai-compatible", name, "key") for name in (LETTERS, LETTERS[:-1] + "-"))
    cache.put(long, {b"text": b"vector"})
    cache.add_refusals(other, {b"text": "too long"})
    cache.add_usage({("openai-compatible", LETTERS): (1, 2, 3, 4)})
    assert cache.get(long, [b"text"]) == {b"text": b"vector"}
    assert cache.get(other, [b"text"]) == {}
    assert (cache.refusals(long), cache.refusals(other)) == ({}, {b"text": "too long"})
    ((provider, name), counts) = next(iter(cache.usage().items()))
    assert (provider, name[:50], counts) == ("openai-compatible", LETTERS[:50], (1, 2, 3, 4))
    cache.close()
