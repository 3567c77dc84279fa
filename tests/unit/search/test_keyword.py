"""Any query is only words: it never fails, and finds a text by words that occur in it."""

import unicodedata
from functools import partial

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from index_fixture import ANALYZER, IndexFixture, connection_of
from memoryd_server.search import keyword
from memoryd_server.search.keyword import (
    MAX_CHUNKS_OF_EXTRA_WORDS,
    MAX_NAMES_PER_FRAGMENT,
    MAX_TERMS,
    MAX_WORDS,
    MAX_WORDS_IN_LARGE_INDEX,
    choose_terms,
)
from memoryd_server.sqlite.keyword import expression
from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.store.rows import MOST_TITLE_CHARS
from memoryd_server.text.terms import QueryTerm, TermKind
from properties import examples

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
def embedding(tmp_path_factory):
    """One index that each example writes its text into anew, among texts of others."""
    index = IndexFixture(tmp_path_factory.mktemp("index")).open()
    for number, word in enumerate(NASTY):
        index.write(f"memory/other-{number}.md", f"{word} and other words {number}".encode("utf-8", "replace"))
    index.sync()
    yield index
    index.close()


@settings(max_examples=examples(400), deadline=None)
@given(QUERIES)
@example('a "unbalanced')
@example("NEAR/2 (x)")
def test_no_question_raises(embedding, query):
    embedding.found(query)


@settings(max_examples=examples(150), deadline=None)
@given(QUERIES)
@example("成语接龙 和 a b c d e f g h i j k")
@example("成 语 接 龙 飞 书 插 件 配 置 ABC9931")
def test_a_text_that_holds_the_questions_words_is_found(embedding, query):
    text = query.encode("utf-8", "replace").decode()
    # A word that is longer than a chunk is cut, and found by neither half.
    assume(all(len(word) < 300 for word in text.split()))
    note = f"# Note\n\n{text}\n"
    # A language of few chunks is not searched.
    assume(not ANALYZER.language_of(note))
    embedding.write("memory/verbatim.md", note)
    embedding.sync()
    if ANALYZER.query_terms(query) and "verbatim" not in query:
        assert "memory/verbatim.md" in embedding.found(query, limit=100_000), unicodedata.normalize("NFC", query)


def terms(*words):
    return [QueryTerm(word.rstrip("*"), prefix=word.endswith("*")) for word in words]


COMMON = MAX_CHUNKS_OF_EXTRA_WORDS


def check_choice(words, frequencies, chunks, expected):
    asked = [word if isinstance(word, QueryTerm) else terms(word)[0] for word in words]
    known = {term: frequencies.get(term.text, 0) for term in asked}
    assert [term.text for term in choose_terms(asked, known, chunks)] == expected


def test_terms_that_the_index_does_not_hold_are_left_out():
    check_choice(["heron", "absent"], {"heron": 3, "absent": 0}, 10, ["heron"])
    check_choice(["absent"], {}, 10, [])


def test_the_rarest_words_are_kept_in_the_questions_order():
    words = [f"w{i}" for i in range(12)]
    frequencies = {word: COMMON - i for i, word in enumerate(words)}
    check_choice(words, frequencies, 20_000, words[-MAX_WORDS:])
    check_choice(words[::-1], frequencies, 20_000, words[: -MAX_WORDS - 1 : -1])


def test_a_large_index_is_asked_for_fewer_words():
    words = [f"w{i}" for i in range(12)]
    check_choice(words, dict.fromkeys(words, COMMON), 60_000, words[:MAX_WORDS_IN_LARGE_INDEX])


def test_more_words_are_kept_as_long_as_they_are_rare():
    words = [f"w{i}" for i in range(12)]
    check_choice(words, dict.fromkeys(words, 10), 60_000, words)
    many = [f"w{i}" for i in range(MAX_TERMS + 20)]
    check_choice(many, dict.fromkeys(many, 1), 60_000, many[:MAX_TERMS])


