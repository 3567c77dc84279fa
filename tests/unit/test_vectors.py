import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.vectors import InvalidVector, from_blob, to_blob, unit


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1.0, math.nan], "not finite"),
        ([math.inf, 1.0], "not finite"),
        ([0.0, 0.0], "zero"),
        ([1e-12, 0.0], "zero"),
        ([], "not a list|empty"),
        ([[1.0], [2.0]], "not a list of numbers"),
        ([[1.0], [2.0, 3.0]], "not a list of numbers"),
        (["a", "b"], "not a list of numbers"),
        ([1.0, None], "not a list of numbers"),
        ([True, False], "not a list of numbers"),
        (None, "not a list of numbers"),
        ("AAAA", "not a list of numbers"),
        ({"a": 1}, "not a list of numbers"),
        ([10**400, 1], "not a list of numbers"),
        ([True, 0.5], "not a list of numbers"),
        ([2**63, 2**64], "not a list of numbers"),
        ([1] * 140_000, "more than 131072"),
    ],
)
def test_a_vector_without_a_direction_is_refused(values, why):
    with pytest.raises(InvalidVector, match=why):
        unit(values)


@pytest.mark.attacks
def test_texts_in_place_of_numbers_take_no_memory():
    """An array of text gives each of its elements the size of the longest one: here 112 GiB."""
    with pytest.raises(InvalidVector, match="not a list of numbers"):
        unit(["x" * 1_000_000] + [""] * 30_000)


def test_other_dimensions_than_the_known_ones_are_refused():
    with pytest.raises(InvalidVector, match="3 dimensions instead of 2"):
        unit([1, 2, 3], 2)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
def test_a_vector_that_is_taken_has_length_one(values):
    if max(map(abs, values)) < 1e-10:
        return
    vector = unit(values, len(values))
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1.0, abs=1e-5)


def test_a_blob_is_little_endian_and_comes_back_the_same():
    vector = unit([3, 4])
    assert to_blob(vector) == np.array([0.6, 0.8], "<f4").tobytes()
    assert (from_blob(to_blob(vector)) == vector).all()
