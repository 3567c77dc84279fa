"""Any question is only words: it never fails, and a text is found by what stands in it."""

import unicodedata

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from desk import ANALYZER, Desk
from memoryd_server.index import keyword
from memoryd_server.index.keyword import MOST_TERMS, MOST_TERMS_IN_A_LARGE_INDEX, choose_terms, expression
from memoryd_server.text import QueryTerm

NASTY = [
    *('"', "'", "*", "a*", "^b", "-", "a-b", "foo:bar", "body:x", "C++", "don't", "GB/s", "TODO: fix", "AND", "OR NOT"),
    *("NEAR(a b, 2)", "{body context}: x", "(", ")", "a AND (b", 'say "hi', '""', "\\", ";", "--", "/*", "%", "_", "?"),
    *(
        "\x00",
        "a\x00b",
        "\ud800",
        "\ufffd",
        "\u200b",
        "é",
        "e\u0301",
        "ﬁ",
        "🙂",
        "👨\u200d👩\u200d👧",
        "\uff11\uff12",
        "½",
    ),
    *(
        "成语接龙",
        "成",
        "飞书插件配置",
        "東京タワー",
        "々",
        "서버에서",
        "ภาษาไทย",
        "กำ",
        "العربية",
        "हिन्दी",
        "İstanbul",
    ),
    *("'; DROP TABLE files; --", "x" * 5000, "a " * 500, "\n\t\r", "", " "),
]
WORDS = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=()), max_size=20)
QUERIES = st.lists(WORDS, max_size=8).map(" ".join)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """One index that each example writes its text into anew, among texts of others."""
    desk = Desk(tmp_path_factory.mktemp("shelf")).open()
    for number, word in enumerate(NASTY):
        desk.write(f"memory/other-{number}.md", f"{word} and other words {number}".encode("utf-8", "replace"))
    desk.sync()
    yield desk
    desk.close()


@settings(max_examples=400, deadline=None)
@given(QUERIES)
@example('a "unbalanced')
@example("NEAR/2 (x)")
def test_no_question_raises(shelf, query):
    shelf.found(query)


@settings(max_examples=150, deadline=None)
@given(QUERIES)
@example("成语接龙 和 a b c d e f g h i j k")
@example("成 语 接 龙 飞 书 插 件 配 置 ABC9931")
def test_a_text_that_holds_the_questions_words_is_found(shelf, query):
    text = query.encode("utf-8", "replace").decode()
    # A word that is longer than a chunk is cut, and found by neither half.
    assume(all(len(word) < 300 for word in text.split()))
    shelf.write("memory/verbatim.md", f"# Note\n\n{text}\n")
    shelf.sync()
    if ANALYZER.query_terms(query) and "verbatim" not in query:
        assert "memory/verbatim.md" in shelf.found(query, limit=100_000), unicodedata.normalize("NFC", query)


def terms(*words):
    return [QueryTerm(word.rstrip("*"), prefix=word.endswith("*")) for word in words]


def check_choice(words, frequencies, chunks, expected):
    assert [term.text for term in choose_terms(terms(*words), frequencies, chunks)] == expected


def test_terms_that_the_index_does_not_hold_are_left_out():
    check_choice(["heron", "absent"], {"heron": 3, "absent": 0}, 10, ["heron"])
    check_choice(["absent"], {}, 10, [])


def test_the_rarest_terms_are_kept_in_the_questions_order():
    words = [f"w{i}" for i in range(12)]
    frequencies = {word: 100 - i for i, word in enumerate(words)}
    check_choice(words, frequencies, 1000, words[-MOST_TERMS:])
    check_choice(words[::-1], frequencies, 1000, words[: -MOST_TERMS - 1 : -1])


def test_a_large_index_is_asked_for_fewer_terms():
    words = [f"w{i}" for i in range(12)]
    check_choice(words, dict.fromkeys(words, 10), 60_000, words[:MOST_TERMS_IN_A_LARGE_INDEX])


