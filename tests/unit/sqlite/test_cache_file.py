"""Whatever happens to the file of the embedding cache costs what it held, and nothing else."""

import os
from pathlib import Path

import pytest

from disks import fill_up, small_disk, unwritable
from embedding_fixture import EmbeddingFixture, cache_connection
from memoryd_server.errors import DiskFull, IndexUnavailable
from memoryd_server.sqlite.connection import JournalMode
from memoryd_server.sqlite.embedding_cache import RETRY_MS, EmbeddingCache
from memoryd_server.store.rows import CacheKey

KEY = CacheKey("openai", "small", "https://api")
PAGE = 4096


def vectors(*numbers):
    return {number.to_bytes(32, "big"): bytes([number % 256]) * 3072 for number in numbers}


class Clock:
    def __init__(self):
        self.ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "main.embeddings.sqlite"


@pytest.fixture
def filled(path, clock):
    cache = EmbeddingCache(path, 1_000, clock)
    cache.put(KEY, vectors(*range(200)))
    yield cache
    cache.close()


def checkpoint(cache):
    for pragma in ("wal_checkpoint(TRUNCATE)", "cache_size=1", "shrink_memory"):
        cache_connection(cache).execute(f"PRAGMA {pragma}").fetchall()


def zero_the_rest(path):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(bytes(size - PAGE))


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def works(cache):
    cache.put(KEY, vectors(7))
    return cache.get(KEY, list(vectors(7))) == vectors(7)


@pytest.mark.parametrize("damage", [zero_the_rest, halve, empty])
def test_damage_at_work_is_set_aside_and_work_goes_on(filled, path, damage):
    checkpoint(filled)
    damage(path)
    found = filled.get(KEY, list(vectors(*range(200))))
    assert all(vectors(*range(200))[key] == value for key, value in found.items())
    assert works(filled)
    (aside,) = path.parent.glob("*.damaged-*")
    assert filled.problem.used == str(aside)
    assert "requested again" in filled.problem.reason


def test_a_write_meets_damage_and_is_kept_all_the_same(filled, path):
    checkpoint(filled)
    zero_the_rest(path)
    filled.put(KEY, vectors(500))
    assert filled.get(KEY, list(vectors(500))) == vectors(500)


def test_a_file_removed_at_work_is_made_anew(filled, path):
    for file in path.parent.iterdir():
        file.unlink()
    assert filled.count() == 0
    assert works(filled)
    assert path.exists()


def test_a_folder_removed_with_its_index_comes_back_with_it(tmp_path):
    import shutil  # noqa: PLC0415 -- only here

    embedding = EmbeddingFixture(tmp_path)
    embedding.write(a="heron", b="kestrel")
    embedding.sync()
    shutil.rmtree(embedding.index.path.parent)
    outcome = embedding.sync()
    assert outcome.pending_embeddings == 0
    assert set(embedding.vectors()) == {"heron", "kestrel"}
    assert embedding.cache.count() == 2
    embedding.close()


def test_damage_of_the_cache_is_no_damage_of_the_index(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    embedding.write(**{f"n{number}": f"note{number}" for number in range(200)})
    embedding.sync()
    before = embedding.index.revision()
    checkpoint(embedding.cache)
    zero_the_rest(Path(cache_connection(embedding.cache).filename))
    embedding.write(late="kestrel")
    outcome = embedding.sync()
    assert (outcome.indexed_files, outcome.pending_embeddings) == (1, 0)
    assert embedding.index.store.health.damage is None
    assert embedding.index.revision() > before
    assert not list(embedding.index.path.parent.glob("main.sqlite.damaged-*"))
    embedding.close()


def test_memory_stands_in_where_the_file_cannot_be_opened_until_it_can(path, clock):
    with unwritable(path.parent):
        cache = EmbeddingCache(path, 10, clock)
        assert works(cache)
        assert cache.problem.used == "memory"
    assert works(cache)
    assert not path.exists()
    clock.ms += RETRY_MS + 1
    assert works(cache)
    assert path.exists()
    assert cache.problem is None
    cache.close()


def test_a_full_disk_keeps_what_is_there_and_says_why_nothing_is_added(tmp_path, clock):
    with small_disk(tmp_path / "state", 300):
        cache = EmbeddingCache(tmp_path / "state" / "c.sqlite", 1_000, clock)
        cache.put(KEY, vectors(1))
        ballast = fill_up(tmp_path / "state")
        with pytest.raises(DiskFull):
            cache.put(KEY, vectors(*range(2, 90)))
        ballast.unlink()
        assert cache.get(KEY, list(vectors(1, 2))) == vectors(1)
        cache.put(KEY, vectors(2))
        assert cache.get(KEY, list(vectors(1, 2))) == vectors(1, 2)
        cache.close()


def test_the_cache_uses_the_journal_that_it_is_told(path, clock):
    cache = EmbeddingCache(path, 10, clock, JournalMode.ROLLBACK)
    assert works(cache)
    assert path.read_bytes()[18] == 1
    assert not path.with_name(path.name + "-wal").exists()
    cache.close()


def test_a_closed_cache_is_not_opened_again(filled):
    filled.close()
    filled.close()
    with pytest.raises(IndexUnavailable, match="closed"):
        filled.count()


# At rest


def open_files(path):
    return sum(os.path.realpath(link).startswith(str(path)) for link in Path("/proc/self/fd").iterdir())


def test_a_cache_at_rest_holds_no_file_and_answers_all_the_same(filled, path):
    held = vectors(*range(200))
    assert open_files(path) > 0
    filled.release_memory()
    filled.release_memory()
    assert open_files(path) == 0
    assert filled.get(KEY, list(held)) == held
    assert open_files(path) > 0
    assert filled.problem is None


def test_a_cache_whose_file_is_damaged_or_removed_at_rest_begins_anew(filled, path, clock):
    filled.release_memory()
    path.write_bytes(b"no database at all" * 1000)
    assert filled.get(KEY, list(vectors(1))) == {}
    assert "set aside" in filled.problem.reason
    filled.put(KEY, vectors(1))
    filled.release_memory()
    path.unlink()
    assert filled.get(KEY, list(vectors(1))) == {}
    filled.put(KEY, vectors(2))
    assert filled.get(KEY, list(vectors(2))) == vectors(2)


def test_a_cache_in_memory_does_not_lose_what_it_holds_by_resting(clock):
    cache = EmbeddingCache(None, 100, clock)
    cache.put(KEY, vectors(1))
    cache.release_memory()
    assert cache.get(KEY, list(vectors(1))) == vectors(1)
    cache.close()


def test_a_closed_cache_stays_closed(filled):
    filled.close()
    filled.release_memory()
    with pytest.raises(IndexUnavailable):
        filled.get(KEY, list(vectors(1)))


def test_a_cache_makes_and_opens_its_file_when_it_is_first_used(path, clock):
    cache = EmbeddingCache(path, 100, clock)
    assert not path.exists()
    assert cache.get(KEY, list(vectors(1))) == {}
    assert open_files(path) > 0
    cache.close()
    unused = EmbeddingCache(path, 100, clock)
    unused.release_memory()
    assert open_files(path) == 0
    unused.close()
