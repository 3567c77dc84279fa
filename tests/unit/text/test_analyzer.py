"""A text is found by any of its words in any spelling, and no text makes the analyzer fail."""

# ruff: noqa: RUF001 -- letters that look like others are what is tested

import re
import string
import unicodedata

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memoryd_server.text.analyzer import ANALYZER_VERSION, Analyzer
from memoryd_server.text.languages import STOP_WORDS
from memoryd_server.text.stemming import STEMMER_VERSION, fold
from memoryd_server.text.terms import QueryTerm, TermKind
from properties import examples

WORDS = [
    *("memory", "GitHub", "fooBar", "HTMLParser", "snake_case", "kebab-case", "a.b.c", "v1.2.3", "#12", "--verbose"),
    *(
        "@bob",
        ".env",
        "__init__",
        "TODO:",
        "don't",
        "GB/s",
        "C++",
        "pre-edit",
        "AND",
        "NEAR(a)",
        '"quoted"',
        "a*",
        "^b",
    ),
    *("café", "Straße", "ΌΣΟΣ", "Ёлка", "İstanbul", "ısı", "naïve", "Łódź", "½", "ﬁn", "ｗｉｄｅ"),
    *("记", "记忆", "今天玩成语接龙游戏", "飞书插件配置", "GitHub备份脚本", "データベース", "ｶﾞｷﾞ", "々"),
    *("서버에서", "API를", "논의", "ภาษาไทย", "กา", "ພາສາ", "ភាសា", "မြန်မာ", "हिन्दी", "العربية", "עִבְרִית"),
    *("🙂", "1️⃣", "\u200b", "co\u00adop", "\x00", "\ud800", "a\u202eb", "…", "“curly”", "don’t", "—"),
]
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=()), max_size=12), max_size=12).map(
    " ".join
)
FORBIDDEN = set(string.punctuation.replace("_", "")) | set(string.whitespace)


@pytest.fixture(scope="module")
def analyzer():
    return Analyzer()


def finds(terms, tokens):
    """Whether every term is a token or, as a prefix, begins one."""
    return all(any(token.startswith(t.text) if t.prefix else token == t.text for token in tokens) for t in terms)


def asked(analyzer, query, languages=()):
    """The terms, but for the guesses at names."""
    return [term for term in analyzer.query_terms(query, languages) if term.kind is not TermKind.GUESS]


def check(analyzer, text, expected):
    assert analyzer.index_tokens(text) == expected


@settings(max_examples=examples(300))
@given(TEXTS)
def test_tokens_are_fit_for_the_keyword_table(analyzer, text):
    for token in [*analyzer.index_tokens(text).split(" "), *(term.text for term in analyzer.query_terms(text))]:
        assert not FORBIDDEN & set(token)
        assert not any(unicodedata.category(char) in {"Cc", "Cs", "Zs", "Zl", "Zp"} for char in token)


@settings(max_examples=examples(300))
@given(TEXTS)
def test_no_token_is_empty(analyzer, text):
    tokens = analyzer.index_tokens(text)
    assert tokens == "" or all(tokens.split(" "))
    assert all(term.text for term in analyzer.query_terms(text))


@settings(max_examples=examples(300))
@given(TEXTS)
@example("第3章 GitHub에서 กา")
def test_every_word_of_a_text_asks_only_for_tokens_of_the_text(analyzer, text):
    tokens = analyzer.index_tokens(text).split()
    for word in text.split():
        terms = asked(analyzer, word)
        assert finds(terms, tokens)
        assert bool(terms) == bool(analyzer.index_tokens(word))


@given(TEXTS)
def test_the_whole_text_as_a_query_finds_the_text(analyzer, text):
    assert finds(asked(analyzer, text), analyzer.index_tokens(text).split())


@given(TEXTS)
def test_terms_are_distinct(analyzer, text):
    terms = analyzer.query_terms(text)
    assert len(terms) == len(set(terms))


@given(TEXTS)
def test_composed_and_decomposed_text_are_the_same(analyzer, text):
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert analyzer.index_tokens(composed) == analyzer.index_tokens(decomposed)
    assert analyzer.query_terms(composed) == analyzer.query_terms(decomposed)


@given(TEXTS)
def test_a_warm_analyzer_answers_as_a_fresh_one(analyzer, text):
    assert analyzer.index_tokens(text) == Analyzer().index_tokens(text)


@given(st.text(st.sampled_from("abcxyzäéñøßœçłλσόпйё"), min_size=1, max_size=8))
def test_case_makes_no_difference(analyzer, word):
    forms = {analyzer.index_tokens(form) for form in (word, word.upper(), word.casefold())}
    assert len(forms) == 1


@given(st.text(st.sampled_from("abcäéñçόё"), min_size=1, max_size=8))
def test_accents_make_no_difference(analyzer, word):
    plain = "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))
    assert analyzer.index_tokens(word) == analyzer.index_tokens(plain)


