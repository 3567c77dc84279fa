"""The index of vectors finds what comparing with every vector finds."""

import itertools

import numpy as np
import pytest

from entry_fixture import dataset_of, needs_lancedb, store_at, table_of
from memoryd_server.entries.dataset import MOST_PARTS, VECTOR, entry_to_row, refine_factor
from memoryd_server.entries.model import EntryCategory, EntryFilter, IdentifiedVector
from memoryd_server.entries.store import NewEntry

pytestmark = needs_lancedb

DIMENSIONS = 64
QUESTIONS = 25
INDEX_THRESHOLD = 300 * DIMENSIONS


def unit(values):
    return (values / np.linalg.norm(values)).astype(np.float32)


class EntryIndexFixture:
    """A store, and what is in it kept in a plain dictionary as well."""

    def __init__(self, folder):
        self.folder, self.clock = folder, itertools.count(1)
        self.chance = np.random.default_rng(3)
        self.vectors, self.categories = {}, {}
        self.store = store_at(folder, self.clock, index_threshold=INDEX_THRESHOLD)
        self.store.open()
        self.store.set_dimensions(DIMENSIONS)

    def reopen(self):
        self.store.close()
        self.store = store_at(self.folder, self.clock, index_threshold=INDEX_THRESHOLD)
        self.store.open()

    def made(self):
        return unit(self.chance.standard_normal(DIMENSIONS))

    def add(self, count, identity="x", *, scale_of=1):
        """Stores entries at once; `scale_of` dimensions have all the weight, so that numbers are larger or smaller."""
        rows = []
        for _ in range(count):
            category = list(EntryCategory)[len(self.vectors) % 5]
            entry = self.store._create_entry(NewEntry(f"entry {len(self.vectors)}", 0.5, category))
            vector = np.zeros(DIMENSIONS, np.float32)
            vector[: DIMENSIONS // scale_of] = self.chance.standard_normal(DIMENSIONS // scale_of)
            self.vectors[entry.entry_id], self.categories[entry.entry_id] = unit(vector), category
            rows.append(entry_to_row(entry, "entry", IdentifiedVector(unit(vector), identity)))
        dataset_of(self.store).insert(rows)

    def indices(self):
        return [index.name for index in table_of(self.store).list_indices() if index.columns == [VECTOR]]

    def check(self, *, identity="x", categories=(), limit=5):
        """Every answer is that of comparing with all vectors, distances as well."""
        ids = [entry_id for entry_id in self.vectors if not categories or self.categories[entry_id] in categories]
        matrix = np.stack([self.vectors[entry_id] for entry_id in ids])
        for _ in range(QUESTIONS):
            question = self.made()
            distances = np.sum((matrix - question) ** 2, axis=1)
            best = np.argsort(distances)[:limit]
            found = self.store.nearest(IdentifiedVector(question, identity), limit, EntryFilter(categories))
            assert [each.entry.entry_id for each in found] == [ids[place] for place in best]
            assert [each.score for each in found] == pytest.approx([1 / (1 + distances[at]) for at in best], abs=1e-5)


@pytest.fixture
def entries(tmp_path):
    found = EntryIndexFixture(tmp_path / "e")
    yield found
    found.store.close()


def test_a_small_dataset_has_no_index(entries):
    entries.add(299)
    entries.store.optimize()
    assert entries.indices() == []
    entries.check()


@pytest.mark.slow
def test_a_large_one_has_one_and_finds_the_same_with_what_came_since(entries):
    entries.add(400)
    entries.store.remember(NewEntry("without a vector", 0.5, EntryCategory.OTHER), None)
    entries.store.optimize()
    assert entries.indices() == ["vectors_of_400"]
    for limit in (1, 5, 50):
        entries.check(limit=limit)
    entries.check(categories=[EntryCategory.FACT])
    entries.add(60)
    entries.check()
    entries.store.optimize()
    entries.check()
    entries.reopen()
    entries.check()
    assert entries.indices() == ["vectors_of_400"]


def test_a_forgotten_entry_is_neither_found_nor_kept(entries, tmp_path):
    entries.add(400)
    entries.store.optimize()
    for entry_id in list(entries.vectors)[:30]:
        entries.store.forget(entry_id)
        del entries.vectors[entry_id]
    entries.check()
    entries.store.optimize()
    assert entries.indices() == ["vectors_of_370"]
    entries.check()
    assert len(list((tmp_path / "e" / "memories.lance" / "_indices").iterdir())) == 2


def test_the_index_is_rebuilt_when_its_vectors_have_doubled(entries):
    entries.add(400)
    entries.store.optimize()
    entries.add(450, scale_of=16)
    entries.store.optimize()
    assert entries.indices() == ["vectors_of_850"]
    entries.check()


@pytest.mark.slow
def test_the_parts_of_an_index_are_bounded_however_often_it_is_added_to(entries, tmp_path):
    entries.add(400)
    most = 0
    for _ in range(2 * MOST_PARTS + 1):
        entries.add(2)
        entries.store.optimize()
        (name,) = entries.indices()
        most = max(most, table_of(entries.store).index_stats(name).num_indices)
    assert most == MOST_PARTS
    entries.check()
    assert len(list((tmp_path / "e" / "memories.lance" / "_indices").iterdir())) <= MOST_PARTS + 1


def test_a_changed_model_has_its_own_index_in_the_end(entries):
    entries.add(400)
    entries.store.optimize()
    anew = {entry_id: unit(vector[::-1] ** 3) for entry_id, vector in entries.vectors.items()}
    entries.store.set_vectors([(entry_id, IdentifiedVector(vector, "y")) for entry_id, vector in anew.items()])
    entries.vectors = anew
    entries.store.rebuild_vector_index()
    entries.check(identity="y")
    assert entries.store.nearest(IdentifiedVector(entries.made(), "x"), 5) == []
    entries.store.set_dimensions(2 * DIMENSIONS)
    assert entries.indices() == []
    entries.store.optimize()
    assert entries.store.count_pending("y") == 400


def test_few_answers_are_chosen_from_as_many_proposals_as_many_are():
    assert [refine_factor(limit) for limit in (1, 5, 50)] == [64, 13, 4]
