"""What all snippets may hold together, and how they are cited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.model import Source
from memoryd_server.search.query import Hit
from memoryd_server.search.results import citation, cited, within_budget


def hit(snippet, start=1):
    end = start + snippet.count("\n")
    return Hit("memory/a.md", Source.MEMORY, start, end, 1.0, snippet, start, end, 0)


@pytest.mark.parametrize(
    ("snippets", "most", "shown"),
    [
        (["aaaa", "bbbb", "cccc"], None, ["aaaa", "bbbb", "cccc"]),
        (["aaaa", "bbbb", "cccc"], 12, ["aaaa", "bbbb", "cccc"]),
        (["aaaa", "bbbb", "cccc"], 10, ["aaaa", "bbbb", "cc"]),
        (["aaaa", "bbbb", "c"], 5, ["aaaa", "b"]),
        (["aaaa", "bbbb"], 4, ["aaaa"]),
        (["aaaa"], 1, ["a"]),
        ([], 5, []),
    ],
)
def test_whole_snippets_are_kept_and_the_first_that_does_not_fit_ends_the_list(snippets, most, shown):
    assert [h.snippet for h in within_budget([hit(s) for s in snippets], most)] == shown


def test_a_snippet_that_is_cut_names_the_lines_that_are_left():
    (shown,) = within_budget([hit("one\ntwo\nthree", start=5)], 7)
    assert (shown.snippet, shown.snippet_start_line, shown.snippet_end_line) == ("one\ntwo", 5, 6)


@given(st.lists(st.text(max_size=20), max_size=10), st.integers(1, 100))
def test_no_more_is_shown_than_is_allowed(snippets, most):
    shown = within_budget([hit(s) for s in snippets], most)
    assert sum(len(h.snippet) for h in shown) <= most


@pytest.mark.parametrize(("lines", "name"), [((5, 5), "memory/a.md#L5"), ((5, 9), "memory/a.md#L5-L9")])
def test_a_citation_names_the_lines(lines, name):
    assert citation("memory/a.md", *lines) == name


def test_a_cited_snippet_ends_in_its_source():
    assert cited("text\n\n", "memory/a.md#L5") == "text\n\nSource: memory/a.md#L5"
