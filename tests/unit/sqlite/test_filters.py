"""A filter leaves the chunks that a brute-force filter over the notes leaves, in both retrievers and by day."""

import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_fixture import (
    DAY_NS,
    DIMENSIONS,
    Note,
    chosen,
    file_matches,
    index_of,
    places,
    random_filter,
    random_notes,
    store_vectors,
)
from memoryd_server.model import FileStat, Origin, Source
from memoryd_server.sqlite.filter_cache import ChunkSet, FilterCache, chunk_ids
from memoryd_server.store.filters import ALL_CHUNKS, ChunkFilter, FileFilter, FrontMatterCondition
from memoryd_server.text.terms import QueryTerm
from properties import examples

MANY = 100_000
COMMON = QueryTerm("common")
SOME = [QueryTerm("word1"), QueryTerm("word40"), QueryTerm("word3", prefix=True)]

DAYS = [date(2026, 4, 30), date(2026, 5, 1), date(2026, 5, 2)]
PATHS = ["a.md", "memory/2026-05-01.md", "memory/2026-05-02-x.md", "memory/2026-05-011.md", "b/ä.md", "b/\U0010ffff.md"]
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.sampled_from(["#Ops, x", "ops", ["X", " Ops"], "", []]),
        "date": st.sampled_from(["2026-05-01", "2026-05-02T10:00", "soon", ["2026-05-01"]]),
        "project": st.sampled_from(["Straße", "p"]),
    },
)
CHUNKS = st.lists(
    st.tuples(
        st.sampled_from(["common", "common word1", "common word40 word1", "common word30"]),
        st.sampled_from(Origin),
        st.sampled_from(["", "2026-05-01", "2026-06-01"]),
    ),
    max_size=3,
).map(tuple)
NOTES = st.lists(
    st.builds(
        Note,
        st.sampled_from(PATHS),
        CHUNKS,
        st.sampled_from(Source),
        METADATA,
        # The first and the last nanosecond of a day, and a time before 1970.
        st.sampled_from([20_574 * DAY_NS - 1, 20_574 * DAY_NS, 20_575 * DAY_NS - 1, 20_575 * DAY_NS, -1]),
    ),
    max_size=8,
    unique_by=lambda note: (note.source, note.path),
)
CONDITIONS = st.sampled_from(
    [("tags", ("ops",)), ("tags", ("x", "none")), ("project", ("strasse",)), ("project", ("p",)), ("tags", ())]
)
FILTERS = st.builds(
    ChunkFilter,
    st.builds(
        FileFilter,
        st.none() | st.sampled_from(DAYS),
        st.none() | st.sampled_from(DAYS),
        st.lists(st.sampled_from(["a", "memory/2026-05-0", "b/", "b/ä", "b/\U0010ffff", "z"]), max_size=2).map(tuple),
        st.lists(CONDITIONS.map(lambda each: FrontMatterCondition(*each)), max_size=2).map(tuple),
    ),
    st.lists(st.sampled_from(Source), max_size=2, unique=True).map(tuple),
    st.lists(st.sampled_from(Origin), max_size=3, unique=True).map(tuple),
)


class Unfiltered:
    """What searches of a snapshot return without a filter: the places, the scores and the order of all chunks."""

    def __init__(self, reader):
        self.places = places(reader)
        self.keyword = [
            (terms, {hit.chunk_id: hit.bm25 for hit in reader.keyword_hits(terms, ALL_CHUNKS, MANY)})
            for terms in ([COMMON], SOME)
        ]
        self.query = np.random.default_rng(7).standard_normal(DIMENSIONS).astype(np.float32)
        self.nearest = reader.vector_hits(self.query, MANY, ALL_CHUNKS)
        self.dated = reader.dated_chunks(date.min, date.max, ALL_CHUNKS, MANY)


