"""Stop words of the query's language are not searched for, unless there are no other words."""

import pytest

from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.terms import TermKind


def check(query, expected, languages=()):
    terms = Analyzer().query_terms(query, languages)
    originals = dict.fromkeys(term.original for term in terms if term.kind is not TermKind.GUESS)
    assert list(originals) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what was the name of her dog", ["name", "dog"]),
        ("ayer hablamos sobre la estrategia de despliegue", ["hablamos", "estrategia", "despliegue"]),
        ("onde está o relatório da reunião", ["relatorio", "reuniao"]),
        ("où est la clé du garage", ["cle", "garage"]),
        ("где была книга", ["книга"]),
        ("أين كان الكتاب", ["الكتاب"]),
        ("그리고 서버에서", ["서버에서"]),
        ("什么是成语", ["么是", "是成", "成语"]),
        ("これはペンです", ["ペン"]),
        ("田中さんの電話番号は、何か?", ["田中", "中さ", "さん", "んの", "電話", "話番", "番号"]),
        ("会議はどこであったのですか", ["会議"]),
        ("Dockerとは何ですか", ["docker"]),
        ("किताब कहाँ है", ["किताब"]),
    ],
)
def test_function_words_are_left_out(query, expected):
    check(query, expected)


def test_a_word_of_another_language_is_kept_in_an_english_question():
    check("did the plant die", ["plant", "die"], ["de"])


def test_one_function_word_is_enough_if_the_texts_are_in_its_language():
    check("die Katze", ["die", "katze"])
    check("die Katze", ["katze"], ["de"])


@pytest.mark.parametrize(
    "query",
    ["to be or not to be", "나는 그리고 그래서", "什么", "これ", "これは何ですか", "誰?", "кто это", "où est le"],
)
def test_a_question_of_nothing_else_keeps_them(query):
    assert Analyzer().query_terms(query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("世界で初めて電話を発明", ["世界", "初め", "めて", "電話", "発明"]),
        ("サーバーの設定", ["サー", "ーバ", "バー", "設定"]),
        # One kanji, a word written in hiragana and a verb that seems to end in a particle are found.
        ("猫は魚を食べる", ["猫は", "は魚", "魚を", "食べ", "べる"]),
        ("お茶", ["お茶"]),
        ("ひまわりの花言葉", ["ひま", "まわ", "わり", "りの", "花言", "言葉"]),
        ("もものジュース", ["もも", "ジュ", "ュー", "ース"]),
        ("死に至る", ["死に", "至る"]),
        ("らーめん", ["らー", "ーめ", "めん"]),
        ("中文的问题", ["中文", "文的", "的问", "问题"]),
    ],
)
def test_pairs_across_the_end_of_a_japanese_word_are_left_out_if_the_word_has_another_gram(query, expected):
    check(query, expected)


def test_words_side_by_side_are_tried_as_names():
    guesses = [t.text for t in Analyzer().query_terms("the vector search") if t.kind is TermKind.GUESS]
    assert guesses == ["the_vector", "the_vector_search", "vector_search"]


def test_a_long_question_asks_for_few_guesses():
    guesses = [t for t in Analyzer().query_terms(" ".join(f"word{i}" for i in range(500))) if t.kind is TermKind.GUESS]
    assert len(guesses) < 100
