"""The sum of cached term scores equals FTS5's own score, to the last bit, at each revision."""

import random
from collections import Counter

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_fixture import IndexFixture, ids_of
from memoryd_server.model import Source
from memoryd_server.sqlite.keyword import any_of
from memoryd_server.sqlite.term_scores import best, scores_of
from memoryd_server.text.terms import QueryTerm
from properties import examples

BIRDS = [f"bird{n}" for n in range(12)]
WORDS = [*BIRDS, "成语", "成人", "heron", "kestrel"]
# Rare and common words, prefixes, and a word that does not occur.
TERMS = [*map(QueryTerm, WORDS), QueryTerm("成", prefix=True), QueryTerm("bird", prefix=True), QueryTerm("absent")]


@pytest.fixture(scope="module")
def embedding(tmp_path_factory):
    """Files of all lengths, some words common and some rare, with headings for the second column."""
    index = IndexFixture(tmp_path_factory.mktemp("index")).open()
    # The texts consist of few words, which they repeat.
    index.reader_caches.scores.max_occurrences_per_chunk = 1_000
    choose = random.Random(1)
    weights = [1 / (place + 1) for place in range(len(WORDS))]
    for number in range(120):
        heading = choose.choice(WORDS)
        words = choose.choices(WORDS, weights, k=choose.randint(1, 400))
        index.write(f"memory/{number}.md", f"# {heading}\n\n{' '.join(words)}\n")
    index.sync()
    # Files with the same text, whose scores are equal.
    for number in range(5):
        index.write(f"memory/twin-{number}.md", "heron kestrel")
    index.sync()
    yield index
    index.close()


def with_counts(reader, terms):
    return [(term, reader.vocabulary.term_counts(term)) for term in terms]


def kept(reader, terms):
    """Return the cached scores of these terms, after as many searches as are needed for the lengths to be read."""
    while (found := reader.term_scores.get(with_counts(reader, terms))) is None:
        reader.term_scores.get(with_counts(reader, TERMS))
    return found


def ranked(reader, terms, limit):
    return reader.matches(any_of(terms), limit)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(TERMS), min_size=1, max_size=25), st.sampled_from([1, 3, 5, 50, 1000]))
def test_best_chunks_and_their_scores_are_those_of_fts5(embedding, terms, limit):
    with embedding.store.read() as reader:
        assert best(kept(reader, terms), limit) == ranked(reader, terms, limit)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(TERMS), min_size=1, max_size=25), st.randoms())
def test_score_of_a_chunk_is_that_of_fts5_and_zero_if_it_contains_no_term(embedding, terms, choose):
    with embedding.store.read() as reader:
        ids = [*choose.sample(ids_of(reader, Source.MEMORY), 20), 10**9]
        wanted = reader.scores_of_matches(any_of(terms), ids)
        assert scores_of(kept(reader, terms), ids) == {chunk_id: wanted.get(chunk_id, 0.0) for chunk_id in ids}


def test_no_terms_give_no_hits(embedding):
    with embedding.store.read() as reader:
        assert best([], 5) == []
        assert best(kept(reader, [QueryTerm("absent")]), 5) == []
        assert scores_of([], [1]) == {1: 0.0}


def test_chunks_with_equal_scores_are_ordered_by_id_as_by_fts5(embedding):
    terms = [QueryTerm("heron"), QueryTerm("kestrel")]
    with embedding.store.read() as reader:
        hits = best(kept(reader, terms), 1000)
        commonest, count = Counter(hit.bm25 for hit in hits).most_common(1)[0]
        assert count >= 5
        places = [place for place, hit in enumerate(hits) if hit.bm25 == commonest]
        twins = [hits[place].chunk_id for place in places]
        assert twins == sorted(twins)
        among = places[2] + 1
        assert best(kept(reader, terms), among) == ranked(reader, terms, among) == hits[:among]


