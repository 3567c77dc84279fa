"""The default cut judges each leg on its own scale; the scale of an unknown model follows its cosines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.cutoff import DEFAULT_MIN_SCORE, CosineScale, default_cut, derived_scale, known_scale
from memoryd_server.search.query import Candidate

SCALE = CosineScale(0.1, 0.3)
COSINES = st.none() | st.floats(-1, 1)
CANDIDATES = st.lists(st.tuples(COSINES, st.none() | st.floats(0, 1), st.booleans()), max_size=30)


def near(number, cosine):
    return Candidate(number, max(0.0, cosine), vector_score=cosine, vector_rank=number)


def worded(number, text, cosine=0.0):
    return Candidate(number, 0.7 * cosine + 0.3 * text, text, cosine, keyword_rank=number)


def ids(candidates):
    return [candidate.chunk_id for candidate in candidates]


def made(parts):
    found = [
        Candidate(
            number,
            0.7 * max(0.0, cosine or 0.0) + 0.3 * (text or 0.0),
            text,
            cosine,
            number + 1 if text is not None and backed else None,
        )
        for number, (cosine, text, backed) in enumerate(parts)
    ]
    return sorted(found, key=lambda candidate: -candidate.score)


@pytest.mark.parametrize(
    ("cosines", "kept"),
    [((0.3, 0.2, 0.19), [0, 1]), ((0.29, 0.28), []), ((0.9,), [0]), ((), []), ((-0.5,), [])],
)
def test_once_the_best_reaches_the_least_others_pass_from_half_way(cosines, kept):
    found = default_cut([near(n, cosine) for n, cosine in enumerate(cosines)], SCALE)
    assert (ids(found.candidates), found.dropped) == (kept, len(cosines) - len(kept))


def test_hits_that_keywords_back_stay_and_keep_their_order():
    found = default_cut([worded(1, 1.0), near(2, 0.4), worded(3, 0.5), near(4, 0.1)], SCALE)
    assert (ids(found.candidates), found.dropped) == ([2, 1, 3], 1)
    assert list(found.near) == [2]


def test_common_words_do_not_fill_all_places():
    many = [worded(n, 1.0, 0.1) for n in range(1, 20)]
    found = default_cut([*many, near(50, 0.31), near(51, 0.3), near(52, 0.29)], SCALE).with_nearest(6)
    assert {50, 51} <= set(ids(found.candidates)[:6])
    assert 52 not in ids(found.candidates)[:6]


@given(CANDIDATES, st.integers(1, 50))
def test_nothing_that_passes_or_is_backed_is_removed_and_the_shown_come_by_score(parts, most):
    candidates = made(parts)
    cutoff = default_cut(candidates, SCALE)
    found = cutoff.with_nearest(most).candidates
    assert len(found) + cutoff.dropped == len(candidates)
    assert len(set(ids(found))) == len(found)
    least = SCALE.threshold(max((c.vector_score for c in candidates if c.vector_score is not None), default=-1))
    for candidate in candidates:
        worded = bool(candidate.text_score) and candidate.score >= DEFAULT_MIN_SCORE
        by_cosine = candidate.vector_score is not None and candidate.vector_score >= least
        assert (candidate in found) == (by_cosine or worded or candidate.keyword_rank is not None)
    scores = [candidate.score for candidate in found[:most]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    "model",
    [
        "all-minilm-l6-v2-q8_0.gguf",
        "sentence-transformers/all-MiniLM-L6-v2",
        "text-embedding-3-large",
        "all_minilm_l6_v2",
    ],
)
def test_a_known_model_is_found_by_its_name(model):
    scale = known_scale(model)
    assert scale is not None
    assert 0 < scale.unrelated < scale.least < 0.35


def test_a_model_that_is_not_in_the_table_has_no_known_scale():
    assert known_scale("nomic-embed-text") is None
    assert known_scale("") is None


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def shifted(rows, base):
    """Unit vectors whose cosines are `base + (1 - base) * cosine`."""
    return np.concatenate((np.full((len(rows), 1), math.sqrt(base)), math.sqrt(1 - base) * rows), axis=1)


def test_the_only_chunk_of_an_index_is_no_result_if_it_is_unrelated_to_the_question():
    only = [Candidate(1, 0.05, None, 0.05, None, 1)]
    found = default_cut(only, CosineScale(0.05, 0.05))
    assert (found.candidates, found.dropped) == ([], 1)


def test_a_chunk_dated_within_the_date_of_the_query_passes_by_its_date_alone():
    dated, near, other = Candidate(1, 0.6, date=0.6), Candidate(2, 0.5, date=0.5), Candidate(3, 0.1)
    found = default_cut([dated, near, other], SCALE)
    assert (found.candidates, found.dropped) == ([dated], 2)


VECTORS = st.integers(0, 2**32 - 1).map(lambda seed: unit(np.random.default_rng(seed).standard_normal((12, 8))))


@given(VECTORS, st.floats(0, 0.95))
def test_a_derived_scale_moves_with_a_models_base_similarity(rows, base):
    plain = derived_scale(rows[0].astype(np.float32), rows[1:].mean(axis=0).astype(np.float32))
    moved = shifted(rows, base)
    scale = derived_scale(moved[0].astype(np.float32), moved[1:].mean(axis=0).astype(np.float32))
    assert scale.unrelated == pytest.approx(base + (1 - base) * plain.unrelated, abs=1e-5)
    assert scale.least == pytest.approx(base + (1 - base) * plain.least, abs=1e-4)


@given(VECTORS, st.integers(1, 11))
def test_a_derived_least_is_never_far_above_the_mean(rows, count):
    centre = rows[1 : count + 1].mean(axis=0)
    scale = derived_scale(rows[0].astype(np.float32), centre.astype(np.float32))
    assert scale.unrelated - 1e-4 <= scale.least <= scale.unrelated + 0.18 * math.sqrt(2)


@given(VECTORS)
def test_the_only_chunk_of_an_index_always_passes(rows):
    question, chunk = rows[0].astype(np.float32), rows[1].astype(np.float32)
    cosine = float(question.astype(np.float64) @ chunk.astype(np.float64))
    assert derived_scale(question, chunk).threshold(cosine) <= cosine
