"""A snippet holds the match, in whole lines where they fit, under the lines it names, and splits no character."""

import unicodedata

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from memoryd_server.search.snippet import TermMatcher, best_snippet, cut_text
from memoryd_server.text.analyzer import Analyzer

ANALYZER = Analyzer()
WORD = "heron"
LINES = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=60), max_size=40)
LETTERS = st.text(st.sampled_from("abc é語n\u0301\u0302🙂\u200d👩\ufe0f"), max_size=200)


def words_of(text):
    return ANALYZER.index_tokens(text).split()


def snippet(text, query=WORD, *, start=1, most=100):
    terms = [term.text for term in ANALYZER.query_terms(query)]
    return best_snippet(text, start, TermMatcher(terms), words_of, most)


def check_lines(text, found, start=1):
    """The snippet stands, as it is, in the lines that it names."""
    lines = text.replace("\r\n", "\n").split("\n")
    named = "\n".join(lines[found.start_line - start : found.end_line - start + 1])
    assert found.text in named
    assert found.text.count("\n") <= found.end_line - found.start_line


def starts_inside(text, part):
    at = text.index(part) if part else 0
    return bool(part) and at > 0 and text[at - 1] != "\n" and unicodedata.category(part[0]).startswith("M")


@pytest.mark.parametrize("where", [0, 1, 20, 38, 39])
def test_the_match_is_shown_anywhere(where):
    lines = [f"line {i} of other things" for i in range(40)]
    lines[where] = f"line {where}: a heron"
    found = snippet("\n".join(lines), start=11)
    assert WORD in found.text
    assert found.start_line <= where + 11 <= found.end_line
    check_lines("\n".join(lines), found, start=11)
    assert found.text.split("\n") == lines[found.start_line - 11 : found.end_line - 10]


@given(LINES, LINES, st.integers(20, 200))
def test_the_match_is_shown_among_any_lines(before, after, most):
    text = "\n".join([*before, WORD, *after])
    found = snippet(text, most=most)
    assert len(found.text) <= most
    check_lines(text, found)
    assert WORD in words_of(found.text)


@given(st.integers(0, 400), st.integers(0, 400), st.integers(40, 300))
@example(95, 400, 100)
@example(24, 100, 100)
def test_the_match_is_shown_in_one_long_line_without_spaces(before, after, most):
    text = "語" * before + "成龙" + "語" * after
    found = snippet(text, "成龙", most=most)
    assert "成龙" in found.text
    assert (found.start_line, found.end_line) == (1, 1)
    assert len(found.text) <= most


@given(st.integers(0, 60), st.integers(0, 60), st.integers(40, 300))
def test_the_match_is_shown_in_one_long_line_of_words(before, after, most):
    text = "other words " * before + WORD + " and more" * after
    found = snippet(text, most=most)
    assert WORD in found.text
    assert len(found.text) <= most
    assert found.text in text


def test_the_window_with_the_most_distinct_words_wins():
    text = "\n".join(["a heron heron heron", *["filler line"] * 20, "a heron and a kestrel", *["filler line"] * 20])
    found = snippet(text, "heron kestrel", most=60)
    assert "kestrel" in found.text
    assert "heron" in found.text


def test_a_rare_word_outweighs_two_common_ones():
    text = "\n".join(["a heron and a kestrel", *["filler line"] * 20, "an osprey", *["filler line"] * 20])
    query, common = "heron kestrel osprey", {"heron": 0.5, "kestrel": 0.5}
    terms = [term.text for term in ANALYZER.query_terms(query)]
    weights = {term: 5.0 for term in terms if "osprey" in term} | common
    rare = best_snippet(text, 1, TermMatcher(terms, weights), words_of, 60)
    assert "osprey" in rare.text
    assert "heron" in best_snippet(text, 1, TermMatcher(terms), words_of, 60).text


def test_the_line_after_a_match_is_kept_since_the_answer_follows_the_question():
    text = "\n".join([*["filler line"] * 10, "where is the heron?", "by the lake", *["filler line"] * 10, "the heron"])
    assert snippet(text, most=60).text.startswith("where is the heron?\nby the lake\n")


def test_room_that_is_left_below_is_used_above():
    text = "\n".join([*[f"line {i}" for i in range(30)], "a heron"])
    assert snippet(text, most=30).text == "line 28\nline 29\na heron"