def check(reader, notes, among, all_chunks):
    """Both retrievers and the days return the chunks that the notes leave, with the scores of all chunks."""
    left = chosen(notes, among)
    expected = {chunk_id for chunk_id, place in all_chunks.places.items() if place in left}
    assert len(expected) == len(left)
    assert reader.has_chunks(among) is bool(expected)
    assert reader.matching_files(among) == {(note.source, note.path) for note in notes if file_matches(note, among)}
    for terms, every_score in all_chunks.keyword:
        scores = {chunk_id: score for chunk_id, score in every_score.items() if chunk_id in expected}
        found = {hit.chunk_id: hit.bm25 for hit in reader.keyword_hits(terms, among, MANY)}
        assert found.keys() == scores.keys()
        assert all(abs(found[chunk_id] - score) <= -1e-9 * score for chunk_id, score in scores.items())
        best = reader.keyword_hits(terms, among, 3)
        assert {hit.chunk_id for hit in best} <= expected
        assert [hit.bm25 for hit in best] == pytest.approx(sorted(scores.values())[:3])
    assert {hit.chunk_id for hit in reader.keyword_hits([COMMON], among, MANY)} == expected
    nearest = [hit for hit in all_chunks.nearest if hit.chunk_id in expected]
    assert len(nearest) == len(expected)
    assert reader.vector_hits(all_chunks.query, MANY, among) == nearest
    assert reader.vector_hits(all_chunks.query, 3, among) == nearest[:3]
    dated = [each for each in all_chunks.dated if each in expected]
    assert sorted(reader.dated_chunks(date.min, date.max, among, MANY)) == sorted(dated)


@settings(max_examples=examples(300), deadline=None)
@given(NOTES, FILTERS)
def test_a_filter_leaves_what_a_brute_force_filter_leaves(notes, among):
    with tempfile.TemporaryDirectory() as folder, index_of(notes, Path(folder)) as store:
        # Repeated, for the scores of terms and the vectors that are kept in memory.
        for _ in range(3):
            with store.read() as reader:
                check(reader, notes, among, Unfiltered(reader))


@pytest.mark.parametrize(
    "options", [{}, {"memory_budget_bytes": 0}, {"memory_budget_bytes": 0, "sqlite_vec": False}, {"coarse_above": 10}]
)
def test_filters_of_two_hundred_files_leave_what_brute_force_leaves(tmp_path, options):
    notes = random_notes(200)
    with index_of(notes, tmp_path, **options) as store:
        for seed in range(12):
            with store.read() as reader:
                check(reader, notes, random_filter(seed), Unfiltered(reader))


@pytest.mark.slow
def test_filters_of_ten_thousand_files_leave_what_brute_force_leaves(tmp_path):
    notes = random_notes(10_000)
    with index_of(notes, tmp_path) as store:
        with store.read() as reader:
            all_chunks = Unfiltered(reader)
            for seed in range(30):
                check(reader, notes, random_filter(seed), all_chunks)
        writer = store.writer()
        rows = writer.files()
        removed, notes = notes[:500], notes[500:]
        changed = [replace(note, metadata={"tags": "x"}) for note in notes[:500]]
        writer.write([note.prepared() for note in changed], [rows[note.source, note.path] for note in removed])
        store_vectors(writer)
        notes = changed + notes[500:]
        with store.read() as reader:
            all_chunks = Unfiltered(reader)
            for seed in range(10):
                check(reader, notes, random_filter(seed), all_chunks)


NOTE = Note("memory/a.md", (("common", Origin.OWNER, ""),), mtime_ns=20_574 * DAY_NS)
# 2026-05-01 is day 20,574.
MAY_1 = ChunkFilter(FileFilter(since=date(2026, 5, 1), until=date(2026, 5, 1)))


def touch(store, mtime_ns):
    writer = store.writer()
    (row,) = writer.files().values()
    writer.touch([(row, FileStat(1, mtime_ns, 9, 3, 4))])


def test_a_touched_file_is_found_by_its_new_date_although_the_revision_is_the_same(tmp_path):
    with index_of([NOTE], tmp_path) as store, store.read() as before:
        assert before.has_chunks(MAY_1)
        touch(store, 20_575 * DAY_NS)
        with store.read() as after:
            assert after.revision == before.revision
            assert not after.has_chunks(MAY_1)
            assert before.has_chunks(MAY_1), "a snapshot changed"
            assert not after.has_chunks(MAY_1)
        touch(store, 20_574 * DAY_NS)
        with store.read() as again:
            assert again.has_chunks(MAY_1)


