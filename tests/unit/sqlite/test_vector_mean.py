"""The stored mean of an index's vectors: which vectors it averages, when it is measured, and when it is deleted."""

import numpy as np
import pytest

from memoryd_server.sqlite import schema, vector_mean
from memoryd_server.sqlite.writer import SqliteWriter
from memoryd_server.store.identity import VectorIdentity
from vector_fixture import VectorFixture, clusters, numbered


@pytest.fixture
def fixture(tmp_path):
    fixture = VectorFixture(tmp_path)
    yield fixture
    fixture.close()


def measured(fixture, dimensions=8):
    SqliteWriter(fixture.connection).measure_vector_centre()
    return vector_mean.read(fixture.connection, dimensions)


def test_an_index_without_vectors_has_no_centre(fixture):
    assert measured(fixture) is None


@pytest.mark.parametrize("count", [1, 2, 20, vector_mean.SAMPLED])
def test_the_centre_of_a_small_index_is_the_mean_of_all_vectors(fixture, count):
    vectors = clusters(count, 8)
    fixture.commit(numbered(vectors, first=1_000))
    assert measured(fixture) == pytest.approx(vectors.mean(axis=0), abs=1e-6)


def test_the_centre_of_a_large_index_is_the_mean_of_a_sample_that_stays_the_same(fixture):
    vectors = clusters(2_000, 8)
    fixture.commit(numbered(vectors))
    first = measured(fixture)
    assert np.linalg.norm(first - vectors.mean(axis=0)) < 0.15
    fixture.connection.execute("DELETE FROM meta WHERE key LIKE 'vector_centre%'")
    assert np.array_equal(measured(fixture), first)


def test_an_index_whose_chunk_ids_have_no_common_step_is_measured_too(fixture):
    fixture.commit(dict(zip(range(1, 2_001, 2), clusters(1_000, 8), strict=True)))
    assert measured(fixture) is not None


def test_the_centre_is_measured_again_only_after_a_change(fixture):
    fixture.commit(numbered(clusters(3, 8)))
    first = measured(fixture)
    changes = fixture.connection.total_changes()
    assert np.array_equal(measured(fixture), first)
    assert fixture.connection.total_changes() == changes
    fixture.commit(removed=[1])
    assert not np.array_equal(measured(fixture), first)


def test_a_vector_with_a_number_that_is_not_finite_does_not_count(fixture):
    (good,) = clusters(1, 8)
    bad = np.full(8, np.nan, "<f4").tobytes()
    fixture.commit({1: good, 2: bad})
    assert measured(fixture) == pytest.approx(good, abs=1e-6)


def test_vectors_of_another_identity_have_no_centre_until_it_is_measured(fixture):
    fixture.commit(numbered(clusters(3, 8)))
    assert measured(fixture) is not None
    SqliteWriter(fixture.connection).begin_vectors(VectorIdentity("p", "another", "", 8, "", ""))
    assert vector_mean.read(fixture.connection, 8) is None


@pytest.mark.parametrize("stored", ["", "text", 7])
def test_a_damaged_centre_counts_as_none(fixture, stored):
    schema.set_meta(fixture.connection, "vector_centre", stored)
    assert vector_mean.read(fixture.connection, 8) is None


def test_searches_follow_each_new_centre_and_its_deletion(fixture):
    def of_search(dimensions=8):
        with fixture.read() as reader:
            return reader.vector_centre(dimensions)

    assert of_search() is None
    for first in (1, 100):
        fixture.commit(numbered(clusters(3, 8, seed=first), first=first))
        expected = measured(fixture)
        assert np.array_equal(of_search(), expected)
        assert np.array_equal(of_search(), expected)
        assert of_search(16) is None
    SqliteWriter(fixture.connection).begin_vectors(VectorIdentity("p", "another", "", 8, "", ""))
    assert of_search() is None
