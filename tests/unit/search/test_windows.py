"""A window is a few lines that match; its value is BM25 with windows as documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index_fixture import ANALYZER
from memoryd_server.model import Source
from memoryd_server.search.query import Candidate
from memoryd_server.search.windows import MIN_CHARS, LineMatcher, window_scores, with_windows
from memoryd_server.store.rows import ChunkRow

WEIGHTS = {"heron": 2.0, "weir": 1.0, "otter": 0.5}
FILLER = "x" * 100


def row(number, text, breadcrumb=""):
    lines = text.count("\n")
    return ChunkRow(number, "a.md", Source.MEMORY, 1, 1 + lines, text, breadcrumb, 0, 0)


def matcher(words=tuple(WEIGHTS), prefixes=()):
    return LineMatcher(ANALYZER, words, prefixes)


def scores(*texts, weights=WEIGHTS, prefixes=()):
    rows = [row(number, text) for number, text in enumerate(texts, 1)]
    return window_scores(rows, matcher((*weights,), prefixes), weights)


def test_words_on_one_line_outweigh_the_same_words_far_apart():
    together = f"the heron at the weir\n{FILLER}\n{FILLER}\n{FILLER}\n{FILLER}"
    apart = f"the heron\n{FILLER}\n{FILLER}\n{FILLER}\n{FILLER}\nat the weir"
    found = scores(apart, together)
    assert found[2] == 1.0
    assert found[1] < 0.8


def test_a_window_has_the_fewest_lines_with_enough_characters():
    # Two lines of the second text have 250 characters with their line feeds, those of the first have 249.
    near, far = f"heron {'x' * 100}\n{'x' * 141}\nweir", f"heron {'x' * 100}\n{'x' * 142}\nweir"
    assert MIN_CHARS == 250
    assert scores(near)[1] == scores(far)[1] == 1.0
    found = scores(near, far)
    assert found[1] == 1.0
    assert found[2] < 1.0


def test_the_value_is_that_of_the_formula():
    # Three windows: both lines of the first text (the second from its second line), and the second text.
    first, second = f"heron heron\nweir {'x' * 294}", f"weir {'x' * 394}"
    lengths = [12 + 300, 300, 400]
    mean = sum(lengths) / 3

    def part(idf, count, chars):
        return idf * 2.2 * count / (count + 1.2 * (0.25 + 0.75 * chars / mean))

    best = part(2.0, 2, 312) + part(1.0, 1, 312)
    found = scores(first, second)
    assert found == pytest.approx({1: 1.0, 2: part(1.0, 1, 400) / best})


def test_a_text_without_terms_has_the_value_0_and_without_any_there_are_no_windows():
    assert scores("heron", "nothing") == {1: 1.0, 2: 0.0}
    assert scores("nothing", "at all") == {}
    assert scores() == {}


def test_words_that_the_index_does_not_contain_do_not_count():
    rows = [row(1, "heron weir"), row(2, "heron")]
    assert window_scores(rows, matcher(), {"heron": 1.0}).keys() == {1, 2}
    assert window_scores(rows, matcher(), {"heron": 1.0})[2] == 1.0


def test_a_prefix_counts_each_word_that_it_begins():
    found = scores("herons heronry", "herons", weights={"heron": 1.0}, prefixes=("heron",))
    assert found[1] == 1.0
    assert found[2] < 1.0


def test_stems_carriage_returns_and_unicode_are_found_in_their_lines():
    found = matcher(("heron", "カ")).lines(row(1, "none\r\nHerons, and a heron's nest\r\n\r\nheron"))
    assert {line: [*words] for line, words in found.words.items()} == {1: ["heron", "heron"], 3: ["heron"]}


def test_the_terms_of_a_chunk_include_its_headings_and_prefixes():
    found = matcher(("heron", "weir", "ott"), ("ott",)).terms(row(1, "otters", "heron > den"))
    assert found >= {"heron", "ott"}
    assert "weir" not in found


PARTS = ["heron ", "weir ", "otter ", "x" * 40, "\n", "\r\n", " é ", "鳥", "heron", "\u2028"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)


def slow_windows(text):
    """The windows of a text by the definition: their lengths, and their words."""
    lines = text.split("\n")
    for first, line in enumerate(lines):
        if not any(word in WEIGHTS for word in line.split()):
            continue
        last, chars = first, len(line) + 1
        while chars < MIN_CHARS and last + 1 < len(lines):
            last += 1
            chars += len(lines[last]) + 1
        yield chars, " ".join(lines[first : last + 1]).split()


@given(st.lists(st.lists(st.sampled_from(["heron", "weir", "otter", "x" * 90, "\n"])).map(" ".join), max_size=5))
def test_values_are_those_of_the_definition(texts):
    windows = [list(slow_windows(text)) for text in texts]
    lengths = [chars for each in windows for chars, _ in each]
    mean = sum(lengths) / len(lengths) if lengths else 1

    def value(chars, words):
        length = 1.2 * (0.25 + 0.75 * chars / mean)
        counts = {term: words.count(term) for term in WEIGHTS if term in words}
        return sum(WEIGHTS[term] * count / (count + length) for term, count in counts.items())

    best = [max((value(*window) for window in each), default=0.0) for each in windows]
    found = scores(*texts)
    if not any(best):
        assert found == {}
    else:
        assert found == pytest.approx({n: each / max(best) for n, each in enumerate(best, 1)})


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_any_texts_have_shares_with_a_best_of_1(texts):
    found = scores(*texts)
    assert not found or max(found.values()) == 1.0
    assert all(0 <= value <= 1 for value in found.values())


def test_the_estimate_of_an_unread_chunk_never_exceeds_what_the_worst_read_one_has():
    candidates = [Candidate(1, 1.0, 1.0), Candidate(2, 0.8, 0.8), Candidate(3, 0.5, 0.5)]
    found = with_windows(candidates, {1: 1.0, 2: 0.4}, 0.0)
    assert [c.window for c in found] == [1.0, 0.4, 0.25]
    assert [c.score for c in found] == pytest.approx([1.0, (2 * 0.8 + 0.4) / 3, (2 * 0.5 + 0.25) / 3])
    generous = with_windows(candidates, {1: 1.0, 2: 1.0}, 0.0)
    assert generous[2].window == 0.5


def test_the_cosine_keeps_its_share():
    (found,) = with_windows([Candidate(1, 0.0, 0.5, 0.8)], {1: 1.0}, 0.7)
    assert found.score == pytest.approx(0.7 * 0.8 + 0.3 * (2 * 0.5 + 1.0) / 3)
    (unscored,) = with_windows([Candidate(1, 0.0, None, 0.8)], {1: 1.0}, 0.7)
    assert unscored.score == pytest.approx(0.7 * 0.8 + 0.3 / 3)