@pytest.mark.parametrize("above", [True, False])
def test_a_long_neighbour_is_shown_in_part_where_there_is_room(above):
    neighbour, match = "other words " * 20, "a heron stands here"
    text = "\n".join([neighbour, match] if above else [match, neighbour])
    found = snippet(text, most=100)
    assert 80 < len(found.text) <= 100
    assert match in found.text
    assert (found.start_line, found.end_line) == (1, 2)
    check_lines(text, found)


def test_short_lines_are_shown_whole_or_not_at_all():
    lines = [f"line {i} of many others" for i in range(30)]
    found = snippet("\n".join(lines), "absent", most=100)
    assert set(found.text.split("\n")) <= set(lines)


def test_a_prefix_matches_the_words_that_it_begins():
    text = "\n".join([*["什么都没有"] * 30, "今天有一只猫头鹰", *["什么都没有"] * 30])
    found = best_snippet(text, 1, TermMatcher(["猫"], prefixes=["猫"]), words_of, 40)
    assert "猫" in found.text


@given(LINES, st.integers(10, 120), st.sampled_from(["heron", "a", "语", "x y z", ""]))
def test_the_range_is_exactly_that_of_the_text(lines, most, query):
    text = "\n".join(lines)
    found = snippet(text, query, start=5, most=most)
    assert found.text.count("\n") == found.end_line - found.start_line
    check_lines(text, found, start=5)


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("ab🇩🇪🇫🇷", 3, "ab"),
        ("ab🇩🇪🇫🇷", 4, "ab🇩🇪"),
        ("ab🇩🇪🇫🇷", 5, "ab🇩🇪"),
        ("x👍🏽", 2, "x"),
        ("x👩\u200d🔧", 3, "x"),
        ("xกำ", 2, "x"),
        ("xस्त", 3, "x"),
        ("x\u1112\u1161\u11ab", 3, "x"),
        ("🇩🇪", 1, "🇩"),
    ],
)
def test_a_grapheme_is_kept_or_removed_whole(text, most, kept):
    assert cut_text(text, most) == kept


def test_a_text_that_fits_is_shown_whole():
    found = snippet("one\ntwo\nthree\n\n", start=7)
    assert (found.text, found.start_line, found.end_line) == ("one\ntwo\nthree", 7, 9)


def test_a_text_without_the_words_is_shown_from_its_beginning():
    text = "\n".join(f"line {i}" for i in range(100))
    found = snippet(text, "absent", most=20)
    assert found.text.startswith("line 0\n")
    check_lines(text, found)


def test_carriage_returns_are_not_shown():
    text = "\r\n".join([*["filler"] * 30, "heron", *["filler"] * 30])
    found = snippet(text)
    assert "\r" not in found.text
    assert found.start_line <= 31 <= found.end_line
    check_lines(text, found)


@given(LETTERS, st.integers(1, 250))
@example("n\u0301\u0302", 2)
@example("a \u0301", 2)
def test_a_cut_never_ends_inside_a_character(text, most):
    part = cut_text(text, most)
    assert text.startswith(part)
    assert len(part) <= most
    whole = unicodedata.category(text[0]).startswith("M") if text else True
    assume(not whole)
    rest = text[len(part) :]
    longest = max((len(c) for c in clusters(text)), default=0)
    if rest and most >= longest:
        assert not unicodedata.category(rest[0]).startswith("M")
        assert "\u200d" not in (part[-1:], rest[0])


def clusters(text):
    """Roughly: a character with its marks and what joiners join to it."""
    found = []
    for i, char in enumerate(text):
        if found and (unicodedata.category(char).startswith("M") or "\u200d" in text[i - 1 : i + 1]):
            found[-1] += char
        else:
            found.append(char)
    return found


@example("aaaa \ufe0faaaaaaaaaaaaaaaaa", 49)
@given(LETTERS, st.integers(30, 80))
def test_a_long_line_is_never_shown_from_inside_a_character(letters, most):
    text = f"a{letters}{WORD} {letters}"
    assume(max(map(len, clusters(text))) <= most // 4)
    found = snippet(text, most=most)
    assert not starts_inside(text, found.text)
    assert found.text in text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.text(max_size=20), st.integers(1, 60))
def test_no_text_and_no_query_make_it_fail(text, query, most):
    found = snippet(text, query, most=most)
    assert len(found.text) <= most
    found.text.encode()
