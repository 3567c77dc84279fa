"""The query of a search for any word: which words it has, and how its output is scored."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.qmd.any_word import MAX_WORDS, AnyWordQuery, any_word_query
from properties import examples


def lines_of(text):
    query = any_word_query(text)
    return None if query is None else list(query.lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("When did Caroline go to the support group?", "Caroline go support group"),
        ("Caroline's café", "Caroline café"),
        ("which Cafe\u0301 was it", "Cafe\u0301"),
        ("the gateway of foo-bar v1.2.3, src/main.py", "gateway foo-bar v1.2.3 src main.py"),
        ("max_results of v1.2-beta", "max_results v1.2 beta"),
        ("Wann wurde die Straße gebaut und wieso?", "Straße gebaut"),
        ("what does --flag #tag @home do", "flag tag home"),
        ("vitamin C or B", "vitamin"),
        ("crane Crane crane heron", "crane heron"),
        ("who is it", "who is it"),
        ("lex: crane vec: heron", "lex crane vec heron"),
        ("a\nvec: b\0c\u2028intent: d", "vec intent"),
        ("crane AND (heron* OR NEAR)", "crane heron NEAR"),
        ("东京的数据库在哪里", "东京 京的 的数 数据 据库 库在 在哪"),
        ("東京への出張はいつですか", "東京 への 出張"),
        ("SQLite数据 迁移", "SQLite 数据 迁移"),
        ("데이터베이스를 언제 옮겼나요?", "데이터베이스 옮겼나요"),
    ],
)
def test_first_line_has_the_informative_words_as_written_and_each_other_line_has_one(text, words):
    lines = lines_of(text)
    assert lines[0] == words
    assert lines[1:] == (words.split() if " " in words else [])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"crane lifts" loads', ["crane lifts loads", "crane", "lifts", "loads"]),
        ('an unmatched "crane lifts', ["unmatched crane lifts", "unmatched", "crane", "lifts"]),
        ("crane heron -sea", ["crane heron -sea", "crane -sea", "heron -sea"]),
        ('crane heron -"north sea"', [f'{words} -"north sea"' for words in ("crane heron", "crane", "heron")]),
        ("crane heron -north/sea", [f'{words} -"north sea"' for words in ("crane heron", "crane", "heron")]),
        ('"a crane"-sea heron', ["crane heron -sea", "crane -sea", "heron -sea"]),
        ("crane - heron", ["crane heron", "crane", "heron"]),
        ("crane heron -*", ["crane heron", "crane", "heron"]),
    ],
)
def test_phrases_are_split_and_excluded_documents_remain_excluded(text, lines):
    assert lines_of(text) == lines


@pytest.mark.parametrize("text", ["", "  ", "?!", '"', "-crane", "crane", '"crane"', "crane?", "crane -sea", "foo-bar"])
def test_there_is_no_second_search_if_it_would_find_the_same(text):
    assert lines_of(text) is None


def test_only_the_first_words_of_a_long_text_are_searched():
    words = [f"word{number}" for number in range(100)]
    lines = lines_of(" ".join(words))
    assert lines == [" ".join(words[:MAX_WORDS]), *words[:MAX_WORDS]]


@given(st.text(max_size=200) | st.text(alphabet='ab "-:.\n*数据데', max_size=60))
@settings(max_examples=examples(500), deadline=None)
def test_any_text_gives_valid_lines(text):
    query = any_word_query(text)
    if query is None:
        return
    assert 1 <= len(query.lines) <= MAX_WORDS + 1
    for line in query.lines:
        # qmd ends with an error for an empty line and for a quote without its pair.
        assert line.split(" -")[0].strip()
        assert line.count('"') % 2 == 0
        assert " ".join(line.split()) == line
        assert line.isprintable() or not line.isascii()
        assert not re.search(r"[:*^+(){}]", line)
        assert not line.startswith("-")


@pytest.mark.attacks
@pytest.mark.parametrize("piece", ["a", "a ", "-a ", '"', '-"', "数", "a-", "a.", "\u0301", "\ufdfa", "a\u0301"])
def test_costly_text_is_analyzed_in_linear_time(piece):
    any_word_query("crane heron")
    began = time.process_time()
    any_word_query(piece * 60_000)
    assert time.process_time() - began < 0.5


def test_arguments_name_no_models_and_have_the_query_last():
    arguments = AnyWordQuery(("crane heron", "crane", "heron")).arguments(["a", "b"], 7)
    options = ("--json", "-n", "7", "-c", "a", "-c", "b", "--no-rerank", "--explain")
    text = "lex: crane heron\nlex: crane\nlex: heron"
    assert arguments == ("--index", "index", "query", *options, "--", text)


def explained(**scores):
    lists = [{"query": line.replace("_", " "), "backendScore": score} for line, score in scores.items()]
    return {"score": 1, "explain": {"rrf": {"contributions": lists}}}


def test_score_is_that_of_the_words_that_the_document_contains():
    query = AnyWordQuery(("crane heron", "crane", "heron"))
    # BM25 of 1 and 3.
    assert query.score(explained(crane=0.5)) == 0.5
    assert query.score(explained(crane=0.5, heron=0.75)) == 0.8
    assert query.score(explained(crane_heron=0.8, crane=0.5, heron=0.75)) == 0.8
    assert query.score(explained(crane=0)) == 0
    assert AnyWordQuery(("crane",)).score(explained(crane=0.5)) == 0.5


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"score": 1},
        {"explain": None},
        {"explain": {"rrf": []}},
        {"explain": {"rrf": {"contributions": {"query": "crane"}}}},
        {"explain": {"rrf": {"contributions": [None, 1, "crane", {}]}}},
        *(explained(crane=score) for score in (1, 2, -0.5, 10**400, float("nan"), float("inf"), True, "0.5", None)),
        explained(other=0.5),
        {"explain": {"rrf": {"contributions": [{"query": ["crane"], "backendScore": 0.5}]}}},
    ],
)
def test_score_of_a_row_without_a_valid_explanation_is_zero(row):
    assert AnyWordQuery(("crane heron", "crane", "heron")).score(row) == 0
