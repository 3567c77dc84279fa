"""Variety changes the order and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.diversity import diversified, jaccard
from memoryd_server.search.query import Candidate

SCORES = st.lists(st.floats(0, 1), max_size=12)
TEXTS = st.lists(st.text(st.sampled_from("abc "), max_size=12), min_size=12, max_size=12)


def check(scores, texts, trade_off):
    given_ = [Candidate(i, score) for i, score in enumerate(scores)]
    return given_, diversified(given_, dict(enumerate(texts)), trade_off)


@given(SCORES, TEXTS, st.floats(-1, 2))
def test_the_hits_are_the_same_and_the_best_leads(scores, texts, trade_off):
    given_, order = check(scores, texts, trade_off)
    assert sorted((c._replace(diversity=0.0) for c in order), key=lambda c: c.chunk_id) == given_
    if trade_off > 0:
        assert [c.score for c in order[:1]] == sorted(scores, reverse=True)[:1]


@given(SCORES, TEXTS)
def test_relevance_alone_is_the_order_of_scores(scores, texts):
    _, order = check(scores, texts, 1)
    assert [c.score for c in order] == sorted(scores, reverse=True)


def test_a_repetition_moves_behind_what_is_new():
    _, order = check([1.0, 0.95, 0.9, 0.1], ["a heron", "a heron", "one kestrel", "no owl"], 0.5)
    assert [c.chunk_id for c in order] == [0, 2, 3, 1]


def test_words_are_compared_as_the_caller_cuts_them():
    texts = {0: "今天", 1: "今天", 2: "昨夜"}
    given_ = [Candidate(i, 1.0) for i in texts]
    assert [c.chunk_id for c in diversified(given_, texts, 0.5, list)] == [0, 2, 1]


def test_likeness_is_the_share_of_words_in_common():
    one, other = frozenset("abc"), frozenset("bcd")
    assert jaccard(one, other) == 0.5
    assert jaccard(frozenset(), frozenset()) == 1.0
    assert jaccard(one, frozenset()) == 0.0
