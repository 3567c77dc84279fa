"""Scores of given chunks are equal to the scores of the search."""

import random

import pytest

from index_fixture import ANALYZER, IndexFixture, connection_of
from memoryd_server.search import keyword
from memoryd_server.search.keyword import idf
from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.text.terms import QueryTerm

WORDS = ["heron", "herons", "Reiher", "foo_bar", "2026-02-08", "成语接龙", "running", "a", "the", "GitHub", "mã", "ไทย"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Files of many lengths, languages and headings, some of which have gone again."""
    index, chance = IndexFixture(tmp_path_factory.mktemp("library")).open(), random.Random(7)
    words = WORDS + [f"word{i}" for i in range(200)]
    for number in range(120):
        body = " ".join(chance.choice(words) for _ in range(chance.randint(1, 700)))
        german = "Der Reiher ist nicht in dem Haus und auch nicht auf dem Dach. " * (number % 5 == 0)
        front = f"---\ntitle: {chance.choice(words)}\n---\n" * (number % 3 == 0)
        index.write(f"memory/2026-01-{number:03}.md", f"{front}# {chance.choice(words)}\n\n{german}{body}\n")
    index.sync()
    for number in range(0, 120, 7):
        (index.workspace / f"memory/2026-01-{number:03}.md").unlink()
    index.sync()
    yield index
    index.close()


def check(library, terms):
    with library.store.read() as reader:
        chunks = reader.counts().chunks
        answer = keyword.search(reader, terms, ALL_CHUNKS, enough=chunks, limit=chunks, chunk_count=chunks)
        scores = reader.keyword_scores(answer.searched, [hit.chunk_id for hit in answer.hits])
        assert answer.hits
        assert scores == {hit.chunk_id: hit.bm25 for hit in answer.hits}


@pytest.mark.parametrize(
    "query",
    [
        "heron",
        "word1 word2 word3 running",
        "the foo_bar of GitHub",
        "成语接龙",
        "成",
        "2026-02-08",
        "Haus Reiher",
        "mã ไทย",
    ],
)
def test_scores_are_those_of_sqlite(library, query):
    with library.store.read() as reader:
        languages = reader.counts().languages
    check(library, ANALYZER.query_terms(query, languages))


def test_scores_of_prefixes_are_those_of_sqlite(library):
    check(library, [QueryTerm("wor", prefix=True), QueryTerm("heron")])


def test_a_chunk_without_the_words_scores_nothing(library):
    with library.store.read() as reader:
        ids = [row[0] for row in connection_of(reader).execute("SELECT id FROM chunks LIMIT 3")]
        assert reader.keyword_scores([QueryTerm("absent")], [*ids, 10**9]) == dict.fromkeys([*ids, 10**9], 0.0)
        assert reader.keyword_scores([], []) == {}


@pytest.mark.parametrize(("frequency", "chunks"), [(1, 10), (0, 10), (10, 10), (5, 10), (0, 0)])
def test_no_word_weighs_nothing(frequency, chunks):
    assert idf(frequency, chunks) >= 1e-6
