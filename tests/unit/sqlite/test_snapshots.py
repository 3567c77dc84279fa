"""Searches of an index that another process writes are exact, whenever they learn of its commits."""

import gc
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from memoryd_server.errors import DeadlineTooShort, IndexDamaged
from memoryd_server.sqlite.connection import file_ids
from memoryd_server.sqlite.resident import PAGE_ROWS
from memoryd_server.sqlite.snapshots import IndexSnapshots
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.store.filters import ALL_CHUNKS
from properties import examples
from vector_fixture import VectorFixture, blob, check_same, resident_of

DIMENSIONS = 5
IDS = st.integers(1, 40)
FORMS = [{}, {"coarse_above": 2}, {"sqlite_vec": True, "memory_budget_bytes": 0}]


def direction(seed):
    return np.random.default_rng(seed).standard_normal(DIMENSIONS)


def vectors_in(**options):
    given = {"sqlite_vec": False, "extension_path": None, "memory_budget_bytes": 1 << 20, "page_rows": 3}
    return VectorIndex(**{**given, **options})


def nearest(snapshots, query, limit=10):
    with snapshots.read() as reader:
        return reader.vector_hits(np.asarray(query, np.float32), limit, ALL_CHUNKS)


class Commits(RuleBasedStateMachine):
    """Commits whose reports arrive later, with searches, interrupted loads and closings between them."""

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.fixture = VectorFixture(Path(self.temporary.name))
        self.all = [IndexSnapshots(self.fixture.path, None, vectors_in(**options)) for options in FORMS]
        self.unreported = []

    def teardown(self):
        for snapshots in self.all:
            snapshots.close()
        self.fixture.close()
        self.temporary.cleanup()

    @rule(added=st.dictionaries(IDS, st.integers(0, 9), max_size=12), removed=st.sets(IDS, max_size=12))
    def commit(self, added, removed):
        removed -= set(added)
        self.fixture.commit({number: direction(seed) for number, seed in added.items()}, removed)
        self.unreported.append((tuple(added), tuple(removed)))

    @rule()
    def report(self):
        if self.unreported:
            added, removed = self.unreported.pop(0)
            for snapshots in self.all:
                snapshots.vectors_changed(added, removed)

    @rule(number=st.sampled_from(range(len(FORMS))), step=st.sampled_from(["reset_vectors", "release_memory", "close"]))
    def drop(self, number, step):
        getattr(self.all[number], step)()

    @rule(number=st.sampled_from(range(len(FORMS))), pages=st.integers(0, 6))
    def search_until_the_deadline(self, number, pages):
        with suppress(DeadlineTooShort), self.all[number].read() as reader:
            after, left = reader.embeddings_after, iter(range(pages))

            def embeddings_after(chunk_id, limit):
                if limit == 3 and next(left, None) is None:
                    raise DeadlineTooShort("the deadline passed")
                return after(chunk_id, limit)

            reader.embeddings_after = embeddings_after
            reader.vector_hits(direction(1).astype(np.float32), 4, ALL_CHUNKS)

    @rule(number=st.sampled_from(range(len(FORMS))), seed=st.integers(0, 9))
    def search(self, number, seed):
        exact = self.fixture.exact(direction(seed), 40)
        if not self.unreported:
            check_same(nearest(self.all[number], direction(seed), 40), exact)
            return
        # Vectors that were not reported may be missing, and no hit has an older vector or an older chunk.
        cosines = dict(exact)
        for hit in nearest(self.all[number], direction(seed), 40):
            assert abs(hit.cosine - cosines[hit.chunk_id]) < 1e-5


TestCommitsReportedLater = Commits.TestCase
TestCommitsReportedLater.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


@pytest.fixture
def fixture(tmp_path):
    fixture = VectorFixture(tmp_path)
    yield fixture
    fixture.close()


def snapshots_of(fixture, **options):
    return IndexSnapshots(fixture.path, file_ids(fixture.path), vectors_in(**options))


