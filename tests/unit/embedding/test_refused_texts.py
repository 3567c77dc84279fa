"""A text that the provider refuses permanently is sent once, not at every sync."""

import pytest

from embedding_fixture import EmbeddingFixture
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.sqlite.embedding_cache import REFUSED_FOR_MS, EmbeddingCache
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider


class Wall:
    """A clock that a test sets, in Unix milliseconds."""

    now_ms = 1_000_000

    def __call__(self):
        return self.now_ms


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def embedding(tmp_path, wall):
    embedding = EmbeddingFixture(tmp_path)
    embedding.cache.close()
    embedding.cache = EmbeddingCache(tmp_path / "state" / "refusing.sqlite", 10_000, wall)
    embedding.use(WordProvider())
    embedding.write(a="heron", b="unspeakable one", c="unspeakable two", d="stork")
    yield embedding
    embedding.close()


def check_sends(embedding, *texts, mode=SyncMode.INCREMENTAL):
    """What a sync sends, and its outcome."""
    before = len(embedding.provider.texts)
    outcome = embedding.sync(mode)
    assert sorted(embedding.provider.texts[before:]) == sorted(texts)
    return outcome


ALL = ("heron", "stork", "unspeakable one", "unspeakable two")
REFUSED = ("unspeakable one", "unspeakable two")


def test_a_sync_with_nothing_new_sends_nothing(embedding):
    check_sends(embedding, *ALL)
    calls = len(embedding.provider.batches)
    outcome = check_sends(embedding)
    assert len(embedding.provider.batches) == calls
    assert outcome.pending_embeddings == 2
    assert "2 chunks were refused by the provider: the text is refused" in outcome.embedding_reason
    assert (outcome.changed, set(embedding.vectors())) == (False, {"heron", "stork"})


def test_new_texts_are_sent_and_refused_ones_are_not(embedding):
    check_sends(embedding, *ALL)
    embedding.write(e="swan", f="unspeakable one")
    assert check_sends(embedding, "swan").pending_embeddings == 3


def test_refusals_are_known_after_a_restart_with_the_reason(embedding):
    check_sends(embedding, *ALL)
    embedding.use(WordProvider())
    assert embedding.embedder.state.pending == 2
    assert "2 chunks were refused by the provider: the text is refused" in embedding.embedder.state.reason
    check_sends(embedding)


def test_a_full_sync_asks_for_them_again(embedding):
    check_sends(embedding, *ALL)
    embedding.provider.bad = "unspeakable two"
    assert check_sends(embedding, *REFUSED, mode=SyncMode.FULL).pending_embeddings == 1
    check_sends(embedding)


def test_refusals_are_stored_by_provider(embedding):
    check_sends(embedding, *ALL)
    embedding.use(WordProvider("other"))
    check_sends(embedding, *ALL, "ping")
    embedding.use(WordProvider())
    check_sends(embedding, *REFUSED, "ping")


def test_refused_texts_are_sent_again_after_a_day(embedding, wall):
    check_sends(embedding, *ALL)
    wall.now_ms += REFUSED_FOR_MS - 1
    check_sends(embedding)
    wall.now_ms += 1
    check_sends(embedding, *REFUSED)
    check_sends(embedding)


def test_refused_texts_need_no_cost_approval(embedding):
    check_sends(embedding, *ALL)
    assert embedding.engine().estimate(SyncMode.INCREMENTAL).cache_misses == 0
    embedding.use(embedding.provider, CostLimit(3, remote=True))
    embedding.write(e="unspeakable " * 100)
    assert "confirmAboveTokens" in check_sends(embedding).embedding_reason
    embedding.write(e="swan")
    assert "confirmAboveTokens" not in check_sends(embedding, "swan").embedding_reason


def test_a_failure_that_passes_is_no_refusal(embedding):
    stopped = []
    embedding.provider.before = lambda _texts: stopped.append(True)
    embedding.sync(should_stop=lambda: bool(stopped))
    embedding.provider.before = lambda _texts: None
    check_sends(embedding, *ALL)


def test_without_a_file_for_the_cache_they_are_remembered_for_as_long_as_it_is_open(embedding, wall):
    embedding.cache.close()
    embedding.cache = EmbeddingCache(None, 0, wall)
    embedding.use(embedding.provider)
    check_sends(embedding, *ALL)
    check_sends(embedding)
    assert embedding.cache.count() == 0
