"""The least cosine of an entry in a recall block, by the model's scale."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.entries.model import distance_score, score_cosine
from memoryd_server.entries.relevance import (
    LEAST_SAMPLED,
    REFERENCE_TEXTS,
    derived_least_cosine,
    known_least_cosine,
)


@given(st.floats(-1, 1))
def test_the_cosine_of_a_score_is_that_of_its_distance(cosine):
    assert score_cosine(distance_score(2 - 2 * cosine)) == pytest.approx(cosine, abs=1e-9)


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("all-MiniLM-L6-v2.Q8_0.gguf", 0.30),
        ("text-embedding-3-small", 0.325),
        ("text-embedding-ada-002", 0.75),
        ("nomic-embed-text", None),
        ("", None),
    ],
)
def test_known_models_have_a_stricter_least_cosine_than_a_search(model, least):
    assert known_least_cosine(model) == (least if least is None else pytest.approx(least))


def texts_with(base, count, dimensions=64):
    """Unit vectors with the cosine `base` with each other, and one more that is near to none of them."""
    vectors = np.zeros((count + 1, dimensions), np.float32)
    vectors[:, 0] = math.sqrt(base)
    for number in range(count + 1):
        vectors[number, 1 + number] = math.sqrt(1 - base)
    return list(vectors[:-1]), vectors[-1]


@pytest.mark.parametrize("base", [0.0, 0.3, 0.7, 0.9])
@pytest.mark.parametrize("count", [len(REFERENCE_TEXTS), LEAST_SAMPLED])
def test_the_least_cosine_of_an_unknown_model_is_above_its_unrelated_texts(base, count):
    sample, prompt = texts_with(base, count)
    least = derived_least_cosine(prompt, sample)
    assert base + 0.2 * (1 - base) < least < base + 0.3 * (1 - base)


def test_without_a_sample_the_least_cosine_is_fixed():
    one = np.ones(1, np.float32)
    assert derived_least_cosine(one, []) == derived_least_cosine(one, [one]) == pytest.approx(0.35)