def test_words_that_stand_everywhere_are_searched_when_there_is_nothing_else(opened):
    for number in range(5):
        opened.write(f"memory/{number}.md", f"heron {'kestrel' if number == 3 else ''}")
    opened.sync()
    assert len(opened.found("heron")) == 5
    assert sorted(opened.found("heron kestrel")) == [f"memory/{number}.md" for number in range(5)]
    assert opened.found("heron kestrel")[0] == "memory/3.md"


def test_prefixes_are_kept():
    check_choice(
        ["w*", *[f"w{i}" for i in range(12)]],
        {f"w{i}": 1 for i in range(12)},
        100,
        ["w", *(f"w{i}" for i in range(MOST_TERMS - 1))],
    )


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (QueryTerm("heron"), '"heron"'),
        (QueryTerm("heron", prefix=True), '"heron"*'),
        (QueryTerm('he"ron'), '"he""ron"'),
        (QueryTerm("AND"), '"AND"'),
    ],
)
def test_a_term_is_quoted(term, expected):
    assert expression(term) == expected


def test_a_thousand_words_ask_for_a_handful_of_terms(opened):
    opened.write("memory/a.md", " ".join(f"word{i}" for i in range(900)))
    opened.sync()
    with opened.store.read() as reader:
        question = ANALYZER.query_terms(" ".join(f"word{i}" for i in range(900)))
        assert len(question) == 900
        answer = keyword.search(reader, question, (), enough=10, limit=10, chunk_count=reader.counts().chunks)
    assert len(answer.terms) == MOST_TERMS
    assert answer.hits


def test_single_characters_that_stand_nowhere_take_no_words_place(opened):
    opened.write("memory/a.md", "the ticket is ABC9931")
    opened.write("memory/b.md", "成语 接龙")
    opened.sync()
    assert opened.found("我 你 他 她 它 们 这 那 哪 ABC9931") == ["memory/a.md"]


def test_one_character_of_an_unspaced_script_finds_the_words_it_begins(opened):
    opened.write("memory/a.md", "今天玩成语接龙游戏")
    opened.sync()
    for query in ("成", "戏", "成语", "成语接龙"):
        assert opened.found(query) == ["memory/a.md"], query


def test_document_frequencies_are_counted_in_chunks(opened):
    opened.write("memory/a.md", "heron heron heron")
    opened.write("memory/b.md", "heron kestrel")
    opened.sync()
    with opened.store.read() as reader:
        assert reader.document_frequencies(["heron", "kestrel", "absent"]) == {"heron": 2, "kestrel": 1, "absent": 0}
        assert [reader.begins_a_term(p) for p in ("her", "heron", "herons", "zz", "")] == [
            True,
            True,
            False,
            False,
            True,
        ]


def test_document_frequencies_follow_changes_and_removals(opened):
    file = opened.write("memory/a.md", "heron")
    opened.write("memory/b.md", "heron")
    opened.sync()
    file.unlink()
    opened.write("memory/b.md", "kestrel")
    opened.sync()
    with opened.store.read() as reader:
        assert reader.document_frequencies(["heron", "kestrel"]) == {"heron": 0, "kestrel": 1}


def test_ranks_are_negative_distinct_and_best_first(opened):
    for count in range(1, 6):
        opened.write(f"memory/{count}.md", "heron " * count + "filler " * 20 * (6 - count))
    opened.write("memory/none.md", "kestrel " * 20)
    opened.sync()
    hits = opened.hits("heron")
    assert [path for path, _, _ in hits] == [f"memory/{count}.md" for count in (5, 4, 3, 2, 1)]
    ranks = [bm25 for _, _, bm25 in hits]
    assert ranks == sorted(set(ranks))
    assert max(ranks) < 0


def test_an_exact_name_is_found_and_ranks_first(opened):
    opened.write("memory/a.md", "the ticket ABC9931 was closed")
    opened.write("memory/b.md", "ABC and 9931 are other things")
    opened.sync()
    assert opened.found("ABC9931")[0] == "memory/a.md"


def test_words_of_the_headings_and_the_files_name_find_it(opened):
    opened.write("memory/2026-02-08.md", "# Birds\n\n## Waders\n\nStood in the reeds.\n")
    opened.sync()
    for query in ("2026-02-08", "waders", "birds"):
        assert opened.found(query) == ["memory/2026-02-08.md"], query
