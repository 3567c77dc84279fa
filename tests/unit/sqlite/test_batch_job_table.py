"""The table of batch jobs: written immediately, kept over restarts, without texts that were forgotten."""

import pytest

from memoryd_server.sqlite.embedding_cache import KEPT_MS, EmbeddingCache
from memoryd_server.store.rows import BatchJob, CacheKey

KEY, OTHER = CacheKey("openai", "small", "a"), CacheKey("openai", "large", "a")
HERON, STORK = b"h" * 32, b"s" * 32
VECTOR = b"\0\0\x80\x3f"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.sqlite"


@pytest.fixture
def cache(path):
    cache = EmbeddingCache(path, 100, lambda: 1)
    yield cache
    cache.close()


def job(name="one", born=1_000, **more):
    return BatchJob(name, "", 2, born, **more)


def test_a_job_is_there_after_a_restart_with_its_texts_and_its_id(cache, path):
    cache.jobs.begin(KEY, job(attempt=2), [HERON, STORK])
    cache.jobs.made("one", "batch-7")
    again = EmbeddingCache(path, 100, lambda: 1)
    assert again.jobs.jobs(KEY) == [BatchJob("one", "batch-7", 2, 1_000, 2)]
    assert again.jobs.hashes(KEY) == again.jobs.hashes_of("one") == {HERON, STORK}
    again.close()


def test_jobs_of_another_model_are_not_returned(cache):
    cache.jobs.begin(KEY, job(), [HERON])
    assert (cache.jobs.jobs(OTHER), cache.jobs.hashes(OTHER)) == ([], set())


def test_vectors_of_a_job_are_in_the_cache_if_still_wanted(cache):
    cache.jobs.begin(KEY, job(), [HERON])
    assert cache.jobs.take(KEY, "one", {HERON: VECTOR, STORK: VECTOR}) == [HERON]
    assert cache.get(KEY, [HERON, STORK]) == {HERON: VECTOR}


def test_a_text_forgotten_during_a_job_does_not_come_back(cache):
    cache.jobs.begin(KEY, job(), [HERON, STORK])
    cache.forget([HERON])
    assert cache.jobs.take(KEY, "one", {HERON: VECTOR, STORK: VECTOR}) == [STORK]
    assert cache.get(KEY, [HERON]) == {}


def test_a_job_that_has_ended_is_gone_with_its_texts(cache):
    cache.jobs.begin(KEY, job(), [HERON])
    cache.jobs.begin(KEY, job("two"), [STORK])
    cache.jobs.end("one")
    assert [each.name for each in cache.jobs.jobs(KEY)] == ["two"]
    assert cache.jobs.hashes(KEY) == {STORK}
    assert cache.jobs.take(KEY, "one", {HERON: VECTOR}) == []


def test_jobs_older_than_a_week_are_deleted(cache):
    cache.jobs.begin(OTHER, job("old", born=1_000), [HERON])
    cache.jobs.begin(KEY, job("new", born=1_001 + KEPT_MS), [STORK])
    assert (cache.jobs.jobs(OTHER), cache.jobs.hashes_of("old")) == ([], set())
    assert len(cache.jobs.jobs(KEY)) == 1
