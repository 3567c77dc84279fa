"""A search with a filter returns as many results as match it, with the retrievers' scores of a search without one."""

import time
from dataclasses import replace
from datetime import UTC, date, datetime

import numpy as np
import pytest

from filter_fixture import DAY_NS, DIMENSIONS, Note, file_matches, index_of, random_filter, random_notes
from index_fixture import ANALYZER
from memoryd_server.model import Origin, Source
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import EmptyReason, SearchMode, SearchQuery
from memoryd_server.store.filters import ALL_FILES, ChunkFilter, FileFilter, FrontMatterCondition

SOURCES = tuple(Source)
VECTOR = np.random.default_rng(3).standard_normal(DIMENSIONS).astype(np.float32)
VECTOR /= np.linalg.norm(VECTOR)


def search(store, text, vector=None, **changes):
    query = SearchQuery(
        text=text,
        max_results=6,
        min_score=0.0,
        min_score_is_requested=True,
        sources=(),
        mode=SearchMode.UNSPECIFIED,
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + 60,
        now=datetime(2026, 6, 1, tzinfo=UTC),
    )
    engine = SearchEngine(store, ANALYZER, lambda rows: [(True, True)] * len(rows), sources=SOURCES)
    return engine.search(replace(query, **changes), vector, "" if vector is not None else "no provider")


def paths(answer):
    return [hit.path for hit in answer.hits]


def note(path, text, **fields):
    return Note(path, ((text, fields.pop("origin", Origin.OWNER), ""),), **fields)


def single(count, seed=5):
    """Random notes of one chunk each, so that no two chunks are merged into one result."""
    return [replace(each, chunks=each.chunks[:1]) for each in random_notes(count, seed)]


@pytest.mark.parametrize("vector", [None, VECTOR], ids=["keyword", "hybrid"])
def test_a_search_returns_all_results_that_match_the_filter_up_to_the_limit(tmp_path, vector):
    notes = single(300)
    by_path = {each.path: each for each in notes}
    with index_of(notes, tmp_path) as store:
        for seed in range(25):
            among = random_filter(seed)
            left = [each for each in notes if file_matches(each, among)]
            left = [each for each in left if not among.origins or each.chunks[0][1] in among.origins]
            answer = search(store, "common", vector, files=among.files, sources=among.sources, origins=among.origins)
            found = [by_path[path] for path in paths(answer)]
            assert len(set(paths(answer))) == min(6, len(left))
            assert all(each in left for each in found)


@pytest.mark.parametrize("vector", [None, VECTOR], ids=["keyword", "hybrid"])
def test_results_have_the_retrievers_scores_of_a_search_without_a_filter(tmp_path, vector):
    notes = [note(f"memory/{n}.md", f"heron {'reeds ' * n}", metadata={"type": "xy"[n % 2]}) for n in range(20)]
    only_x = FileFilter(front_matter=(FrontMatterCondition("type", ("x",)),))
    with index_of(notes, tmp_path) as store:
        everything = search(store, "heron", vector, max_results=20)
        # The best is one of them, of which the others' scores are shares.
        eligible = [hit for hit in everything.hits if int(hit.path[7:-3]) % 2 == 0]
        found = search(store, "heron", vector, max_results=20, files=only_x).hits
    assert {hit.path for hit in found} == {hit.path for hit in eligible}
    for score in ("text_score", "vector_score", "coverage"):
        expected = {hit.path: getattr(hit, score) for hit in eligible}
        assert {hit.path: getattr(hit, score) for hit in found} == pytest.approx(expected)
    assert len(found) == 10


@pytest.mark.parametrize("vector", [None, VECTOR], ids=["keyword", "hybrid"])
@pytest.mark.parametrize("text", ["common word1", "word3 word40 word900", "what happened on 2025-05-09", "absent"])
def test_a_filter_that_matches_every_file_changes_nothing(tmp_path, vector, text):
    of_all = FileFilter(since=date.min, until=date.max, path_prefixes=("m", "p", "s"))
    with index_of(random_notes(150), tmp_path) as store:
        for _ in range(4):
            plain, filtered = (search(store, text, vector, files=files) for files in (ALL_FILES, of_all))
            assert filtered.hits == plain.hits
            assert (filtered.coverage, filtered.confidence) == (plain.coverage, plain.confidence)
            assert filtered.keyword_candidates == plain.keyword_candidates


def test_words_of_half_of_the_chunks_are_searched_if_the_others_are_not_in_the_filter(tmp_path):
    notes = [note(f"memory/{n}.md", "common" if n % 5 else "common rare") for n in range(60)]
    notes += [note(f"old/{n}.md", "common") for n in range(8)]
    with index_of(notes, tmp_path) as store:
        answer = search(store, "common rare", files=FileFilter(path_prefixes=("old/",)))
    assert len(answer.hits) == 6
    assert all(path.startswith("old/") for path in paths(answer))


