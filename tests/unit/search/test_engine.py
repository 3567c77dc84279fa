"""An answer reports its hits, its degradations and, if empty, the reason."""

import time

import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import ANALYZER, IndexFixture
from memoryd_server.errors import DeadlineTooShort, EmbeddingUnavailable
from memoryd_server.model import DegradationKind, Source
from memoryd_server.search import keyword
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import EmptyReason, SearchMode, SearchQuery
from memoryd_server.store.identity import VectorIdentity
from word_provider import WordProvider


def all_there(rows):
    return [(True, True) for _ in rows]


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    yield index
    index.close()


def ask(index, text, check=all_there, **changes):
    engine = SearchEngine(index.store, ANALYZER, check, sources=[Source.MEMORY])
    return engine.search(query_of(text, **changes), no_vector="no provider")


def query_of(text, **changes):
    given = {
        "max_results": 6,
        "min_score": 0.35,
        "min_score_is_requested": False,
        "sources": (Source.MEMORY,),
        "mode": SearchMode.UNSPECIFIED,
        "max_snippet_chars": 700,
        "citations": False,
        "max_total_chars": None,
        "deadline": time.monotonic() + 30,
    }
    return SearchQuery(text=text, **{**given, **changes})


def embedding(index, texts):
    for path, text in texts.items():
        index.write(f"memory/{path}.md", text)
    index.sync()
    return index


def birds(index, count=10):
    return embedding(index, {f"{n}": f"heron {'filler ' * 5 * n}" for n in range(1, count + 1)})


def shown(answer):
    return [hit.path for hit in answer.hits]


def test_hits_stand_in_the_order_of_their_ranks(index):
    answer = ask(embedding(birds(index), {"other": "kestrel " * 50}), "heron")
    assert shown(answer) == [f"memory/{n}.md" for n in range(1, 7)]
    assert [hit.keyword_rank for hit in answer.hits] == [1, 2, 3, 4, 5, 6]
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(set(scores), reverse=True)
    assert answer.revision == index.revision()
    assert (answer.indexed_files, answer.keyword_candidates) == (11, 10)


def test_a_single_exact_word_is_found_at_the_default_bar(index):
    answer = ask(embedding(index, {"a": "the ticket is ABC9931", "b": "something else"}), "ABC9931")
    assert shown(answer) == ["memory/a.md"]
    assert answer.hits[0].score == 1.0


def check_empty(answer, reason, words):
    assert answer.hits == ()
    assert answer.empty_reason is reason
    assert words in answer.empty_explanation


def test_an_empty_index_says_so(index):
    check_empty(ask(index, "heron"), EmptyReason.EMPTY_INDEX, "Sync")


def test_words_that_stand_nowhere_say_so(index):
    check_empty(ask(birds(index), "unheard"), EmptyReason.NO_MATCH, "none of the query's words")


def test_hits_below_the_least_score_are_counted(index):
    birds(index)
    answer = ask(index, "heron", min_score=1.0, min_score_is_requested=True)
    assert len(answer.hits) == 1
    assert answer.dropped_by_min_score == 9


def test_files_that_are_gone_are_not_shown_and_take_no_others_place(index):
    gone = {f"memory/{n}.md" for n in range(1, 6)}
    answer = ask(birds(index), "heron", lambda rows: [(row.path not in gone, row.path not in gone) for row in rows])
    assert shown(answer) == [f"memory/{n}.md" for n in range(6, 11)]
    assert answer.stale


def test_an_answer_whose_files_are_all_gone_says_so(index):
    check_empty(
        ask(birds(index), "heron", lambda rows: [(False, False) for _ in rows]), EmptyReason.FILES_GONE, "10 hits"
    )


def test_a_hit_whose_file_has_changed_makes_the_answer_stale(index):
    answer = ask(birds(index), "heron", lambda rows: [(True, False) for _ in rows])
    assert answer.stale
    assert len(answer.hits) == 6


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"mode": SearchMode.KEYWORD}, []),
        ({"mode": SearchMode.HYBRID}, [DegradationKind.VECTOR_LEG_SKIPPED]),
        ({"sources": (Source.MEMORY, Source.SESSIONS)}, [DegradationKind.SOURCE_SKIPPED]),
        ({"sources": (Source.SESSIONS,)}, [DegradationKind.SOURCE_SKIPPED]),
    ],
)
def test_an_unsatisfied_request_is_a_degradation(index, changes, kinds):
    answer = ask(birds(index), "heron", **changes)
    assert [d.kind for d in answer.degradations] == kinds
    assert answer.served_mode is SearchMode.KEYWORD
    assert [leg.ran for leg in answer.retrievers] == [True, False]


def test_a_source_that_is_not_indexed_gives_nothing(index):
    assert shown(ask(birds(index), "heron", sources=(Source.SESSIONS,))) == []


