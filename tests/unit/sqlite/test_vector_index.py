"""Each engine returns the same hits as a comparison of every stored vector."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.model import Source
from properties import examples
from vector_fixture import PLENTY, VectorFixture, check_same, clusters, numbered, resident_of

WHOLE = {}
COARSE = {"coarse_above": 50}
SIGNS_ALONE = {"coarse_above": 50, "max_codes_bytes": 0}
SCAN = {"memory_budget_bytes": 0}
EXTENSION_SCAN = {"memory_budget_bytes": 0, "sqlite_vec": True}
ENGINES = [
    pytest.param(WHOLE, id="whole"),
    pytest.param(COARSE, id="coarse"),
    pytest.param(SIGNS_ALONE, id="signs-alone"),
    pytest.param(SCAN, id="scan"),
    pytest.param(EXTENSION_SCAN, id="sqlite-vec-scan"),
]
KINDS = {"ExactVectors": WHOLE, "SignBits": COARSE, "NoneType": SCAN}


@pytest.fixture
def fixture(tmp_path):
    fixture = VectorFixture(tmp_path)
    yield fixture
    fixture.close()


def resident(vector_index):
    return type(resident_of(vector_index)).__name__


def with_twins(vectors, seed=1):
    """The same with a third of them in several copies, and one in a hundred."""
    random = np.random.default_rng(seed)
    vectors = vectors.copy()
    targets = random.choice(len(vectors), len(vectors) // 3, replace=False)
    vectors[targets] = vectors[random.integers(0, 20, len(targets))]
    vectors[random.choice(len(vectors), 100, replace=False)] = vectors[0]
    return vectors


@pytest.mark.parametrize(("kind", "options"), KINDS.items())
def test_each_engine_is_the_one_that_the_options_ask_for(fixture, kind, options):
    fixture.commit(numbered(clusters(100, 16)))
    vector_index = fixture.new_vector_index(**options)
    fixture.search(vector_index, np.ones(16))
    assert resident(vector_index) == kind


@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize("count", [1_000, 5_000])
def test_every_engine_gives_the_same_ids_and_cosines(fixture, count, options):
    vectors = with_twins(clusters(count, 48, seed=count))
    fixture.commit(numbered(vectors))
    vector_index = fixture.new_vector_index(**options)
    for query in (vectors[0], vectors[1] + vectors[2], -vectors[3], np.ones(48)):
        for limit in (1, 10, 60):
            check_same(fixture.search(vector_index, query, limit), fixture.exact(query, limit))


@pytest.mark.parametrize("options", ENGINES)
def test_equal_cosines_are_ordered_by_chunk_id(fixture, options):
    fixture.commit(numbered([np.ones(32)] * 6_000))
    hits = fixture.search(fixture.new_vector_index(**options), np.ones(32), 7)
    assert [hit.chunk_id for hit in hits] == [1, 2, 3, 4, 5, 6, 7]
    assert {round(hit.cosine, 5) for hit in hits} == {1.0}
    assert len({hit.cosine for hit in hits}) == 1


@given(
    shape=st.tuples(st.integers(0, 60), st.integers(1, 70)),
    limit=st.integers(1, 70),
    seed=st.integers(0, 2**16),
    options=st.sampled_from([WHOLE, COARSE, SIGNS_ALONE, SCAN, EXTENSION_SCAN]),
)
@settings(max_examples=examples(60))
def test_any_few_vectors_are_ranked_exactly(tmp_path_factory, shape, limit, seed, options):
    random = np.random.default_rng(seed)
    count, dimensions = shape
    fixture = VectorFixture(tmp_path_factory.mktemp("any"))
    vectors = random.standard_normal((count, dimensions))
    ids = random.choice(10_000, count, replace=False) + 1
    fixture.commit(dict(zip(ids.tolist(), vectors, strict=True)))
    query = random.standard_normal(dimensions)
    check_same(fixture.search(fixture.new_vector_index(**options), query, limit), fixture.exact(query, limit))
    fixture.close()


@pytest.mark.parametrize("options", ENGINES)
def test_an_empty_index_has_no_neighbours(fixture, options):
    vector_index = fixture.new_vector_index(**options)
    assert fixture.search(vector_index, np.ones(8)) == []
    fixture.commit({3: np.ones(8)})
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(8))] == [3]


@pytest.mark.parametrize("options", ENGINES)
def test_vectors_of_another_dimension_are_left_out(fixture, options):
    fixture.commit({1: np.ones(8), 2: np.ones(9), 3: b"odd"})
    vector_index = fixture.new_vector_index(**options)
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(8))] == [1]
    fixture.commit({4: np.ones(9), 5: np.ones(8)})
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(8))] == [1, 5]
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(9))] == [2, 4]


def test_a_stored_vector_that_is_not_finite_hides_no_other(fixture):
    fixture.commit({1: np.ones(8), 2: np.full(8, np.nan, np.float32).tobytes(), 3: -np.ones(8)})
    for options in (WHOLE, COARSE, SCAN, EXTENSION_SCAN):
        assert [hit.chunk_id for hit in fixture.search(fixture.new_vector_index(**options), np.ones(8))] == [1, 3]


def test_vectors_that_cannot_be_compared_are_left_out_with_any_filter(fixture):
    odd = {
        1: np.full(8, np.nan, np.float32).tobytes(),
        2: np.full(8, np.inf, np.float32).tobytes(),
        3: np.array([np.nan] + 7 * [1], np.float32).tobytes(),
        4: b"",
        5: b"odd",
        6: np.ones(9),
        7: np.ones(4),
    }
    for first, source in ((0, Source.MEMORY), (100, Source.SESSIONS)):
        fixture.commit({first + number: vector for number, vector in odd.items()}, source=source)
        fixture.commit({first + 50: np.ones(8), first + 51: -np.ones(8)}, source=source)
    for options in (WHOLE, COARSE, SCAN, EXTENSION_SCAN):
        vector_index = fixture.new_vector_index(**options)
        for sources, expected in (
            ([], [50, 150, 51, 151]),
            ([Source.SESSIONS], [150, 151]),
            ([Source.MEMORY, Source.MEMORY], [50, 51]),
            ([Source.SESSIONS, Source.MEMORY], [50, 150, 51, 151]),
        ):
            assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(8), 10, sources)] == expected
        assert vector_index.engine.engine == ("sqlite-vec" if "sqlite_vec" in options else "exact"), (
            "no vector raises an error"
        )


@pytest.mark.parametrize("limit", [1, 10, 300])
def test_cosines_closer_than_float32_resolves_are_ordered_exactly_by_the_scan(fixture, limit):
    """More chunks than the first statement returns are within rounding of the last requested hit."""
    random = np.random.default_rng(4)
    near = np.ones(768) + 1e-4 * random.standard_normal((2_500, 768))
    far = clusters(1_000, 768)
    fixture.commit(numbered(np.concatenate((far, near))))
    vector_index = fixture.new_vector_index(**EXTENSION_SCAN)
    assert fixture.search(vector_index, np.ones(768), limit) == fixture.search(
        fixture.new_vector_index(**SCAN), np.ones(768), limit
    )
    assert vector_index.engine.engine == "sqlite-vec"


@pytest.mark.parametrize("query", [np.zeros(4), [1, np.nan, 0, 0], [np.inf, 0, 0, 0]])
def test_a_query_without_a_direction_is_refused(fixture, query):
    with pytest.raises(ValueError, match="vector"):
        fixture.search(fixture.new_vector_index(), query)


def test_a_query_need_not_have_length_one(fixture):
    fixture.commit(numbered(clusters(50, 16)))
    query = clusters(1, 16, seed=9)[0]
    vector_index = fixture.new_vector_index()
    check_same(fixture.search(vector_index, 1e-3 * query), fixture.exact(query))


def test_a_limit_of_zero_returns_no_hits(fixture):
    fixture.commit({1: np.ones(4)})
    assert fixture.search(fixture.new_vector_index(), np.ones(4), 0) == []


@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize("every", [2, 50, 5_000])
def test_only_chunks_of_the_requested_sources_are_found(fixture, options, every):
    vectors = clusters(2_000, 32)
    ids = set(range(1, 2_001))
    sessions = set(range(every, 2_001, every))
    fixture.commit({number: vectors[number - 1] for number in ids - sessions})
    fixture.commit({number: vectors[number - 1] for number in sessions}, source=Source.SESSIONS)
    vector_index = fixture.new_vector_index(**options)
    query = vectors[0] + vectors[1]
    check_same(fixture.search(vector_index, query, 20, [Source.SESSIONS]), fixture.exact(query, 20, sessions))
    check_same(fixture.search(vector_index, query, 20, [Source.MEMORY]), fixture.exact(query, 20, ids - sessions))
    check_same(fixture.search(vector_index, query, 20, list(Source)), fixture.exact(query, 20))


def test_a_chunk_that_changes_its_source_is_found_under_the_new_one(fixture):
    vector_index = fixture.new_vector_index()
    fixture.commit({1: np.ones(4), 2: np.ones(4)})
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(4), 5, [Source.MEMORY])] == [1, 2]
    fixture.commit({1: np.ones(4)}, source=Source.SESSIONS)
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(4), 5, [Source.MEMORY])] == [2]
    assert [hit.chunk_id for hit in fixture.search(vector_index, np.ones(4), 5, [Source.SESSIONS])] == [1]


def recall(fixture, vector_index, queries, limit):
    found = 0
    for query in queries:
        hits = {hit.chunk_id for hit in fixture.search(vector_index, query, limit)}
        found += len(hits & {number for number, _ in fixture.exact(query, limit)})
    return found / (limit * len(queries))


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [100, 384])
@pytest.mark.parametrize("limit", [10, 50])
def test_sign_bits_find_99_of_100_neighbours(fixture, dimensions, limit):
    fixture.commit(numbered(clusters(6_000, dimensions, centres=40)))
    vector_index = fixture.new_vector_index(**COARSE)
    queries = clusters(20, dimensions, seed=0, centres=40, spread=0.8)
    assert recall(fixture, vector_index, queries, limit) >= 0.99
    assert resident(vector_index) == "SignBits"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "most"),
    [(SIGNS_ALONE, 200), (COARSE, 200 + 768 * 1.2), (WHOLE, 4 * 768 * 1.2)],
)
def test_a_chunk_takes_no_more_memory_than_promised(fixture, options, most):
    fixture.commit(numbered(clusters(4_000, 768)))
    vector_index = fixture.new_vector_index(**options)
    fixture.search(vector_index, np.ones(768))
    assert vector_index.memory_bytes / 4_000 <= most
    fixture.commit(numbered(clusters(700, 768, seed=2), first=4_001))
    assert vector_index.memory_bytes / 4_700 <= most
    fixture.commit(removed=range(1, 3_701))
    assert vector_index.memory_bytes / 1_000 <= 1.3 * most


def test_a_large_index_is_kept_as_sign_bits(fixture):
    """A byte of each number is kept as long as it takes no more than so much."""
    fixture.commit(numbered(clusters(500, 64)))
    enough, too_few = (
        fixture.new_vector_index(**COARSE | {"max_codes_bytes": most}) for most in (500 * 64, 500 * 64 - 1)
    )
    for vector_index in (enough, too_few):
        check_same(fixture.search(vector_index, np.ones(64)), fixture.exact(np.ones(64)))
    assert enough.memory_bytes > 500 * 64 > 3 * too_few.memory_bytes


@pytest.mark.parametrize("limit", [1, 24])
def test_bytes_lose_none_of_those_that_signs_have_found(fixture, limit):
    vectors = clusters(3_000, 96, centres=20, spread=0.9)
    vectors[:20] = np.eye(96)[:20]
    fixture.commit(numbered(vectors))
    with_codes, without = fixture.new_vector_index(**COARSE), fixture.new_vector_index(**SIGNS_ALONE)
    for query in clusters(40, 96, seed=7, centres=20):
        assert fixture.search(with_codes, query, limit) == fixture.search(without, query, limit)


def test_too_large_for_the_budget_is_narrowed_down_by_bits_instead(fixture):
    fixture.commit(numbered(clusters(500, 64)))
    vector_index = fixture.new_vector_index(memory_budget_bytes=500 * 64 * 3)
    fixture.search(vector_index, np.ones(64))
    assert resident(vector_index) == "SignBits"


def test_outgrowing_the_budget_releases_the_memory_and_searches_still_work(fixture):
    fixture.commit(numbered(clusters(500, 64)))
    vector_index = fixture.new_vector_index(memory_budget_bytes=500 * 16 * 2, coarse_above=0)
    fixture.search(vector_index, np.ones(64))
    assert 0 < vector_index.memory_bytes <= 16_000
    fixture.commit(numbered(clusters(2_000, 64, seed=1), first=501))
    assert vector_index.memory_bytes == 0
    check_same(fixture.search(vector_index, np.ones(64)), fixture.exact(np.ones(64)))
    assert vector_index.memory_bytes == 0


@pytest.mark.parametrize("options", ENGINES)
def test_unloading_gives_all_memory_back_until_the_next_search(fixture, options):
    fixture.commit(numbered(clusters(100, 16)), source=Source.SESSIONS)
    vector_index = fixture.new_vector_index(**options)
    fixture.search(vector_index, np.ones(16), sources=[Source.SESSIONS])
    vector_index.release_memory()
    assert vector_index.memory_bytes == 0
    check_same(fixture.search(vector_index, np.ones(16)), fixture.exact(np.ones(16)))


def test_a_leg_outgrown_tenfold_still_has_all_it_needs(fixture):
    """A small index becomes a large one while it is searched, and is narrowed down by bits from some search on."""
    vector_index = fixture.new_vector_index(coarse_above=400, memory_budget_bytes=PLENTY)
    vectors = clusters(4_000, 32)
    kinds = []
    for first in range(0, 4_000, 250):
        fixture.commit(numbered(vectors[first : first + 250], first + 1))
        query = vectors[first]
        check_same(fixture.search(vector_index, query, 5), fixture.exact(query, 5))
        kinds.append(resident(vector_index))
    assert kinds[0] == "ExactVectors"
    assert kinds[-1] == "SignBits"