def test_words_that_the_bounds_leave_out_are_searched_if_the_others_are_not_in_the_filter(tmp_path):
    rare = [f"rare{number}" for number in range(12)]
    notes = [note(f"memory/{n}.md", f"{rare[n % 12]} filler{n}") for n in range(1_200)]
    notes += [note(f"memory/b{n}.md", f"usual filler{n}") for n in range(3_000)]
    notes += [note(f"old/{n}.md", "usual") for n in range(7)]
    query = " ".join([*rare, *(f"absent{n}" for n in range(20)), "usual"])
    with index_of(notes, tmp_path) as store:
        answer = search(store, query, files=FileFilter(path_prefixes=("old/",)))
        assert len(answer.hits) == 6
        assert all(path.startswith("old/") for path in paths(answer))


def test_inverse_document_frequencies_are_those_of_all_files(tmp_path):
    # Among the three files that are left, "often" is rare and "seldom" is not.
    notes = [note(f"a/{n}.md", "often " + "x" * n) for n in range(20)]
    notes += [note("b/1.md", "seldom y"), note("b/2.md", "seldom z"), note("b/3.md", "often z")]
    with index_of(notes, tmp_path) as store:
        answer = search(store, "often seldom", files=FileFilter(path_prefixes=("b/",)))
        everything = search(store, "often seldom", max_results=30)
    scores = {hit.path: hit.text_score for hit in everything.hits}
    assert len(answer.hits) == 3
    assert [hit.text_score for hit in answer.hits] == pytest.approx([scores[path] for path in paths(answer)])
    assert paths(answer)[2] == "b/3.md"


def test_each_source_has_its_places_among_the_files_that_are_left(tmp_path):
    notes = [note(f"memory/2026-05-01-{n}.md", "heron") for n in range(10)]
    notes += [
        note(f"sessions/main/{n}.jsonl", "heron reeds", source=Source.SESSIONS, mtime_ns=20_574 * DAY_NS + n)
        for n in range(5)
    ]
    notes += [note("memory/2020-01-01.md", "heron"), note("sessions/main/old.jsonl", "heron", source=Source.SESSIONS)]
    with index_of(notes, tmp_path) as store:
        answer = search(store, "heron", files=FileFilter(since=date(2026, 5, 1)))
        only = search(store, "heron", files=FileFilter(until=date(2020, 1, 1)))
    assert len(answer.hits) == 6
    assert {hit.source for hit in answer.hits} == set(Source)
    assert sorted(paths(only)) == ["memory/2020-01-01.md", "sessions/main/old.jsonl"]


def test_only_text_of_the_origins_is_returned(tmp_path):
    notes = [note(f"memory/{origin}.md", "heron", origin=origin) for origin in Origin]
    with index_of(notes, tmp_path) as store:
        answer = search(store, "heron", VECTOR, origins=(Origin.OWNER, Origin.AGENT))
    assert {hit.origin for hit in answer.hits} == {Origin.OWNER, Origin.AGENT}


def test_a_date_that_the_query_names_brings_no_file_that_the_filter_leaves_out(tmp_path):
    notes = [note("memory/2026-05-08.md", "crane"), note("projects/2026-05-08.md", "crane")]
    with index_of(notes, tmp_path) as store:
        answer = search(store, "what did we do on 2026-05-08", files=FileFilter(path_prefixes=("projects/",)))
    assert paths(answer) == ["projects/2026-05-08.md"]


EMPTY = {
    "filter": ({"files": FileFilter(path_prefixes=("absent/",))}, "no indexed file matches the filter"),
    "origins": (
        {"origins": (Origin.SYSTEM,)},
        "no indexed text matches the filter and has one of the permitted origins",
    ),
    "words": ({"files": FileFilter(path_prefixes=("b",))}, "none of heron occurs in the files that match the filter"),
    "no filter": ({"sources": (Source.SESSIONS,)}, "none of heron occurs in the sources that were searched"),
}


@pytest.mark.parametrize(("changes", "reason"), EMPTY.values(), ids=EMPTY)
def test_an_empty_answer_says_whether_the_filter_left_everything_out(tmp_path, changes, reason):
    with index_of([note("a.md", "heron"), note("b.md", "crane")], tmp_path) as store:
        answer = search(store, "heron", **changes)
    assert (answer.hits, answer.empty_reason) == ((), EmptyReason.NO_MATCH)
    assert answer.empty_explanation.startswith(reason)


def test_a_filter_of_an_empty_index_is_not_the_reason(tmp_path):
    with index_of([], tmp_path) as store:
        answer = search(store, "heron", files=FileFilter(path_prefixes=("a",)))
    assert answer.empty_reason is EmptyReason.EMPTY_INDEX


def test_conditions_of_one_filter_are_resolved_per_source(tmp_path):
    among = ChunkFilter(FileFilter(path_prefixes=("memory/",)), (Source.SESSIONS,))
    with index_of([note("memory/a.md", "heron")], tmp_path) as store, store.read() as reader:
        assert not reader.has_chunks(among)
        assert reader.has_chunks(replace(among, sources=(Source.MEMORY,)))