def test_a_snapshot_has_its_own_chunks_after_a_change(tmp_path):
    among = ChunkFilter(FileFilter(path_prefixes=("memory/",)))
    with index_of([NOTE], tmp_path) as store, store.read() as before:
        assert len(before.keyword_hits([COMMON], among, 10)) == 1
        store.writer().write([Note("memory/b.md", NOTE.chunks).prepared()])
        with store.read() as after:
            assert len(after.keyword_hits([COMMON], among, 10)) == 2
            assert len(before.keyword_hits([COMMON], among, 10)) == 1
            assert len(after.keyword_hits([COMMON], among, 10)) == 2


def test_a_chunk_of_unknown_origin_has_none_of_the_origins(tmp_path):
    with index_of([NOTE], tmp_path) as store:
        connection = apsw.Connection(str(store.path))
        connection.execute("UPDATE chunks SET origin = NULL").fetchall()
        connection.close()
        with store.read() as reader:
            assert not reader.has_chunks(ChunkFilter(origins=tuple(Origin)))
            assert reader.has_chunks(ChunkFilter(sources=(Source.MEMORY,)))


def test_a_search_without_a_filter_resolves_none(tmp_path):
    with index_of([NOTE], tmp_path) as store:
        with store.read() as reader:
            reader.vector_hits(np.ones(DIMENSIONS, np.float32), 10, ChunkFilter())
            vectors = store.vector_memory_bytes()
            reader.keyword_hits([COMMON], ALL_CHUNKS, 10)
            assert reader.selected(ChunkFilter()) is None
            assert store.vector_memory_bytes() == vectors
            reader.has_chunks(MAY_1)
            # The id, and the mask up to it.
            assert store.vector_memory_bytes() == vectors + 8 + 2
        store.release_memory()
        assert store.vector_memory_bytes() == 0


def test_a_closed_index_has_no_vectors_and_no_filters_in_memory(tmp_path):
    with index_of([NOTE], tmp_path) as store:
        with store.read() as reader:
            # The vectors are loaded by the second search, and the filter by the first question.
            for _ in range(2):
                reader.vector_hits(np.ones(DIMENSIONS, np.float32), 10, ChunkFilter())
            vectors = store.vector_memory_bytes()
            reader.has_chunks(MAY_1)
            assert 0 < vectors < store.vector_memory_bytes()
        store.close()
        assert store.vector_memory_bytes() == 0


def test_the_cache_is_bounded_and_drops_the_least_recently_used_filter(tmp_path):
    filters = [ChunkFilter(FileFilter(path_prefixes=(name,))) for name in ("memory/", "m", "me", "mem")]
    with index_of([NOTE], tmp_path) as store, store.read() as reader:
        first, second, third, fourth = filters
        cache = FilterCache(max_filters=2)
        kept = cache.get(reader.connection, (1, 0), first)
        cache.get(reader.connection, (1, 0), second)
        assert cache.get(reader.connection, (1, 0), first) is kept
        cache.get(reader.connection, (1, 0), third)
        assert cache.get(reader.connection, (1, 0), first) is kept
        assert cache.get(reader.connection, (2, 0), first) is not kept
        assert cache.memory_bytes == 2 * kept.bytes
        small = FilterCache(max_bytes=kept.bytes)
        for among in filters:
            assert small.get(reader.connection, (1, 0), among).ids.tolist() == kept.ids.tolist()
            assert small.memory_bytes == kept.bytes
        assert (
            small.get(reader.connection, (1, 0), fourth).ids.tolist() == chunk_ids(reader.connection, fourth).tolist()
        )


def test_a_set_of_chunks_holds_its_ids_and_no_others():
    some = ChunkSet.of(np.array([7, 2, 5], np.int64))
    assert some.ids.tolist() == [2, 5, 7]
    assert some.holds(np.array([0, 2, 3, 7, 8, 10**9], np.int64)).tolist() == [False, True, False, True, False, False]
    none = ChunkSet.of(np.empty(0, np.int64))
    assert not none
    assert none.holds(np.array([0, 1], np.int64)).tolist() == [False, False]
