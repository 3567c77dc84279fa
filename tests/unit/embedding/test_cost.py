"""Usage is counted by provider and model, over restarts, and nothing is counted twice."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from embedding_fixture import EmbeddingFixture, cache_connection
from memoryd_server.embedding.cost import ProviderUsage, UsageRecorder
from memoryd_server.providers.provider import ProviderState, ProviderStatus
from memoryd_server.sqlite.embedding_cache import EmbeddingCache
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider

WORDS = ("remote", "words")


class Counting(WordProvider):
    def __init__(self, *args, calls=0, **options):
        super().__init__(*args, **options)
        self.calls = calls

    def embed_documents(self, texts, should_stop):
        self.calls += 1
        return super().embed_documents(texts, should_stop)

    def status(self):
        return ProviderStatus(ProviderState.READY, "", self.calls, 10 * self.calls, self.calls // 2)


@pytest.fixture
def cache(tmp_path):
    caches = []

    def cache():
        caches.append(EmbeddingCache(tmp_path / "c.sqlite", 100, lambda: 1))
        return caches[-1]

    yield cache
    for each in caches:
        each.close()


def book(cache, *providers):
    book = UsageRecorder(lambda: cache)
    for provider in providers:
        book.watch(provider)
    return book


def test_a_provider_is_counted_from_when_it_is_watched(cache):
    provider = Counting(calls=7)
    counted = book(cache(), provider)
    assert counted.totals() == {}
    provider.calls += 3
    counted.count_cache_hits(provider, 5)
    assert counted.totals() == {WORDS: ProviderUsage(3, 30, 2, 5)}
    assert counted.totals() == {WORDS: ProviderUsage(3, 30, 2, 5)}


def test_counts_go_on_after_a_restart(cache):
    first = Counting()
    counted = book(cache(), first)
    first.calls = 4
    counted.save()
    counted.save()
    second = Counting()
    again = book(cache(), second)
    second.calls = 1
    again.load()
    assert again.totals()[WORDS] == ProviderUsage(5, 50, 2, 0)
    again.load()
    again.save()
    assert book_of(cache()).totals()[WORDS] == ProviderUsage(5, 50, 2, 0)


def book_of(cache):
    loaded = book(cache)
    loaded.load()
    return loaded


def test_usage_counted_before_the_file_was_read_is_kept(cache):
    provider = Counting()
    counted = book(cache(), provider)
    provider.calls = 2
    counted.save()
    late = UsageRecorder(lambda: opened[0])
    opened = [None]
    late.watch(provider)
    provider.calls = 3
    late.save()
    assert late.totals()[WORDS].calls == 1
    opened[0] = cache()
    late.save()
    assert book_of(cache()).totals()[WORDS].calls == 3


def test_models_are_counted_apart(cache):
    one, other = Counting("one"), Counting("other", "openai")
    counted = book(cache(), one, other)
    one.calls, other.calls = 1, 2
    found = {maker: usage.calls for maker, usage in counted.totals().items()}
    assert found == {("remote", "one"): 1, ("openai", "other"): 2}


def test_a_sync_saves_calls_and_cache_hits(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    try:
        embedding.use(Counting())
        embedding.write(a="heron", b="kestrel")
        embedding.sync()
        embedding.sync(SyncMode.FULL)
        assert embedding.cache.usage() == {WORDS: (1, 10, 0, 2)}
    finally:
        embedding.close()


def test_unchanged_usage_is_not_written_again(cache):
    provider = Counting()
    counted = book(opened := cache(), provider)
    provider.calls = 2
    counted.save()
    cache_connection(opened).execute("UPDATE provider_usage SET calls = 70")
    counted.save()
    assert opened.usage()[WORDS][0] == 70
    provider.calls = 3
    counted.save()
    assert opened.usage()[WORDS][0] == 71


def test_usage_of_several_processes_adds_up(cache):
    providers = Counting(), Counting()
    counted = [book(cache(), provider) for provider in providers]
    for calls in (1, 2):
        for provider, each in zip(providers, counted, strict=True):
            provider.calls = calls
            each.save()
    assert book_of(cache()).totals()[WORDS].calls == 4
    assert [each.totals()[WORDS].calls for each in counted] == [3, 4]


def test_an_agent_without_a_provider_has_no_use_for_the_file(tmp_path, cache):
    book(cache()).save()
    assert not (tmp_path / "c.sqlite").exists()


def test_totals_are_available_while_the_file_is_being_read():
    reading, go_on = threading.Event(), threading.Event()

    class SlowCache:
        def usage(self):
            reading.set()
            assert go_on.wait(20)
            return {("remote", "words"): (1, 2, 3, 4)}

    cache = SlowCache()
    book = UsageRecorder(lambda: cache)
    with ThreadPoolExecutor(2) as threads:
        loading = threads.submit(book.load)
        assert reading.wait(20)
        try:
            assert threads.submit(book.totals).result(10) == {}
        finally:
            go_on.set()
        loading.result(20)
    assert book.totals() == {("remote", "words"): ProviderUsage(1, 2, 3, 4)}
