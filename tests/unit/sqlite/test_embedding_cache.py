"""Cached vectors are kept by provider and through rebuilds; the least recently used are evicted first."""

import itertools
import os
import struct

import apsw
import pytest

from embedding_fixture import cache_connection
from memoryd_server.sqlite.embedding_cache import REFUSED_FOR_MS, EmbeddingCache
from memoryd_server.store.rows import BatchJob, CacheKey
from memoryd_server.sync.progress import SyncMode

KEY = CacheKey("openai", "small", "https://api")


def vector(number):
    return struct.pack("<3f", number, 0.0, 1.0)


def digest(number):
    return number.to_bytes(32, "big")


def vectors(*numbers):
    return {digest(n): vector(n) for n in numbers}


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


def held(cache, *numbers, key=KEY):
    return sorted(int.from_bytes(h, "big") for h in cache.get(key, [digest(n) for n in numbers]))


def test_a_vector_comes_back_as_it_was(make):
    cache = make()
    cache.put(KEY, vectors(1, 2))
    assert cache.get(KEY, [digest(1), digest(3)]) == vectors(1)


def test_no_vector_is_given_to_another_model(make):
    cache = make()
    cache.put(KEY, vectors(1))
    others = [
        CacheKey("gemini", "small", "https://api"),
        CacheKey("openai", "large", "https://api"),
        CacheKey("openai", "small", "x"),
    ]
    assert [held(cache, 1, key=key) for key in [KEY, *others]] == [[1], [], [], []]


def test_the_least_recently_used_go_first(make):
    cache = make(max_entries=3)
    for number in (1, 2, 3):
        cache.put(KEY, vectors(number))
    assert held(cache, 1) == [1]
    cache.put(KEY, vectors(4))
    assert cache.count() == 3
    assert held(cache, 1, 2, 3, 4) == [1, 3, 4]


def test_one_large_put_keeps_the_limit(make):
    cache = make(max_entries=5)
    cache.put(KEY, vectors(*range(50)))
    assert cache.count() == 5


def test_a_thousand_hashes_are_looked_up_in_one_call(make):
    cache = make(max_entries=5000)
    cache.put(KEY, vectors(*range(1000)))
    assert len(cache.get(KEY, [digest(n) for n in range(1200)])) == 1000
    assert cache.get(KEY, []) == {}


def test_a_vector_put_again_replaces_the_old_one(make):
    cache = make()
    cache.put(KEY, vectors(1))
    cache.put(KEY, [(digest(1), vector(9))])
    assert cache.get(KEY, [digest(1)]) == {digest(1): vector(9)}
    assert cache.count() == 1


def test_vectors_outlive_the_process(make):
    cache = make()
    cache.put(KEY, vectors(1))
    cache.close()
    cache.close()
    assert held(make(), 1) == [1]


def test_a_lower_limit_takes_hold_at_the_next_put(make):
    cache = make()
    cache.put(KEY, vectors(*range(10)))
    cache.close()
    smaller = make(max_entries=2)
    smaller.put(KEY, vectors(99))
    assert smaller.count() == 2
    assert held(smaller, 99) == [99]


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


OTHER = CacheKey("openai", "large", "https://api")


def test_a_refusal_is_that_of_one_maker_and_outlives_the_process(make):
    make().add_refusals(KEY, {digest(1): "too odd"})
    cache = make()
    assert cache.refusals(KEY) == {digest(1): "too odd"}
    assert cache.refusals(OTHER) == {}


def test_refusals_are_deleted_together_or_after_a_day(path):
    wall = iter([1, REFUSED_FOR_MS, REFUSED_FOR_MS + 1, REFUSED_FOR_MS + 1, REFUSED_FOR_MS + 1])
    cache = EmbeddingCache(path, 10, lambda: next(wall))
    cache.add_refusals(KEY, {digest(1): "too odd"})
    assert cache.refusals(KEY)
    assert not cache.refusals(KEY)
    cache.add_refusals(KEY, {digest(2): "too odd"})
    cache.clear_refusals()
    assert not cache.refusals(KEY)
    cache.close()


def test_the_oldest_refusals_make_room(make):
    cache = make(max_refused=3)
    for number in range(5):
        cache.add_refusals(KEY, {digest(number): "x" * 10_000})
    refused = cache.refusals(KEY)
    assert sorted(refused) == [digest(2), digest(3), digest(4)]
    assert max(map(len, refused.values())) < 1_000


def test_a_cache_of_an_older_version_learns_to_remember_refusals(make, path):
    cache = make()
    cache.put(KEY, vectors(1))
    cache_connection(cache).execute("DROP TABLE refused_texts")
    cache.close()
    cache = make()
    cache.add_refusals(KEY, {digest(2): "too odd"})
    assert (held(cache, 1), list(cache.refusals(KEY))) == ([1], [digest(2)])


def test_a_cache_of_no_entries_keeps_refusals():
    cache = EmbeddingCache(None, 0, lambda: 1)
    cache.put(KEY, vectors(1))
    cache.add_refusals(KEY, {digest(2): "too odd"})
    assert (cache.count(), held(cache, 1), list(cache.refusals(KEY))) == (0, [], [digest(2)])
    cache.close()


def test_forget_deletes_the_texts_of_all_providers_and_nothing_else(make):
    cache = make()
    other = CacheKey("voyage", "large", "")
    cache.put(KEY, vectors(1, 2))
    cache.put(other, vectors(1))
    cache.add_refusals(KEY, {digest(3): "too rude", digest(4): "too long"})
    assert cache.forget([digest(1), digest(1), digest(3), digest(9)]) == 2
    assert cache.get(KEY, [digest(1), digest(2)]) == vectors(2)
    assert cache.get(other, [digest(1)]) == {}
    assert cache.refusals(KEY) == {digest(4): "too long"}
    assert cache.forget([digest(1)]) == 0
    assert cache.forget([]) == 0


def test_a_batch_under_way_brings_back_nothing_that_was_forgotten(make):
    cache = make()
    cache.jobs.add(KEY, BatchJob("job", "id", 2, 1, 1), [digest(1), digest(2)])
    cache.forget([digest(1)])
    assert cache.jobs.put_vectors(KEY, "job", vectors(1, 2)) == [digest(2)]
    assert cache.get(KEY, [digest(1), digest(2)]) == vectors(2)


def test_forgetting_deletes_from_each_table_once(make):
    cache = make()
    cache.put(KEY, vectors(1, 2))
    statements = []
    connection = cache_connection(cache)
    connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))
    assert cache.forget([digest(1)]) == 1
    deletes = [statement for statement in statements if statement.startswith("DELETE")]
    assert len(deletes) == len(set(deletes)) == 3
