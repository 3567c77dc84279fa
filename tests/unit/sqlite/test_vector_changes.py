"""Vectors in memory stay equal to the last commit, for any sequence of changes and loads."""

import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memoryd_server.errors import DeadlineTooShort
from memoryd_server.sqlite.exact import SlotArrays
from memoryd_server.threads import RWLock
from properties import examples
from vector_fixture import VectorFixture, check_same, clusters, numbered, residency_of, resident_of

DIMENSIONS = 5
PAGE_ROWS = 3
IDS = st.integers(1, 40)
ENGINES = [
    {},
    {"sqlite_vec": True, "memory_budget_bytes": 0},
    {"coarse_above": 2},
    {"coarse_above": 2, "max_codes_bytes": 0},
]


@pytest.fixture
def fixture(tmp_path):
    fixture = VectorFixture(tmp_path)
    yield fixture
    fixture.close()


def direction(seed):
    return np.random.default_rng(seed).standard_normal(DIMENSIONS)


def broken_off(reader, pages, page_rows):
    """A reader whose deadline passes after this number of pages of `page_rows`."""
    after = reader.embeddings_after
    left = [pages]

    def embeddings_after(chunk_id, limit):
        if limit == page_rows:
            left[0] -= 1
        if left[0] < 0:
            raise DeadlineTooShort("the deadline passed")
        return after(chunk_id, limit)

    reader.embeddings_after = embeddings_after
    return reader


class Changes(RuleBasedStateMachine):
    """Commits, searches on new and old snapshots, broken loads and unloading, in any order."""

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.fixture = VectorFixture(Path(self.temporary.name))
        self.vector_indexes = [self.fixture.new_vector_index(**options, page_rows=PAGE_ROWS) for options in ENGINES]
        self.old = []

    def teardown(self):
        for opened, _ in self.old:
            opened.__exit__(None, None, None)
        self.fixture.close()
        self.temporary.cleanup()

    @rule(added=st.dictionaries(IDS, st.integers(0, 9), max_size=12), removed=st.sets(IDS, max_size=12))
    def commit(self, added, removed):
        self.fixture.commit({number: direction(seed) for number, seed in added.items()}, removed - set(added))

    @rule(number=st.sampled_from(range(len(ENGINES))))
    def unload(self, number):
        self.vector_indexes[number].release_memory()

    @rule(number=st.sampled_from(range(len(ENGINES))))
    def reset(self, number):
        self.vector_indexes[number].reset()

    @rule(number=st.sampled_from(range(len(ENGINES))), pages=st.integers(0, 6))
    def search_until_the_deadline(self, number, pages):
        with self.fixture.read() as reader, suppress(DeadlineTooShort):
            self.vector_indexes[number].search(broken_off(reader, pages, PAGE_ROWS), direction(1), 4)

    @rule()
    def keep_a_snapshot(self):
        if len(self.old) < 2:
            opened = self.fixture.read()
            reader = opened.__enter__()
            reader.counts()
            self.old.append((opened, reader))

    @rule(number=st.sampled_from(range(len(ENGINES))))
    def search_a_kept_snapshot(self, number):
        if self.old:
            opened, reader = self.old.pop(0)
            stored = dict(reader.embeddings_after(0, 40))
            for hit in self.vector_indexes[number].search(reader, direction(1), 40):
                vector = np.frombuffer(stored[hit.chunk_id], "<f4").astype(np.float64)
                assert abs(vector @ direction(1) / np.linalg.norm(direction(1)) - hit.cosine) < 1e-5
            opened.__exit__(None, None, None)

    @rule(number=st.sampled_from(range(len(ENGINES))), seed=st.integers(0, 9), limit=st.integers(1, 45))
    def search(self, number, seed, limit):
        check_same(
            self.fixture.search(self.vector_indexes[number], direction(seed), limit),
            self.fixture.exact(direction(seed), limit),
        )

    @invariant()
    def holds_what_is_stored(self):
        stored = {row[0] for row in self.fixture.connection.execute("SELECT chunk_id FROM vectors")}
        for vector_index in self.vector_indexes:
            held = resident_of(vector_index)
            if held is not None:
                assert sorted(held._slots.ids.tolist()) == sorted(stored)


TestAnySequenceOfChanges = Changes.TestCase
TestAnySequenceOfChanges.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("options", ENGINES)
def test_a_snapshot_older_than_the_last_change_is_not_loaded_from(fixture, options):
    vector_index = fixture.new_vector_index(**options)
    fixture.commit({1: np.ones(4), 2: -np.ones(4)})
    with fixture.read() as old:
        old.counts()
        fixture.commit({2: np.ones(4), 3: np.ones(4)}, removed=[1])
        assert [hit.chunk_id for hit in vector_index.search(old, np.ones(4), 5)] == [1, 2]
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(4), 5)] == [2, 3]


def test_a_chunk_that_a_snapshot_lacks_is_dropped_from_its_answer(fixture):
    vector_index = fixture.new_vector_index()
    fixture.commit({1: np.ones(4)})
    fixture.search(vector_index, np.ones(4))
    with fixture.read() as old:
        old.counts()
        fixture.commit({2: np.ones(4)}, removed=[1])
        assert [hit.chunk_id for hit in vector_index.search(old, np.ones(4), 5)] == []
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(4), 5)] == [2]


