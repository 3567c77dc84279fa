"""The contract of every driver of `store.vector_cache`; a driver's test module subclasses `VectorCacheContract`."""

import itertools
import struct

import pytest

from memoryd_server.errors import IndexUnavailable
from memoryd_server.store.rows import BatchJob, CacheKey
from memoryd_server.store.vector_cache import MAX_COUNT

KEY = CacheKey("openai", "small", "https://api")
OTHER = CacheKey("openai", "large", "https://api")
DAY_MS = 24 * 60 * 60 * 1_000


def vector(number):
    return struct.pack("<3f", number, 0.0, 1.0)


def digest(number):
    return number.to_bytes(32, "big")


def vectors(*numbers):
    return {digest(n): vector(n) for n in numbers}


def held(cache, *numbers, key=KEY):
    return sorted(int.from_bytes(h, "big") for h in cache.get(key, [digest(n) for n in numbers]))


def job(name="one", born=1_000, **more):
    return BatchJob(name, "", 2, born, **more)


class VectorCacheContract:
    """Test methods that use `new_cache` alone, which a subclass defines."""

    def new_cache(self, folder, max_entries, now_ms, **options):
        """Open the cache in a folder."""
        raise NotImplementedError

    @pytest.fixture
    def make(self, tmp_path):
        made, clock = [], itertools.count(1)

        def open_cache(max_entries=100, now_ms=lambda: next(clock), **options):
            made.append(self.new_cache(tmp_path, max_entries, now_ms, **options))
            return made[-1]

        yield open_cache
        for cache in made:
            cache.close()

    # Vectors

    def test_a_vector_comes_back_as_it_was(self, make):
        cache = make()
        cache.put(KEY, vectors(1, 2))
        assert cache.get(KEY, [digest(1), digest(3)]) == vectors(1)

    def test_no_vector_is_given_to_another_model(self, make):
        cache = make()
        cache.put(KEY, vectors(1))
        others = [
            CacheKey("gemini", "small", "https://api"),
            CacheKey("openai", "large", "https://api"),
            CacheKey("openai", "small", "x"),
        ]
        assert [held(cache, 1, key=key) for key in [KEY, *others]] == [[1], [], [], []]

    def test_the_least_recently_used_go_first(self, make):
        cache = make(max_entries=3)
        for number in (1, 2, 3):
            cache.put(KEY, vectors(number))
        assert held(cache, 1) == [1]
        cache.put(KEY, vectors(4))
        assert cache.count() == 3
        assert held(cache, 1, 2, 3, 4) == [1, 3, 4]

    def test_one_large_put_keeps_the_limit(self, make):
        cache = make(max_entries=5)
        cache.put(KEY, vectors(*range(50)))
        assert cache.count() == 5

    def test_vectors_of_an_earlier_process_count_for_the_limit(self, make):
        cache = make(5)
        cache.put(KEY, vectors(1, 2, 3, 4))
        cache.close()
        cache = make(5)
        for number in range(5, 9):
            cache.put(KEY, vectors(number))
        assert (cache.count(), held(cache, *range(1, 9))) == (5, [4, 5, 6, 7, 8])

    def test_a_thousand_hashes_are_looked_up_in_one_call(self, make):
        cache = make(max_entries=5000)
        cache.put(KEY, vectors(*range(1000)))
        assert len(cache.get(KEY, [digest(n) for n in range(1200)])) == 1000
        assert cache.get(KEY, []) == {}

    def test_a_vector_put_again_replaces_the_old_one(self, make):
        cache = make()
        cache.put(KEY, vectors(1))
        cache.put(KEY, [(digest(1), vector(9))])
        assert cache.get(KEY, [digest(1)]) == {digest(1): vector(9)}
        assert cache.count() == 1

    def test_vectors_outlive_the_process(self, make):
        cache = make()
        cache.put(KEY, vectors(1))
        cache.close()
        cache.close()
        assert held(make(), 1) == [1]

    def test_a_lower_limit_takes_hold_at_the_next_put(self, make):
        cache = make()
        cache.put(KEY, vectors(*range(10)))
        cache.close()
        smaller = make(max_entries=2)
        smaller.put(KEY, vectors(99))
        assert smaller.count() == 2
        assert held(smaller, 99) == [99]

    def test_an_idle_cache_answers_again(self, make):
        cache = make()
        cache.put(KEY, vectors(1))
        cache.release_memory()
        assert held(cache, 1) == [1]

    def test_a_closed_cache_is_not_used(self, make):
        cache = make()
        cache.put(KEY, vectors(1))
        cache.close()
        with pytest.raises(IndexUnavailable, match="closed"):
            cache.get(KEY, [digest(1)])

    # Refusals

    def test_a_refusal_is_that_of_one_provider_and_outlives_the_process(self, make):
        make().add_refusals(KEY, {digest(1): "too odd"})
        cache = make()
        assert cache.refusals(KEY) == {digest(1): "too odd"}
        assert cache.refusals(OTHER) == {}

    def test_refusals_are_deleted_together_or_after_a_day(self, make):
        wall = iter([1, DAY_MS, DAY_MS + 1, DAY_MS + 1, DAY_MS + 1])
        cache = make(now_ms=lambda: next(wall))
        cache.add_refusals(KEY, {digest(1): "too odd"})
        assert cache.refusals(KEY)
        assert not cache.refusals(KEY)
        cache.add_refusals(KEY, {digest(2): "too odd"})
        cache.clear_refusals()
        assert not cache.refusals(KEY)

    def test_the_oldest_refusals_make_room(self, make):
        cache = make(max_refused=3)
        for number in range(5):
            cache.add_refusals(KEY, {digest(number): "x" * 10_000})
        refused = cache.refusals(KEY)
        assert sorted(refused) == [digest(2), digest(3), digest(4)]
        assert max(map(len, refused.values())) < 1_000

    def test_a_cache_of_no_entries_keeps_refusals(self, make):
        cache = make(max_entries=0)
        cache.put(KEY, vectors(1))
        cache.add_refusals(KEY, {digest(2): "too odd"})
        assert (cache.count(), held(cache, 1), list(cache.refusals(KEY))) == (0, [], [digest(2)])

    def test_forget_deletes_the_texts_of_all_providers_and_nothing_else(self, make):
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

    # Usage

    def test_usage_is_added_up(self, make):
        cache = make()
        assert cache.usage() == {}
        cache.add_usage({("openai", "small"): (1, 2, 3, 4), ("openai", "large"): (5, 6, 7, 8)})
        cache.add_usage({("openai", "small"): (2, 0, 3, MAX_COUNT)})
        cache.close()
        assert make().usage() == {("openai", "small"): (3, 2, 6, MAX_COUNT), ("openai", "large"): (5, 6, 7, 8)}

    # Batch jobs

    def test_a_job_is_there_after_a_restart_with_its_texts_and_its_id(self, make):
        cache = make()
        cache.jobs.add(KEY, job(attempt=2), [digest(1), digest(2)])
        cache.jobs.set_job_id("one", "batch-7")
        cache.close()
        again = make()
        assert again.jobs.jobs(KEY) == [BatchJob("one", "batch-7", 2, 1_000, 2)]
        assert again.jobs.hashes(KEY) == again.jobs.hashes_of("one") == {digest(1), digest(2)}

    def test_jobs_of_another_provider_are_not_returned(self, make):
        jobs = make().jobs
        jobs.add(KEY, job(), [digest(1)])
        assert (jobs.jobs(OTHER), jobs.hashes(OTHER)) == ([], set())

    def test_vectors_of_a_job_are_put_into_the_cache_if_still_listed(self, make):
        cache = make()
        cache.jobs.add(KEY, job(), [digest(1)])
        assert cache.jobs.put_vectors(KEY, "one", vectors(1, 2)) == [digest(1)]
        assert cache.get(KEY, [digest(1), digest(2)]) == vectors(1)

    def test_a_text_forgotten_during_a_job_is_not_stored(self, make):
        cache = make()
        cache.jobs.add(KEY, job(), [digest(1), digest(2)])
        cache.forget([digest(1)])
        assert cache.jobs.put_vectors(KEY, "one", vectors(1, 2)) == [digest(2)]
        assert cache.get(KEY, [digest(1)]) == {}

    def test_a_job_that_has_ended_is_gone_with_its_texts(self, make):
        cache = make()
        cache.jobs.add(KEY, job(), [digest(1)])
        cache.jobs.add(KEY, job("two"), [digest(2)])
        cache.jobs.delete("one")
        assert [each.name for each in cache.jobs.jobs(KEY)] == ["two"]
        assert cache.jobs.hashes(KEY) == {digest(2)}
        assert cache.jobs.put_vectors(KEY, "one", vectors(1)) == []

    def test_jobs_older_than_a_week_are_deleted(self, make):
        jobs = make().jobs
        jobs.add(OTHER, job("old", born=1_000), [digest(1)])
        jobs.add(KEY, job("new", born=1_001 + 7 * DAY_MS), [digest(2)])
        assert (jobs.jobs(OTHER), jobs.hashes_of("old")) == ([], set())
        assert len(jobs.jobs(KEY)) == 1
