"""The vectors of a large agent have an HNSW index, which delays no other agent."""

import itertools
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from memoryd_server.store.filters import ALL_CHUNKS, ChunkFilter, FileFilter
from memoryd_server.store.identity import VectorIdentity
from unit.store.contract import chunk_ids, document
from vector_fixture import clusters
from waiting import wait_until

pytestmark = pytest.mark.postgres

ABOVE = 200
FILES = 60
CHUNKS = 5 * FILES
DIMENSIONS = 32
AGENTS = itertools.count()
LIMIT = 10

INDEXES = """SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE relname LIKE 'vectors_hnsw_%%' ORDER BY relname"""
SCANS = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'vectors_hnsw_%'"
WAITING = "SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for old snapshots%'"


@pytest.fixture(scope="module")
def server(postgres_module):
    """A database of these tests alone."""
    database = postgres_module.database(postgres_module.server.create_database("hnsw"))
    with postgres_module.server.admin("hnsw") as admin:
        admin.execute("SET search_path = memoryd")
        yield SimpleNamespace(
            admin=admin,
            new_store=lambda agent, above=ABOVE: postgres_module.new_store(agent, database, approximate_above=above),
            new_admin=lambda: postgres_module.server.admin("hnsw"),
        )


def identity(model="first", dimensions=DIMENSIONS):
    return VectorIdentity("provider", model, "", dimensions, "", "")


def fill(store, dimensions=DIMENSIONS, files=FILES, seed=1):
    """Write files of five chunks each, and their vectors; return these by chunk."""
    store.open()
    writer = store.writer()
    writer.write(
        [document(f"notes/{number}.md", *[(f"word{number}x{i}", "") for i in range(5)]) for number in range(files)]
    )
    writer.begin_vectors(identity(dimensions=dimensions))
    return put(writer, store, dimensions, seed)


def put(writer, store, dimensions=DIMENSIONS, seed=1):
    ids = chunk_ids(store)
    made = dict(zip(ids, clusters(len(ids), dimensions, seed), strict=True))
    writer.put_vectors({number: vector.astype("<f4").tobytes() for number, vector in made.items()})
    return made


@pytest.fixture
def store(server):
    with opened(server) as found:
        yield found


@contextmanager
def opened(server, agent=None, **options):
    store = server.new_store(f"agent {next(AGENTS)}" if agent is None else agent, **options)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(autouse=True)
def no_other_indexes(server):
    """Leave no index for the next test."""
    yield
    for name, _ in server.admin.execute(INDEXES).fetchall():
        server.admin.execute(f"DROP INDEX {name}")


def validity(server):
    return [valid for _, valid in server.admin.execute(INDEXES).fetchall()]


def expected(made, query, among=None):
    exact = {number: float(vector.astype(np.float64) @ query) for number, vector in made.items()}
    chosen = exact if among is None else among
    return sorted(chosen, key=lambda number: (-exact[number], number))[:LIMIT], exact


def queries(count=20, dimensions=DIMENSIONS):
    # Other points around the same centres.
    return clusters(CHUNKS + count, dimensions, 1)[CHUNKS:].astype(np.float64)


def check_hits(store, made, *, share=0.99):
    found = 0
    for query in queries(dimensions=len(next(iter(made.values())))):
        with store.read() as reader:
            hits = reader.vector_hits(query, LIMIT, ALL_CHUNKS)
        nearest, exact = expected(made, query / np.linalg.norm(query))
        assert len(hits) == LIMIT
        assert [hit.cosine for hit in hits] == pytest.approx([exact[hit.chunk_id] for hit in hits], abs=1e-6)
        assert [hit.cosine for hit in hits] == sorted((hit.cosine for hit in hits), reverse=True)
        found += len({hit.chunk_id for hit in hits} & set(nearest))
    assert found >= share * LIMIT * 20