def test_a_citation_names_the_chunk_and_follows_the_snippet(index):
    (hit,) = ask(embedding(index, {"a": "one\ntwo\nheron"}), "heron", citations=True).hits
    assert hit.snippet == "one\ntwo\nheron\n\nSource: memory/a.md#L1-L3"


def test_the_lines_of_a_hit_are_those_of_the_file(index):
    text = "---\ntitle: t\n---\n" + "".join(f"line {n}\n" for n in range(500)) + "the heron\n"
    (hit,) = ask(embedding(index, {"a": text}), "heron", max_snippet_chars=80).hits
    lines = text.split("\n")
    assert hit.snippet == "\n".join(lines[hit.snippet_start_line - 1 : hit.snippet_end_line])
    assert hit.start_line <= hit.snippet_start_line <= hit.snippet_end_line <= hit.end_line
    assert lines.index("the heron") + 1 in range(hit.snippet_start_line, hit.snippet_end_line + 1)


def test_a_budget_holds_over_all_snippets(index):
    answer = ask(birds(index), "heron", max_total_chars=100)
    assert sum(len(hit.snippet) for hit in answer.hits) <= 100
    assert len(answer.hits) < 6


def test_a_deadline_that_has_passed_ends_a_search(index):
    birds(index)
    with pytest.raises(DeadlineTooShort):
        ask(index, "heron", deadline=time.monotonic() - 1)
    assert ask(index, "heron").hits


class TestVectorOfAnotherIdentity:
    """The index's vectors were replaced while the question's was being made, by others that are as long."""

    @pytest.fixture
    def embedded(self, tmp_path):
        embedding = EmbeddingFixture(tmp_path)
        embedding.write(a="heron kestrel", b="stork")
        embedding.sync()
        yield embedding
        embedding.close()

    def ask(self, embedding, made_by, text="heron", **changes):
        engine = SearchEngine(embedding.index.store, ANALYZER, all_there, sources=[Source.MEMORY])
        # What keywords would not find is near the vector.
        vector = made_by.vector("stork")
        return engine.search(query_of(text, **changes), vector, identity=VectorIdentity.of(made_by.spec))

    def test_a_vector_of_the_indexs_own_identity_is_asked_with(self, embedded):
        answer = self.ask(embedded, embedded.provider, min_score=0.0, mode=SearchMode.HYBRID)
        assert (answer.served_mode, answer.vector_candidates, answer.degradations) == (SearchMode.HYBRID, 2, ())
        assert set(shown(answer)) == {"memory/a.md", "memory/b.md"}

    def test_one_of_another_is_left_out_and_keywords_answer_with_the_reason(self, embedded):
        answer = self.ask(embedded, WordProvider("other"), min_score=0.0, mode=SearchMode.HYBRID)
        assert (answer.served_mode, answer.vector_candidates) == (SearchMode.KEYWORD, 0)
        assert shown(answer) == ["memory/a.md"]
        assert answer.hits[0].vector_score is None
        (degradation,) = answer.degradations
        assert degradation.kind is DegradationKind.VECTOR_LEG_SKIPPED
        assert "has just replaced" in degradation.reason

    def test_a_vector_only_search_on_replaced_vectors_asks_for_a_retry(self, embedded):
        with pytest.raises(EmbeddingUnavailable, match="has just replaced") as raised:
            self.ask(embedded, WordProvider("other"), mode=SearchMode.VECTOR)
        assert raised.value.retry_after_seconds == 1.0


class TestWordsFoundBefore:
    """The keyword leg runs while the provider makes the question's vector, and once for each revision."""

    @pytest.fixture
    def searched(self, monkeypatch):
        calls, search = [], keyword.search
        monkeypatch.setattr(keyword, "search", lambda *args, **kw: calls.append(1) or search(*args, **kw))
        return calls

    @pytest.fixture
    def engine(self, index):
        birds(index)
        return SearchEngine(index.store, ANALYZER, all_there, sources=[Source.MEMORY])

    def test_they_are_not_searched_for_again(self, engine, searched):
        words = engine.search_keywords(query_of("heron"))
        answer = engine.search(query_of("heron"), no_vector="it is down", early=words)
        assert len(searched) == 1
        again = engine.search(query_of("heron"), no_vector="it is down")
        assert [(hit.path, hit.score) for hit in answer.hits] == [(hit.path, hit.score) for hit in again.hits]
        assert answer.retrievers[0].elapsed_seconds >= words.elapsed_seconds

    def test_they_do_not_count_once_the_index_has_changed(self, engine, searched, index):
        words = engine.search_keywords(query_of("heron"))
        index.write("memory/new.md", "heron heron heron")
        index.sync()
        answer = engine.search(query_of("heron"), no_vector="it is down", early=words)
        assert len(searched) == 2
        assert "memory/new.md" in shown(answer)

    def test_there_are_none_where_the_vector_leg_alone_was_asked_for(self, engine, searched):
        assert engine.search_keywords(query_of("heron", mode=SearchMode.VECTOR)) is None
        assert searched == []
