"""The identity of vectors, as stored in the index and in the cache, also by versions that knew no pieces."""

import json

import pytest

from memoryd_server.providers.provider import spec_for
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.rows import CacheKey

WHOLE = VectorIdentity("local", "all-minilm-l6-v2-q8_0.gguf", "", 384, "", "")
IN_PIECES = VectorIdentity("local", "all-minilm-l6-v2-q8_0.gguf", "", 384, "", "", 500)
OLD_JSON = (
    '{"dimensions": 384, "document_prefix": "", "endpoint": "", "model": "all-minilm-l6-v2-q8_0.gguf",'
    ' "provider": "local", "query_prefix": ""}'
)


def test_an_identity_of_an_earlier_version_is_that_of_texts_embedded_whole():
    assert VectorIdentity.from_json(OLD_JSON) == WHOLE


def test_the_identity_of_texts_embedded_whole_is_stored_as_by_earlier_versions():
    assert WHOLE.to_json() == OLD_JSON


def test_the_length_of_pieces_is_stored():
    assert json.loads(IN_PIECES.to_json()) == {**json.loads(OLD_JSON), "piece_chars": 500}
    assert VectorIdentity.from_json(IN_PIECES.to_json()) == IN_PIECES


def test_pieces_are_a_difference_with_both_values():
    assert WHOLE.differences(IN_PIECES) == (("piece_chars", "0", "500"),)
    assert not IN_PIECES.matches(WHOLE)
    assert IN_PIECES.matches(IN_PIECES)


@pytest.mark.parametrize(
    ("identity", "around"),
    [
        (
            VectorIdentity("openai", "text-embedding-3-small", "https://api.openai.com/v1", 0, "", ""),
            "e73c2c93b442818b9b277f3fda9950940ce40e0bfcb79a3464030fc077c37562",
        ),
        (WHOLE, "98d2ebded0a3c879c8c19dca7fdf3690b59cf23bb6d02241523bf3bf69128a51"),
    ],
)
def test_the_cache_key_of_texts_embedded_whole_is_that_of_earlier_versions(identity, around):
    assert identity.cache_key() == CacheKey(identity.provider, identity.model, around)


def test_pieces_have_a_cache_key_of_their_own():
    others = [WHOLE, VectorIdentity("local", "all-minilm-l6-v2-q8_0.gguf", "", 384, "", "", 400)]
    assert IN_PIECES.cache_key() not in [each.cache_key() for each in others]


@pytest.mark.parametrize(
    ("model", "chars"),
    [
        ("all-minilm-l6-v2-q8_0.gguf", 500),
        ("sentence-transformers/all-MiniLM-L6-v2", 500),
        ("text-embedding-3-small", 0),
        ("embeddinggemma-300m-qat-Q8_0.gguf", 0),
        ("nomic-embed-text", 0),
        ("bge-small-en-v1.5", 0),
    ],
)
def test_the_model_decides_the_length_of_pieces_and_its_spec_comes_back(model, chars):
    spec = spec_for("local", model, dimensions=384)
    identity = VectorIdentity.of(spec)
    assert (spec.piece_chars, identity.piece_chars, identity.spec().piece_chars) == (chars, chars, chars)