def test_a_load_interrupted_by_a_deadline_is_continued_by_the_next_search(fixture):
    fixture.commit(numbered(clusters(1_000, 64)))
    vector_index = fixture.new_vector_index(page_rows=100)
    with fixture.read() as reader, pytest.raises(DeadlineTooShort):
        vector_index.search(broken_off(reader, 4, 100), np.ones(64), 3)
    assert residency_of(vector_index)._load.position == 400
    fixture.commit({2: np.ones(64), 999: np.ones(64)}, removed=[1, 1_000])
    with fixture.read() as reader:
        assert [hit.chunk_id for hit in vector_index.search(broken_off(reader, 6, 100), np.ones(64), 2)] == [2, 999]
    check_same(fixture.search(vector_index, np.ones(64)), fixture.exact(np.ones(64)))


def test_an_old_snapshot_does_not_go_on_with_a_load_that_a_newer_one_began(fixture):
    fixture.commit(numbered(clusters(400, 64)))
    vector_index = fixture.new_vector_index(page_rows=100)
    with fixture.read() as old:
        old.counts()
        fixture.commit({300: np.ones(64)})
        with fixture.read() as reader, pytest.raises(DeadlineTooShort):
            vector_index.search(broken_off(reader, 2, 100), np.ones(64), 3)
        vector_index.search(old, np.ones(64), 3)
    check_same(fixture.search(vector_index, np.ones(64)), fixture.exact(np.ones(64)))


def test_a_search_does_not_wait_for_the_load_of_another(fixture):
    fixture.commit(numbered(clusters(200, 16)))
    vector_index = fixture.new_vector_index()
    with residency_of(vector_index)._loading:
        check_same(fixture.search(vector_index, np.ones(16)), fixture.exact(np.ones(16)))
        assert vector_index.memory_bytes == 0


def test_the_mean_is_computed_again_when_vectors_have_doubled_and_searches_go_on(fixture):
    fixture.commit(numbered(clusters(1_100, 64)))
    vector_index = fixture.new_vector_index(coarse_above=0, page_rows=500)
    fixture.search(vector_index, np.ones(64))
    first = resident_of(vector_index)
    fixture.commit(numbered(clusters(1_500, 64, seed=5), first=1_101))
    for _ in range(5):
        assert resident_of(vector_index) is first
        check_same(fixture.search(vector_index, np.ones(64)), fixture.exact(np.ones(64)))
    fixture.search(vector_index, np.ones(64))
    assert resident_of(vector_index) is not first
    assert not resident_of(vector_index).is_stale


@pytest.mark.slow
@pytest.mark.parametrize("options", ENGINES)
def test_searches_go_on_while_changes_are_applied(fixture, options):
    vectors = clusters(3_000, 32)
    fixture.commit(numbered(vectors))
    vector_index = fixture.new_vector_index(**options)
    ended = threading.Event()
    failures = []

    def search_on():
        random = np.random.default_rng()
        while not ended.is_set():
            query = vectors[random.integers(0, 1_000)]
            with fixture.read() as reader:
                stored = {row[0] for row in reader.embeddings_after(0, 6_000)}
                hits = vector_index.search(reader, query, 10)
            if len(hits) < 9 or hits[0].cosine < 0.9999 or not {hit.chunk_id for hit in hits} <= stored:
                failures.append(hits)

    threads = [threading.Thread(target=search_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_ in range(60):
        first = 1_001 + 20 * round_
        fixture.commit(
            {number: vectors[number % 3_000] for number in range(4_000 + 10 * round_, 4_010 + 10 * round_)},
            removed=range(first, first + 20),
        )
        if round_ % 20 == 10:
            vector_index.release_memory()
    ended.set()
    for thread in threads:
        thread.join()
    assert failures == []
    for query in vectors[:20]:
        check_same(fixture.search(vector_index, query), fixture.exact(query))


def test_slots_stay_dense_and_give_room_back():
    slots = SlotArrays(0, [lambda size: np.empty((size, 2), np.int64), lambda size: np.empty((3, size), np.int64).T])
    present = {}
    random = np.random.default_rng(3)
    for round_ in range(200):
        fresh = [
            number for number in random.integers(0, 5_000, random.integers(0, 80)).tolist() if number not in present
        ]
        fresh = sorted(set(fresh))
        ids = np.array(fresh, np.int64)
        slots.put(ids, np.stack((ids, ids + 1), 1), np.stack((ids, ids + 2, ids + 3), 1))
        present.update(dict.fromkeys(fresh))
        gone = [number for number in present if random.random() < (0.9 if round_ % 50 == 49 else 0.05)]
        slots.discard(np.array([*gone, 9_999], np.int64))
        for number in gone:
            del present[number]
        assert sorted(slots.ids.tolist()) == sorted(present)
        assert (slots.column(0) == np.stack((slots.ids, slots.ids + 1), 1)).all()
        assert (slots.column(1) == np.stack((slots.ids, slots.ids + 2, slots.ids + 3), 1)).all()
        assert slots.memory_bytes <= 48 * (1.5 * 1.125 * len(present) + 200)


def test_a_change_waits_for_searches_and_goes_before_those_that_come_later():
    gate = RWLock()
    order = []
    entered, leave, waiting = threading.Event(), threading.Event(), threading.Event()

    def change():
        waiting.set()
        with gate.alone():
            order.append("change")

    def search_first():
        with gate.shared():
            entered.set()
            leave.wait()
            order.append("early search")

    def search_late():
        with gate.shared():
            order.append("late search")

    early, writer, late = (threading.Thread(target=work) for work in (search_first, change, search_late))
    early.start()
    entered.wait()
    writer.start()
    waiting.wait()
    while not gate._writers_waiting:
        pass
    late.start()
    leave.set()
    for thread in (early, writer, late):
        thread.join()
    assert order == ["early search", "change", "late search"]