def test_the_stems_of_a_word_count_as_one_and_names_as_none():
    stems = [QueryTerm(f"w{i}{end}", original=f"w{i}") for i in range(MAX_WORDS) for end in ("", "s")]
    name = QueryTerm("a_name", kind=TermKind.WHOLE, original="a_name")
    texts = [term.text for term in (*stems, name)]
    check_choice([*stems, name], dict.fromkeys(texts, COMMON), 20_000, texts)


def test_words_that_stand_everywhere_are_searched_when_there_is_nothing_else(opened):
    for number in range(5):
        opened.write(f"memory/{number}.md", f"heron {'kestrel' if number == 3 else ''}")
    opened.sync()
    assert len(opened.found("heron")) == 5
    assert sorted(opened.found("heron kestrel")) == [f"memory/{number}.md" for number in range(5)]
    assert opened.found("heron kestrel")[0] == "memory/3.md"


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
    assert expression(term.text, prefix=term.prefix) == expected


def test_a_thousand_words_ask_for_a_handful_of_terms(opened):
    opened.write("memory/a.md", " ".join(f"word{i}" for i in range(900)))
    opened.sync()
    with opened.store.read() as reader:
        question = ANALYZER.query_terms(" ".join(f"word{i}" for i in range(900)))
        assert len(question) >= 900
        answer = keyword.search(reader, question, ALL_CHUNKS, enough=10, limit=10, chunk_count=reader.counts().chunks)
    assert len(answer.terms) == MAX_TERMS
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


def answer_to(opened, query, limit=10):
    with opened.store.read() as reader:
        chunks = reader.counts().chunks
        question = ANALYZER.query_terms(query, reader.counts().languages)
        return keyword.search(reader, question, ALL_CHUNKS, enough=limit, limit=limit, chunk_count=chunks)


@pytest.mark.parametrize("query", ["vector search query", "the VECTOR search query thing", "vectorSearchQuery"])
def test_the_words_of_a_name_find_it(opened, query):
    opened.write("memory/a.md", "call vector_search_query with care")
    opened.write("memory/b.md", "the query of a search for a vector, a query on search, vector vector")
    opened.sync()
    assert opened.found(query)[0] == "memory/a.md"


def test_guesses_at_names_are_not_reported_unless_the_index_knows_them(opened):
    opened.write("memory/a.md", "a search_query")
    opened.write("memory/b.md", "vector and more")
    opened.sync()
    assert answer_to(opened, "vector search query").terms == ("vector", "search", "queri", "search_query")


@pytest.mark.parametrize("query", ["emoryIndexMana", "memory_index_man", "ndex_manager", "IndexManag"])
def test_a_name_is_found_by_a_piece_of_it(opened, query):
    opened.write("memory/a.md", "see MemoryIndexManager for that")
    opened.write("memory/b.md", "an index of a manager's memory")
    opened.sync()
    assert opened.found(query)[0] == "memory/a.md"


def test_a_piece_of_many_names_asks_for_few_of_them(opened):
    opened.write("memory/a.md", " ".join(f"thing_{i:03}_other" for i in range(200)))
    opened.sync()
    answer = answer_to(opened, "hing_0")
    assert len(answer.searched) == MAX_NAMES_PER_FRAGMENT
    assert answer.hits


def test_a_word_in_no_chunk_weighs_the_most(opened):
    for number in range(9):
        opened.write(f"memory/{number}.md", "heron" + " kestrel" * (number == 3))
    opened.sync()
    weights = answer_to(opened, "heron kestrel curlew").idf
    assert weights["curlew"] > weights["kestrel"] > weights["heron"] > 0


