"""Copies of an embedding cache from a SQLite file into the database."""

import tracemalloc
from hashlib import sha256

import apsw
import pytest

pytest.importorskip("psycopg")

from memoryd_server.postgres import CacheCopy, CopyOptions, PostgresEmbeddingCache, ProviderRecordCopy
from memoryd_server.sqlite import EmbeddingCache, open_stored_cache
from memoryd_server.store import BatchJob, CacheKey
from postgres_server import missing

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

NOW_MS = 1_770_000_000_000
KEY, OTHER = CacheKey("openai", "small", "k"), CacheKey("voyage" * 50, "large", "k")
JOB = BatchJob("memoryd-1", "batch_1", 2, NOW_MS)


def text(number):
    return sha256(b"%d" % number).digest()


def vectors(numbers, size=8):
    return {text(number): b"%07d." % number * (size // 8) for number in numbers}


@pytest.fixture
def path(tmp_path):
    """The file of a cache with vectors of two keys, a refused text, usage and a batch job."""
    path = tmp_path / "main.memoryd.embeddings.sqlite"
    cache = EmbeddingCache(path, 1_000, lambda: NOW_MS)
    cache.put(KEY, vectors(range(5)))
    cache.put(OTHER, vectors(range(3, 6)))
    cache.add_refusals(KEY, {text(9): "too long\0"})
    cache.add_usage({("openai", "small"): (3, 400, 1, 2)})
    cache.jobs.add(KEY, JOB, [text(7), text(8)])
    cache.close()
    return path


@pytest.fixture
def new_cache(postgres_module, request):
    made = []

    def new(max_entries=1_000):
        made.append(
            PostgresEmbeddingCache(postgres_module.database(), request.node.nodeid, max_entries, lambda: NOW_MS)
        )
        return made[-1]

    yield new
    for cache in made:
        cache.close()


def copied(memory, path, kind=CacheCopy, **options):
    with open_stored_cache(path) as cache:
        return kind(memory.documents, cache).into_database(CopyOptions(**options))


def test_vectors_are_found_under_their_keys(new_memory, new_cache, path):
    memory, cache = new_memory(), new_cache()
    report = copied(memory, path)
    assert (report.copied, report.copied_bytes, report.verified, report.is_complete) == (8, 64, 8, True)
    assert cache.get(KEY, [text(number) for number in range(9)]) == vectors(range(5))
    assert cache.get(OTHER, [text(number) for number in range(9)]) == vectors(range(3, 6))
    again = copied(memory, path)
    assert (again.copied, again.equal, again.verified) == (0, 8, 8)


def test_refused_texts_usage_and_batch_jobs_are_copied(new_memory, new_cache, path):
    memory, cache = new_memory(), new_cache()
    report = copied(memory, path, ProviderRecordCopy)
    assert (report.copied, report.verified, report.is_complete) == (3, 3, True)
    assert cache.refusals(KEY) == {text(9): "too long\ufffd"}
    assert cache.usage() == {("openai", "small"): (3, 400, 1, 2)}
    assert cache.jobs.jobs(KEY) == [JOB]
    assert cache.jobs.hashes_of(JOB.name) == {text(7), text(8)}
    assert copied(memory, path, ProviderRecordCopy).equal == 3


def test_smaller_totals_are_kept_and_listed_and_those_that_continued_are_equal(new_memory, new_cache, path):
    memory, cache = new_memory(), new_cache()
    cache.add_usage({("openai", "small"): (4, 400, 1, 2)})
    assert copied(memory, path, ProviderRecordCopy).is_complete
    cache.add_usage({("openai", "small"): (-3, -390, -1, -2)})
    assert copied(memory, path, ProviderRecordCopy).conflicts == ["the usage of openai small"]
    assert cache.usage() == {("openai", "small"): (1, 10, 0, 0)}


def test_a_vector_that_differs_is_kept_and_listed(new_memory, new_cache, path):
    memory, cache = new_memory(), new_cache()
    cache.put(KEY, {text(1): b"another."})
    report = copied(memory, path)
    assert (report.copied, report.mismatched) == (7, [])
    assert report.conflicts == [f"the vector of the text {text(1).hex()}"]
    assert cache.get(KEY, [text(1)]) == {text(1): b"another."}


def test_a_dry_run_counts_and_copies_nothing(new_memory, new_cache, path):
    memory, cache = new_memory(), new_cache()
    assert copied(memory, path, dry_run=True).copied == 8
    assert copied(memory, path, ProviderRecordCopy, dry_run=True).copied == 3
    assert (cache.count(), cache.usage()) == (0, {})


def test_the_comparison_finds_a_vector_that_changed(new_memory, new_cache, path):
    memory, cache = new_memory(), new_cache()
    seen = []

    def lose(done, total):
        seen.append((done, total))
        cache.forget([text(0)])

    report = copied(memory, path, progress=lose)
    assert seen[-1] == (8, 8)
    assert report.mismatched == [f"the vector of the text {text(0).hex()}"]


def test_an_interrupted_copy_of_many_vectors_continues_and_needs_little_memory(new_memory, new_cache, tmp_path):
    path, memory = tmp_path / "many.sqlite", new_memory()
    count, size = 6_000, 3_072
    cache = EmbeddingCache(path, count, lambda: NOW_MS)
    for start in range(0, count, 1_000):
        cache.put(KEY, vectors(range(start, start + 1_000), size))
    cache.close()

    def interrupt(done, _total):
        if done > count // 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        copied(memory, path, progress=interrupt)
    stored = new_cache().count()
    assert count // 2 < stored < count
    tracemalloc.start()
    try:
        report = copied(memory, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (report.copied, report.equal, report.verified, report.is_complete) == (count - stored, stored, count, True)
    # All vectors have 18 MB.
    assert peak < 16 << 20


def test_the_file_of_an_older_version_can_lack_tables(new_memory, path):
    connection = apsw.Connection(str(path))
    for table in ("refused_texts", "provider_usage", "batch_jobs", "batch_texts"):
        connection.execute(f"DROP TABLE {table}").fetchall()
    connection.close()
    memory = new_memory()
    assert copied(memory, path).copied == 8
    report = copied(memory, path, ProviderRecordCopy)
    assert (report.copied, report.verified, report.is_complete) == (0, 0, True)
