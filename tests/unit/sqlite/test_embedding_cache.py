"""The SQLite embedding cache: the contract, rebuilds, and faults and permissions of the file."""

import itertools
import os

import apsw
import pytest

from embedding_fixture import cache_connection
from memoryd_server.sqlite.embedding_cache import EmbeddingCache
from memoryd_server.sync.progress import SyncMode
from unit.store.vector_cache_contract import KEY, VectorCacheContract, digest, held, vectors


@pytest.fixture
def path(tmp_path):
    return tmp_path / "main.embeddings.sqlite"


@pytest.fixture
def make(path):
    made, clock = [], itertools.count(1)

    def open_cache(max_entries=100, **options):
        made.append(EmbeddingCache(path, max_entries, lambda: next(clock), **options))
        return made[-1]

    yield open_cache
    for cache in made:
        cache.close()


class TestSqliteCache(VectorCacheContract):
    """The contract, in a file."""

    def new_cache(self, folder, max_entries, now_ms, **options):
        return EmbeddingCache(folder / "main.embeddings.sqlite", max_entries, now_ms, **options)


def test_neither_a_rebuild_nor_damage_of_the_index_loses_a_vector(opened):
    path = opened.path.with_name("main.embeddings.sqlite")
    cache = EmbeddingCache(path, 10, lambda: 1)
    cache.put(KEY, vectors(1))
    opened.write("memory/a.md", "text")
    opened.sync(SyncMode.FULL)
    opened.close()
    opened.path.write_bytes(os.urandom(8192))
    opened.open().sync()
    assert held(cache, 1) == [1]
    cache.close()


def test_the_file_is_its_owners_alone(make, path):
    cache = make()
    cache.put(KEY, vectors(1))
    modes = {oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir() if file.name.startswith(path.name)}
    assert modes == {"0o600"}


def test_a_damaged_cache_is_set_aside_and_re_created(make, path):
    path.write_bytes(os.urandom(8192))
    cache = make()
    assert cache.count() == 0
    cache.put(KEY, vectors(1))
    assert held(cache, 1) == [1]
    assert [file.name for file in path.parent.iterdir() if ".damaged-" in file.name]


def test_a_cache_of_an_older_version_learns_to_remember_refusals(make, path):
    cache = make()
    cache.put(KEY, vectors(1))
    cache_connection(cache).execute("DROP TABLE refused_texts")
    cache.close()
    cache = make()
    cache.add_refusals(KEY, {digest(2): "too odd"})
    assert (held(cache, 1), list(cache.refusals(KEY))) == ([1], [digest(2)])


def test_forgetting_deletes_from_each_table_once(make):
    cache = make()
    cache.put(KEY, vectors(1, 2))
    statements = []
    connection = cache_connection(cache)
    connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))
    assert cache.forget([digest(1)]) == 1
    deletes = [statement for statement in statements if statement.startswith("DELETE")]
    assert len(deletes) == len(set(deletes)) == 3


def test_a_lookup_that_finds_nothing_needs_no_write_lock(make, path):
    cache = make()
    cache.put(KEY, vectors(1))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    assert held(cache, 2, 3) == []
    other.close()
    assert held(cache, 1, 2) == [1]