class TestCache:
    @pytest.fixture
    def index(self, opened):
        for number in range(20):
            opened.write(f"memory/{number}.md", f"heron bird{number}")
        opened.sync()
        return opened

    COMMON, RARE = QueryTerm("heron"), QueryTerm("bird1")

    def ask(self, index, *terms):
        with index.store.read() as reader:
            return reader.term_scores.get(with_counts(reader, terms))

    def look_up(self, index, *terms):
        with index.store.read() as reader:
            return reader.term_scores.get_for_lookup(with_counts(reader, terms))

    def names(self, index):
        return set(index.reader_caches.scores.current.terms)

    def test_fts5_ranks_until_a_third_of_the_chunks_were_ranked(self, index):
        assert [self.ask(index, self.RARE) is not None for _ in range(8)] == [False] * 6 + [True] * 2
        assert self.names(index) == {'"bird1"'}

    def test_scores_of_a_common_word_are_cached_by_the_first_search(self, index):
        assert self.ask(index, self.COMMON, self.RARE) is not None
        assert self.names(index) == {'"heron"', '"bird1"'}

    def test_fts5_looks_up_a_word_until_its_third_request(self, index):
        assert self.ask(index, self.COMMON) is not None
        assert [self.look_up(index, self.RARE) is not None for _ in range(4)] == [False, False, True, True]
        assert self.look_up(index, self.COMMON) is not None
        assert self.look_up(index, self.COMMON, QueryTerm("bird2")) is None

    def test_fts5_looks_up_words_that_occur_in_too_many_chunks(self, index):
        index.reader_caches.scores.max_occurrences_read_to_look_up = 1
        assert self.ask(index, QueryTerm("absent"), self.COMMON) is not None
        birds = [QueryTerm("bird1"), QueryTerm("bird2")]
        assert [self.look_up(index, *birds) for _ in range(5)] == [None] * 5
        assert self.look_up(index, birds[0]) is not None

    def test_fts5_looks_up_all_words_before_the_lengths_are_read(self, index):
        assert [self.look_up(index, self.RARE) for _ in range(5)] == [None] * 5

    def test_another_revision_has_an_empty_cache(self, index):
        with index.store.read() as before:
            old = best(kept(before, [self.COMMON]), 99)
            (index.workspace / "memory/3.md").unlink()
            index.write("memory/new.md", "heron heron")
            index.sync()
            with index.store.read() as after:
                new = best(kept(after, [self.COMMON]), 99)
                assert new == ranked(after, [self.COMMON], 99)
                assert new != old
            assert best(kept(before, [self.COMMON]), 99) == old == ranked(before, [self.COMMON], 99)

    def test_terms_cached_first_are_evicted_if_the_cache_is_full(self, index):
        assert self.ask(index, self.COMMON) is not None
        index.reader_caches.scores.max_bytes = 824
        for number in range(20):
            assert self.ask(index, QueryTerm(f"bird{number}")) is not None
        assert self.names(index) == {'"bird18"', '"bird19"'}
        assert index.reader_caches.scores.current.bytes == 824

    def test_a_term_larger_than_the_cache_is_not_cached(self, index):
        index.reader_caches.scores.max_bytes = 500
        with index.store.read() as reader:
            assert best(self.ask(index, self.COMMON), 99) == ranked(reader, [self.COMMON], 99)
        assert self.names(index) == set()
        assert index.reader_caches.scores.current.bytes == 0

    def test_request_counts_are_cleared_above_their_limit(self, index):
        index.reader_caches.scores.max_terms_counted = 10
        for number in range(50):
            self.look_up(index, self.COMMON, QueryTerm(f"unheard{number}"))
            assert len(index.reader_caches.scores.current.requests) <= 12

    @pytest.mark.parametrize(
        "change",
        [
            "DELETE FROM keyword_docsize WHERE id = (SELECT max(id) FROM keyword_docsize)",
            "UPDATE keyword_docsize SET sz = x'0101'",
            "UPDATE keyword_docsize SET sz = x'010203'",
            "UPDATE keyword_docsize SET sz = x'8101'",
        ],
    )
    def test_fts5_ranks_if_the_lengths_are_not_stored_as_expected(self, index, change):
        connection = apsw.Connection(str(index.path))
        connection.execute(change)
        connection.close()
        assert self.ask(index, self.COMMON) is None
        assert [self.look_up(index, self.COMMON) for _ in range(4)] == [None] * 4

    def test_fts5_ranks_words_that_texts_repeat(self, index):
        index.write("memory/wave.md", "gull " * 300)
        index.sync()
        assert [self.ask(index, QueryTerm("gull")) for _ in range(30)] == [None] * 30
        index.reader_caches.scores.max_occurrences_per_chunk = 1_000
        assert self.ask(index, QueryTerm("gull")) is not None
        index.reader_caches.scores.max_occurrences_read = 19
        assert self.ask(index, self.COMMON) is None
        assert len(index.hits("gull", 5)) == 1

    def test_idle_agent_releases_the_cache(self, index):
        assert self.ask(index, self.COMMON) is not None
        index.store.release_memory()
        assert index.reader_caches.scores.current is None


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.sampled_from(WORDS), max_size=300)), min_size=1, max_size=12),
)
def test_scores_equal_those_of_fts5_after_every_change(tmp_path_factory, changes):
    index = IndexFixture(tmp_path_factory.mktemp("index")).open()
    # The texts consist of few words, which they repeat.
    index.reader_caches.scores.max_occurrences_per_chunk = 1_000
    for number, words in changes:
        path = index.workspace / f"memory/{number}.md"
        if words:
            index.write(f"memory/{number}.md", f"# {words[0]}\n\n{' '.join(words)}\n")
        elif path.exists():
            path.unlink()
        index.sync()
        with index.store.read() as reader:
            for term in TERMS:
                assert best(kept(reader, [term]), 99) == ranked(reader, [term], 99)
    index.close()


def test_a_repeated_query_gets_the_same_hits(embedding):
    answers = [embedding.hits("heron kestrel bird1 成语", 30) for _ in range(6)]
    assert answers[0]
    assert answers.count(answers[0]) == 6
    assert embedding.reader_caches.scores.current.terms