def test_a_reported_commit_changes_the_vectors_in_memory_without_a_new_load(fixture):
    fixture.commit({number: direction(number) for number in range(1, 30)})
    vectors = vectors_in()
    snapshots = IndexSnapshots(fixture.path, None, vectors)
    nearest(snapshots, direction(1))
    loaded = resident_of(vectors)
    fixture.commit({40: direction(40), 2: direction(41)}, removed=[3])
    snapshots.vectors_changed((40, 2), (3,))
    assert resident_of(vectors) is loaded
    assert nearest(snapshots, direction(40))[0].chunk_id == 40
    assert nearest(snapshots, direction(41))[0].chunk_id == 2
    assert 3 not in [hit.chunk_id for hit in nearest(snapshots, direction(3), 40)]
    snapshots.close()


def test_a_reported_commit_may_have_any_number_of_vectors(fixture):
    fixture.commit({1: direction(1)})
    vectors = vectors_in()
    snapshots = IndexSnapshots(fixture.path, None, vectors)
    nearest(snapshots, direction(1))
    loaded = resident_of(vectors)
    added = {number: direction(number) for number in range(2, 2 * PAGE_ROWS)}
    fixture.commit(added)
    snapshots.vectors_changed(tuple(added), ())
    assert resident_of(vectors) is loaded
    assert all(nearest(snapshots, direction(number), 1)[0].chunk_id == number for number in [*added][:: PAGE_ROWS // 8])
    snapshots.close()


def test_removed_vectors_take_no_place_among_the_nearest(fixture):
    near = [direction(1) + 0.01 * direction(number) for number in range(2, 202)]
    fixture.commit({**dict(enumerate(near, 1)), 300: direction(300)})
    snapshots = snapshots_of(fixture)
    assert 300 not in [hit.chunk_id for hit in nearest(snapshots, direction(1), 1)]
    fixture.commit({}, removed=range(1, 201))
    snapshots.vectors_changed((), tuple(range(1, 201)))
    assert [hit.chunk_id for hit in nearest(snapshots, direction(1), 1)] == [300]
    snapshots.close()


@pytest.mark.parametrize("options", FORMS[:2])
def test_released_vectors_are_freed_without_a_collection_of_garbage(fixture, options):
    fixture.commit({number: direction(number) for number in range(1, 10)})
    vectors = vectors_in(**options)
    snapshots = IndexSnapshots(fixture.path, None, vectors)
    nearest(snapshots, direction(1))
    loaded = weakref.ref(resident_of(vectors))
    gc.disable()
    try:
        snapshots.release_memory()
        assert loaded() is None
    finally:
        gc.enable()


def test_a_report_about_an_index_that_is_gone_drops_the_vectors(fixture):
    fixture.commit({1: direction(1)})
    vectors = vectors_in()
    snapshots = IndexSnapshots(fixture.path, None, vectors)
    nearest(snapshots, direction(1))
    assert resident_of(vectors) is not None
    fixture.path.rename(fixture.path.with_name("moved"))
    snapshots.vectors_changed((1,), ())
    assert resident_of(vectors) is None
    snapshots.close()


def test_snapshots_of_one_file_do_not_read_another_at_its_path(fixture, tmp_path):
    fixture.commit({1: blob(direction(1))})
    snapshots = snapshots_of(fixture)
    other = tmp_path / "other"
    other.write_bytes(fixture.path.read_bytes())
    other.replace(fixture.path)
    with pytest.raises(IndexDamaged, match="was removed or replaced"):
        nearest(snapshots, direction(1))


def test_closed_snapshots_open_the_file_again(fixture):
    fixture.commit({1: direction(1)})
    snapshots = snapshots_of(fixture)
    assert len(nearest(snapshots, direction(1))) == 1
    snapshots.close()
    fixture.commit({2: direction(2)})
    assert len(nearest(snapshots, direction(1))) == 2
    snapshots.close()
