"""Places shared between sources: the best of all, and some for each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.model import Source
from memoryd_server.search.results import reserved, shared

MEMORY, SESSIONS = Source.MEMORY, Source.SESSIONS


def share(ranked, most):
    """`ranked` names the source of each hit, best first."""
    hits = list(enumerate(ranked))
    return shared({source: [(rank, (rank, of)) for rank, of in hits if of is source] for source in Source}, most)


@pytest.mark.parametrize(
    ("ranked", "most", "found"),
    [
        ("mmmmmmmmss", 6, "mmmmss"),
        ("ssssssssmm", 6, "ssssmm"),
        ("mmmmmmmms", 6, "mmmmms"),
        ("msmsmsms", 6, "msmsms"),
        ("mmmmmm", 6, "mmmmmm"),
        ("ms", 6, "ms"),
        ("", 6, ""),
        ("mmms", 2, "ms"),
        ("mmms", 1, "m"),
        ("smmm", 1, "s"),
        ("mmmmmmmmmmmmssssss", 12, "mmmmmmmmssss"),
    ],
)
def test_each_source_has_a_third_for_itself_where_it_has_hits(ranked, most, found):
    names = {"m": MEMORY, "s": SESSIONS}
    assert [of for _, of in share([names[name] for name in ranked], most)] == [names[name] for name in found]


@given(st.lists(st.sampled_from(Source), max_size=60), st.integers(1, 50))
def test_the_answer_is_as_long_as_it_can_be_in_order_and_holds_the_best_of_each(ranked, most):
    found = share(ranked, most)
    assert len(found) == min(most, len(ranked))
    assert found == sorted(found)
    for source in Source:
        own = [(rank, of) for rank, of in enumerate(ranked) if of is source]
        got = [hit for hit in found if hit[1] is source]
        assert got == own[: len(got)]
        assert len(got) >= min(reserved(most), len(own))
