"""A text that the provider refuses permanently is sent once, not at every sync."""

import pytest

from memoryd_server.embedding.embedder import CostLimit
from memoryd_server.sqlite.embedding_cache import REFUSED_FOR_MS, EmbeddingCache
from memoryd_server.sync.progress import SyncMode
from shelf import Shelf
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
def shelf(tmp_path, wall):
    shelf = Shelf(tmp_path)
    shelf.cache.close()
    shelf.cache = EmbeddingCache(tmp_path / "state" / "refusing.sqlite", 10_000, wall)
    shelf.use(WordProvider())
    shelf.write(a="heron", b="unspeakable one", c="unspeakable two", d="stork")
    yield shelf
    shelf.close()


def check_sends(shelf, *texts, mode=SyncMode.INCREMENTAL):
    """What a sync sends, and its outcome."""
    before = len(shelf.provider.texts)
    outcome = shelf.sync(mode)
    assert sorted(shelf.provider.texts[before:]) == sorted(texts)
    return outcome


ALL = ("heron", "stork", "unspeakable one", "unspeakable two")
REFUSED = ("unspeakable one", "unspeakable two")


def test_a_sync_with_nothing_new_sends_nothing(shelf):
    check_sends(shelf, *ALL)
    calls = len(shelf.provider.batches)
    outcome = check_sends(shelf)
    assert len(shelf.provider.batches) == calls
    assert outcome.pending_embeddings == 2
    assert "2 chunks were refused by the provider: the text is refused" in outcome.embedding_reason
    assert (outcome.changed, set(shelf.vectors())) == (False, {"heron", "stork"})


def test_new_texts_are_sent_and_refused_ones_are_not(shelf):
    check_sends(shelf, *ALL)
    shelf.write(e="swan", f="unspeakable one")
    assert check_sends(shelf, "swan").pending_embeddings == 3


def test_refusals_are_known_after_a_restart_with_the_reason(shelf):
    check_sends(shelf, *ALL)
    shelf.use(WordProvider())
    assert shelf.embedder.state.pending == 2
    assert "2 chunks were refused by the provider: the text is refused" in shelf.embedder.state.reason
    check_sends(shelf)


def test_a_full_sync_asks_for_them_again(shelf):
    check_sends(shelf, *ALL)
    shelf.provider.bad = "unspeakable two"
    assert check_sends(shelf, *REFUSED, mode=SyncMode.FULL).pending_embeddings == 1
    check_sends(shelf)


def test_refusals_are_stored_by_provider(shelf):
    check_sends(shelf, *ALL)
    shelf.use(WordProvider("other"))
    check_sends(shelf, *ALL)
    shelf.use(WordProvider())
    check_sends(shelf, *REFUSED)


def test_refused_texts_are_sent_again_after_a_day(shelf, wall):
    check_sends(shelf, *ALL)
    wall.now_ms += REFUSED_FOR_MS - 1
    check_sends(shelf)
    wall.now_ms += 1
    check_sends(shelf, *REFUSED)
    check_sends(shelf)


def test_they_cost_nothing_that_anybody_has_to_agree_to(shelf):
    check_sends(shelf, *ALL)
    assert shelf.engine().estimate(SyncMode.INCREMENTAL).cache_misses == 0
    shelf.use(shelf.provider, CostLimit(3, remote=True))
    shelf.write(e="unspeakable " * 100)
    assert "confirmAboveTokens" in check_sends(shelf).embedding_reason
    shelf.write(e="swan")
    assert "confirmAboveTokens" not in check_sends(shelf, "swan").embedding_reason


def test_a_failure_that_passes_is_no_refusal(shelf):
    stopped = []
    shelf.provider.before = lambda _texts: stopped.append(True)
    shelf.sync(should_stop=lambda: bool(stopped))
    shelf.provider.before = lambda _texts: None
    check_sends(shelf, *ALL)


def test_without_a_file_for_the_cache_they_are_remembered_for_as_long_as_it_is_open(shelf, wall):
    shelf.cache.close()
    shelf.cache = EmbeddingCache(None, 0, wall)
    shelf.use(shelf.provider)
    check_sends(shelf, *ALL)
    check_sends(shelf)
    assert shelf.cache.count() == 0