@settings(max_examples=examples(60), deadline=None)
@given(TEXTS, TEXTS)
def test_the_keyword_table_keeps_the_tokens_and_finds_them(analyzer, text, other):
    db = apsw.Connection(":memory:")
    db.execute("""create virtual table f using fts5(body, tokenize="ascii tokenchars '_'")""")
    db.execute("create virtual table v using fts5vocab(f, row)")
    db.execute("insert into f(body) values (?)", [analyzer.index_tokens(text)])
    assert {term for (term,) in db.execute("select term from v")} == set(analyzer.index_tokens(text).split())
    for word in [text, *text.split(), other]:
        terms = analyzer.query_terms(word)
        if terms:
            match = " OR ".join(f'"{term.text}"' + " *" * term.prefix for term in terms)
            found = db.execute("select count(*) from f where f match ?", [match]).fetchone()[0]
            assert found == 1 or word is other


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ""),
        ("Hello, world!", "hello world"),
        ("the End.", "the end"),
        ("don't don’t", "don t don t"),
        ("fooBar", "foo bar foobar foo_bar"),
        ("foo-bar foo.bar foo_bar foo::bar", "foo bar foo_bar " * 3 + "foo bar foo_bar"),
        ("HTMLParser", "html parser htmlparser html_parser"),
        ("APIs IDs", "api id"),
        ("SHA256 4F2A9B", "sha256 4f2a9b"),
        ("v1.2.3", "v1 2 3 v1_2_3"),
        ("2026-02-08", "2026 02 08 2026_02_08"),
        ("#12 @bob .env", "12 _12 bob _bob env _env"),
        ("-p/--path", "p _p path _path"),
        ("__init__", "init _init"),
        ("see https://example.com/a-b?c=1", "see https exampl com a b example_com_a_b c 1"),
        ("a.b.c.d.e.f.g.h.i.j.k.l.m", "a b c d e f g h i j k l m"),
        ("aB" * 14, "ab" * 14),
        ("Straße ﬁn ｗｉｄｅ ½", "strass fin wide 1 2"),
        ("Łódź Ærø", "lodz aero"),
        ("记", "记"),
        ("记忆文件", "记忆 忆文 文件 件"),
        ("第3章", "第 3 章"),
        ("ｶﾞｷﾞ", "ガギ ギ"),
        ("飞书，插件", "飞书 书 插件 件"),
        ("ภาษาไทย", "ภาษ าษา ษาไ าไท ไทย ทย ย"),
        ("서버에서", "서버에서 서버"),
        ("논의", "논의"),
        ("हिन्दी", "हिन्द"),
        ("co\u00adop\u200b", "coop"),
        ("🙂 -- … ((", ""),
        ("\ud800", ""),
        ("state\u2010of\u2011mind", "state of mind state_of_mind"),
    ],
)
def test_tokens(analyzer, text, tokens):
    check(analyzer, text, tokens)


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("", ""),
        ("?! — 🙂", ""),
        ("where is the key", "key"),
        ("to be or not to be", "to be or not"),
        ("Key key KEY", "key"),
        ("pre-edit", "pre edit pre_edit"),
        ("记", "记*"),
        ("记忆", "记忆"),
        ("记忆文", "记忆 忆文"),
        ("กา", "กา*"),
        ("ภาษา", "ภาษ าษา"),
        ("飞书插件配置", "飞书 书插 插件 件配 配置"),
        ("API를", "api를 api"),
    ],
)
def test_terms(analyzer, query, terms):
    assert " ".join(t.text + "*" * t.prefix for t in asked(analyzer, query)) == terms


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我们今天玩成语接龙游戏吧", "成语接龙"),
        ("我们今天玩成语接龙游戏吧", "成语"),
        ("飞书配置好了", "飞书配置"),
        ("用GitHub备份脚本", "github"),
        ("用GitHub备份脚本", "备份"),
        ("call MemorySearch()", "memorysearch"),
        ("call memory_search()", "memory-search"),
        ("GitHub에서 확인", "github"),
        ("die Straße", "STRASSE"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("ภาษาไทยง่าย", "าย"),
    ],
)
def test_a_text_is_found_by_a_part_or_another_spelling(analyzer, text, query):
    terms = asked(analyzer, query)
    assert terms
    assert finds(terms, analyzer.index_tokens(text).split())


def test_stop_words_are_indexed():
    assert Analyzer().index_tokens("to be") == "to be"


def test_stop_words_are_words_as_the_analyzer_writes_them():
    assert all(fold(word) == word for word in STOP_WORDS)


@pytest.mark.slow
def test_the_caches_are_bounded():
    analyzer = Analyzer()
    analyzer.index_tokens(" ".join(map(str, range(120_000))))
    assert analyzer.cache_sizes.pieces <= 100_000
    # The full cache is replaced, and a long piece is not cached.
    analyzer.index_tokens("x" * 41)
    assert analyzer.cache_sizes.pieces == 0
    for number in range(30):
        analyzer.index_tokens("x", f"language {number}")
    assert analyzer.cache_sizes.languages <= 24


def test_the_version_names_the_unicode_data_and_the_stemmer():
    assert re.fullmatch(r"\d+\+unicode[\d.]+\+(pystemmer|snowballstemmer)[\d.]+", ANALYZER_VERSION)
    assert f"+unicode{unicodedata.unidata_version}+{STEMMER_VERSION}" in ANALYZER_VERSION


def test_terms_are_exact_unless_said_otherwise():
    assert QueryTerm("a") == QueryTerm("a", prefix=False)