def scans_of_indexes(server):
    """Return how often searches have used an HNSW index. A session reports it when it ends."""
    server.admin.execute("SELECT pg_stat_clear_snapshot()")
    return server.admin.execute(SCANS).fetchone()[0]


def test_many_vectors_are_searched_with_an_index(server, store):
    made = fill(store)
    store.index_vectors()
    assert validity(server) == [True]
    assert store.vector_engine().engine == "pgvector-hnsw"
    check_hits(store, made)
    store.close()
    wait_until(lambda: scans_of_indexes(server) == 20)


def test_few_vectors_are_all_compared(server, store):
    made = fill(store, files=ABOVE // 5)
    store.index_vectors()
    assert validity(server) == []
    assert store.vector_engine().engine == "pgvector"
    check_hits(store, made, share=1)


def test_no_index_is_created_if_the_setting_is_0(server):
    with opened(server, above=0) as store:
        fill(store)
        store.index_vectors()
        assert validity(server) == []


def test_a_filter_gets_as_many_results_as_it_leaves(server, store):
    # More than the index looks at for a filter.
    made = fill(store, files=700)
    store.index_vectors()
    with store.read() as reader:
        paths = {number: row.path for number, row in reader.chunks(list(made)).items()}
        for prefix in ("notes/123.", "notes/12", "notes/1", "notes/"):
            chosen = [number for number, path in paths.items() if path.startswith(prefix)]
            among = ChunkFilter(files=FileFilter(path_prefixes=(prefix,)))
            shares = []
            for query in queries():
                hits = [hit.chunk_id for hit in reader.vector_hits(query, LIMIT, among)]
                nearest, _ = expected(made, query, chosen)
                assert len(hits) == len(nearest)
                shares.append(len(set(hits) & set(nearest)) / len(nearest))
            assert np.mean(shares) >= 0.99
        # The index returns no more than some thousand.
        everything = len(made)
        assert len(reader.vector_hits(queries()[0], everything, ALL_CHUNKS)) == everything
        assert len(reader.vector_hits(queries()[0], everything, among)) == everything
    store.close()
    # The other filters leave so few chunks that all of them are compared.
    wait_until(lambda: 20 <= scans_of_indexes(server) <= 22)


@pytest.mark.parametrize(("dimensions", "created"), [(3_072, [True]), (4_001, [])])
def test_an_index_has_half_precision_numbers_of_up_to_4000_dimensions(server, dimensions, created):
    with opened(server, above=20) as store:
        made = fill(store, dimensions, files=8)
        store.index_vectors()
        assert validity(server) == created
        query = made[min(made)].astype(np.float64)
        with store.read() as reader:
            assert reader.vector_hits(query, 1, ALL_CHUNKS)[0].chunk_id == min(made)


def test_an_agent_that_shrinks_loses_its_index(server, store):
    fill(store)
    store.index_vectors()
    rows = sorted(store.writer().files().values(), key=lambda row: row.id)
    store.writer().write([], rows[: FILES // 3])
    store.index_vectors()
    # It is kept for a while, so that it does not come and go.
    assert validity(server) == [True]
    store.writer().write([], rows[FILES // 3 : FILES // 2 + 3])
    store.index_vectors()
    assert validity(server) == []
    with store.read() as reader:
        assert len(reader.vector_hits(queries()[0], LIMIT, ALL_CHUNKS)) == LIMIT


def test_the_vectors_of_another_model_get_an_index_of_their_own(server, store):
    fill(store)
    store.index_vectors()
    (before, _), *_ = server.admin.execute(INDEXES).fetchall()
    staged = store.writer().stage_vectors(identity("second", 48))
    made = put(staged, store, 48)
    store.index_vectors()
    assert [row[0] for row in server.admin.execute(INDEXES)] == [before]
    store.writer().promote_staged()
    check_hits(store, made, share=1)
    store.index_vectors()
    (after, is_valid), *others = server.admin.execute(INDEXES).fetchall()
    assert after != before
    assert (is_valid, others) == (True, [])
    check_hits(store, made)


def test_vectors_of_other_dimensions_can_be_stored_in_an_indexed_set(server, store):
    fill(store)
    store.index_vectors()
    store.writer().begin_vectors(identity("second", 24))
    made = put(store.writer(), store, 24)
    check_hits(store, made, share=1)
    store.index_vectors()
    assert validity(server) == [True]
    check_hits(store, made)


def test_a_rebuilt_index_gets_an_index_of_its_own(server, store):
    fill(store)
    store.index_vectors()
    with store.rebuild() as writer:
        writer.write(
            [document(f"new/{number}.md", *[(f"new{number}x{i}", "") for i in range(5)]) for number in range(FILES)]
        )
        writer.begin_vectors(identity())
    made = put(store.writer(), store, seed=2)
    store.index_vectors()
    assert validity(server) == [True]
    check_hits(store, made)


def test_an_index_waits_for_the_vectors_of_most_chunks(server, store):
    made = fill(store)
    store.writer().begin_vectors(identity())
    some = dict(list(made.items())[: int(0.8 * len(made))])
    store.writer().put_vectors({number: vector.astype("<f4").tobytes() for number, vector in some.items()})
    store.index_vectors()
    assert validity(server) == []
    store.writer().put_vectors({number: vector.astype("<f4").tobytes() for number, vector in made.items()})
    store.index_vectors()
    assert validity(server) == [True]


def test_an_unfinished_index_is_replaced(server, store):
    made = fill(store)
    store.index_vectors()
    server.admin.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid IN"
        " (SELECT oid FROM pg_class WHERE relname LIKE 'vectors_hnsw_%')"
    )
    store.close()
    store.open()
    assert store.vector_engine().engine == "pgvector"
    check_hits(store, made, share=1)
    store.index_vectors()
    assert validity(server) == [True]
    check_hits(store, made)


def test_an_index_is_found_again_after_a_restart(server):
    with opened(server, "restarted") as store:
        made = fill(store)
        store.index_vectors()
    with opened(server, "restarted") as store:
        store.open()
        assert store.vector_engine().engine == "pgvector-hnsw"
        check_hits(store, made)
        store.index_vectors()
        assert validity(server) == [True]


@pytest.mark.parametrize("agent", ["o'brien\\'; DROP TABLE vectors; --", '"%s{}%(agent)s', "ä" * 200])
def test_the_name_of_an_agent_is_not_sql(server, agent):
    with opened(server, agent) as store:
        made = fill(store)
        store.index_vectors()
        check_hits(store, made)
        assert store.vector_engine().engine == "pgvector-hnsw"


def test_an_agent_does_not_find_the_vectors_of_another(server, store):
    fill(store)
    store.index_vectors()
    with opened(server) as other:
        made = fill(other, seed=2)
        other.index_vectors()
        assert validity(server) == [True, True]
        check_hits(other, made)


def test_reads_and_writes_continue_while_an_index_is_created_and_a_close_cancels_it(server, store):
    made = fill(store)
    with server.new_admin() as old, opened(server) as other:
        fill(other)
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM memoryd.vectors")
        building = threading.Thread(target=store.index_vectors)
        building.start()
        # The server waits for the end of the old transaction.
        wait_until(lambda: server.admin.execute(WAITING).fetchone() == (1,))
        for each in (store, other):
            each.writer().write([document("more.md", ("crane", ""))])
            with each.read() as reader:
                assert len(reader.vector_hits(queries()[0], LIMIT, ALL_CHUNKS)) == LIMIT
        # Two indexes are not created at the same time.
        other.index_vectors()
        assert validity(server) == [False]
        store.close()
        building.join(10)
        assert not building.is_alive()
        old.execute("ROLLBACK")
        store.open()
        check_hits(store, made, share=1)
        store.index_vectors()
        other.index_vectors()
        assert validity(server) == [True, True]