def test_texts_of_several_languages_are_found_by_other_forms_of_their_words(opened):
    opened.write(
        "memory/de.md", "Der Reiher steht in den Häusern und wartet auf die Fische, weil es nicht zu kalt ist."
    )
    opened.write("memory/en.md", "The heron stands in the reeds and waits for libraries, as it is not too cold for it.")
    opened.sync()
    with opened.store.read() as reader:
        assert set(reader.counts().languages) == {"", "de"}
    assert [opened.found(q) for q in ("Haus", "library")] == [["memory/de.md"], ["memory/en.md"]]


def test_a_language_of_few_chunks_is_not_asked_for(opened):
    opened.write(
        "memory/de.md", "Der Reiher steht in den Häusern und wartet auf die Fische, weil es nicht zu kalt ist."
    )
    for number in range(60):
        opened.write(f"memory/{number}.md", "The heron stands in the reeds.")
    opened.sync()
    with opened.store.read() as reader:
        assert reader.counts().languages == ("",)


def test_the_title_in_the_front_matter_finds_a_file(opened):
    opened.write("memory/a.md", "---\ntitle: Curlews\n---\nStood in the reeds.\n")
    opened.sync()
    assert opened.found("curlew") == ["memory/a.md"]


def test_a_long_title_is_not_indexed_over_and_over(opened):
    """It would be, with every chunk: a file of half a megabyte made an index of 24."""
    title = "Curlews " + " ".join(f"bird{n}" for n in range(2_000))
    opened.write("memory/a.md", f"---\ntitle: {title}\n---\n" + "Stood in the reeds all day.\n" * 2_000)
    opened.sync()
    assert len(opened.hits("curlews")) == len(opened.hits("reeds")) > 20
    with opened.store.read() as reader:
        (tokens,) = (
            connection_of(reader).execute("SELECT sum(doc) FROM temp.vocabulary WHERE term GLOB 'bird*'").fetchone()
        )
    assert tokens <= MOST_TITLE_CHARS // len("bird1") * len(opened.hits("reeds"))


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


class RecordingReader:
    """A reader that records the words by which chunks are found."""

    def __init__(self, reader):
        self._reader = reader
        self.found_by = []

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def keyword_hits(self, terms, among, limit):
        self.found_by.append([term.text for term in terms])
        return self._reader.keyword_hits(terms, among, limit)


def test_frequent_words_rank_the_chunks_that_rare_words_find(opened):
    # The frequent words are in a third of the notes, the rare one in a tenth.
    for number in range(90):
        words = ["rare"] * (number % 10 == 0) + ["often"] * (number % 3 == 0) + ["usual"] * (number % 3 == 1)
        opened.write(f"memory/{number}.md", f"{' '.join(words)} {'other words ' * (number % 7)}")
    opened.sync()
    terms = ANALYZER.query_terms("usual rare often")
    with opened.store.read() as reader:
        recording = RecordingReader(reader)
        search = partial(keyword.search, recording, terms, ALL_CHUNKS, enough=1, limit=1, chunk_count=90)
        exact, found = search().hits, search(max_chunks_ranked=10).hits
    assert recording.found_by == [["usual", "rare", "often"], ["rare"]]
    assert [hit.chunk_id for hit in found] == [hit.chunk_id for hit in exact]
    assert [hit.bm25 for hit in found] == pytest.approx([hit.bm25 for hit in exact])


def test_if_rare_words_find_too_few_chunks_all_words_find_chunks(opened):
    words = [f"rare{number}" for number in range(12)]
    for number in range(30):
        opened.write(f"memory/{number}.md", " ".join(words) if number < 6 else "often")
    opened.sync()
    terms = [QueryTerm(word, original=word) for word in [*words, "often"]]
    with opened.store.read() as reader:
        recording = RecordingReader(reader)
        found = keyword.search(recording, terms, ALL_CHUNKS, enough=1, limit=8, chunk_count=50, max_chunks_ranked=72)
    assert recording.found_by == [words, [*words, "often"]]
    assert (len(found.hits), found.is_full) == (8, True)
