"""The fallback takes over if the configured provider fails permanently, within the cost limit, and only for a time."""

import numpy as np
import pytest

from embedding_fixture import FREE, EmbeddingFixture
from index_fixture import RecordingObserver
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.embedding.embedder import Embedder
from memoryd_server.embedding.failover import (
    FIRST_STAY_MS,
    LONGEST_STAY_MS,
    PROBE_INTERVAL_MS,
    FailoverRecord,
    ProviderFailover,
)
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable, SyncCancelled
from memoryd_server.providers.provider import UnavailableProvider
from memoryd_server.sync.progress import SyncMode, SyncPhase
from word_provider import WordProvider

HOUR_MS = 3_600_000


class Provider(WordProvider):
    """Fails with `fault` while that is set."""

    def __init__(self, model, **options):
        super().__init__(model, **options)
        self.fault = None
        self.asked = 0

    def embed_documents(self, texts, should_stop):
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return super().embed_documents(texts, should_stop)


class FailoverFixture(EmbeddingFixture):
    """Hold an index with a configured provider and a fallback. `hours` moves the clock."""

    def __init__(self, folder):
        super().__init__(folder)
        self.now_ms = 10 * HOUR_MS
        self.first, self.second = Provider("first"), Provider("second")
        self.start()

    def start(self, guard=FREE, second_guard=FREE, no_second=""):
        """As after a start of the daemon."""
        second = None if no_second else Embedder(self.second, lambda: self.cache, second_guard)
        first = Embedder(self.first, lambda: self.cache, guard)
        self.provider_failover = ProviderFailover(first, second, no_second, now_ms=lambda: self.now_ms)
        with self.index.store.read() as reader:
            self.provider_failover.load_state(reader)

    def sync_failover(self):
        return self.provider_failover

    def stored(self):
        with self.index.store.read() as reader:
            return self.first.spec.model if self.made_by(reader, self.first) else self.second.spec.model

    @staticmethod
    def made_by(reader, provider):
        return reader.vector_identity().model == provider.spec.model

    def fail(self, error=None):
        self.first.fault = error or EmbeddingUnavailable("the first is down")

    def fallen(self):
        """Make the fallback take over."""
        self.write(a="heron", b="kestrel")
        self.sync()
        self.fail()
        self.write(c="stork")
        self.sync()
        assert self.stored() == "second"
        return self


@pytest.fixture
def failover(tmp_path):
    failover = FailoverFixture(tmp_path)
    yield failover
    failover.close()


@pytest.mark.parametrize(
    "error", [EmbeddingUnavailable("refuses the key (HTTP 401)"), EmbeddingQuotaExceeded("no credit is left")]
)
def test_the_fallback_takes_over_if_the_first_fails_permanently(failover, error):
    failover.write(a="heron", b="kestrel")
    failover.fail(error)
    outcome = failover.sync()
    assert (outcome.pending_embeddings, outcome.embedding_reason, failover.stored()) == (0, "", "second")
    assert sorted(failover.second.texts) == ["heron", "kestrel"]
    assert failover.provider_failover.active_failover.reason == error.message
    assert failover.provider_failover.active.state.pending == 0


def test_the_whole_index_changes_hands_and_no_vector_of_the_first_stays(failover):
    failover.fallen()
    assert sorted(failover.second.texts) == ["heron", "kestrel", "stork"]
    assert set(failover.vectors()) == {"heron", "kestrel", "stork"}
    assert failover.nearest("stork")[0] == ("memory/c.md", 1.0)


def test_until_the_swap_the_old_vectors_are_in_place(failover):
    failover.write(a="heron", b="kestrel")
    failover.sync()
    failover.fail()
    failover.write(c="stork")
    seen = []
    failover.second.before = lambda _texts: seen.append((failover.stored(), sorted(failover.vectors())))
    failover.sync()
    assert seen == [("first", ["heron", "kestrel"])]


def test_later_syncs_call_only_the_fallback(failover):
    failover.fallen()
    asked = failover.first.asked
    failover.write(d="swan")
    assert failover.sync().pending_embeddings == 0
    assert failover.second.batches[-1] == ["swan"]
    assert failover.first.asked == asked


def test_a_first_that_answers_the_second_time_stays(failover):
    failover.write(a="heron")
    failover.fail()
    asks = []

    def answer_again(texts, should_stop):
        asks.append(texts)
        if len(asks) == 1:
            raise EmbeddingUnavailable("a moment's trouble")
        return WordProvider.embed_documents(failover.first, texts, should_stop)

    failover.first.embed_documents = answer_again
    assert failover.sync().pending_embeddings == 1
    assert failover.provider_failover.active_failover is None
    assert failover.second.texts == []
    assert failover.sync().pending_embeddings == 0


def test_a_refused_text_causes_no_failover(failover):
    failover.write(a="heron", b="unspeakable")
    assert failover.sync().pending_embeddings == 1
    assert (failover.provider_failover.active_failover, failover.second.asked) == (None, 0)


def test_if_both_providers_fail_the_old_vectors_stay_and_both_reasons_are_reported(failover):
    failover.write(a="heron")
    failover.sync()
    failover.fail()
    failover.second.fault = EmbeddingUnavailable("the second is down")
    failover.write(b="kestrel")
    assert failover.sync().pending_embeddings == 1
    assert (failover.stored(), set(failover.vectors())) == ("first", {"heron"})
    reason = failover.provider_failover.active.state.reason
    assert "the first is down" in reason
    assert "remote/second does not take over: the second is down" in reason


def test_a_second_that_fails_half_way_is_no_second(failover):
    failover.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    failover.fail()
    failover.second.lives = 1
    assert failover.sync().pending_embeddings == 300
    assert failover.provider_failover.active_failover is None
    failover.second.lives = None
    assert failover.sync().pending_embeddings == 0
    assert len(failover.second.texts) == len(set(failover.second.texts)) == 300


def test_a_costly_failover_waits_for_a_full_sync(failover):
    failover.start(second_guard=CostLimit(1, remote=True))
    failover.write(a="a heron stands by the pier", b="a kestrel above")
    failover.fail()
    outcome = failover.sync()
    assert outcome.pending_embeddings == 2
    assert "more than memoryd.confirmAboveTokens" in failover.provider_failover.active.state.reason
    assert failover.second.asked == 0
    assert failover.sync(SyncMode.FULL).pending_embeddings == 0
    assert failover.stored() == "second"


def test_an_unusable_fallback_is_reported_with_its_reason(failover):
    failover.start(no_second="the fallback gemini cannot be used: no API key")
    failover.write(a="heron")
    failover.fail()
    failover.sync()
    assert (
        failover.provider_failover.active.state.reason
        == "the first is down; the fallback gemini cannot be used: no API key"
    )


def test_a_provider_that_cannot_be_used_at_all_is_stood_in_for_at_the_first_sync(failover):
    failover.first = UnavailableProvider("openai", "no API key is configured for the provider openai")
    failover.start(guard=CostLimit(1, remote=False))
    failover.write(a="heron")
    assert failover.sync().pending_embeddings == 0
    assert failover.provider_failover.active_failover.reason == "no API key is configured for the provider openai"


@pytest.mark.parametrize("full", [False, True])
def test_a_rebuild_for_other_reasons_keeps_the_failover_record(failover, full):
    failover.fallen()
    since = failover.provider_failover.active_failover.since_ms
    if full:
        failover.sync(SyncMode.FULL)
    failover.start()
    assert (
        failover.provider_failover.active_failover.since_ms,
        failover.provider_failover.active_failover.reason.split(";")[0],
    ) == (
        since,
        "the first is down",
    )
    assert len(failover.second.texts) == 3


class TestTheWayBack:
    def back(self, failover):
        failover.first.fault = None
        failover.sync()
        return failover.stored() == "first"

    def settle(self, failover):
        """Until a first look found the first still away."""
        failover.sync()
        assert failover.stored() == "second"

    def test_the_way_back_waits_for_the_minimum_stay(self, failover):
        failover.fallen()
        self.settle(failover)
        asked = failover.first.asked
        failover.now_ms += FIRST_STAY_MS - 1
        assert not self.back(failover)
        assert failover.first.asked == asked
        failover.now_ms += 1
        assert self.back(failover)
        assert failover.provider_failover.active_failover is None
        assert failover.sync().pending_embeddings == 0

    def test_cached_texts_are_embedded_once_by_each_provider(self, failover):
        failover.fallen()
        self.settle(failover)
        failover.now_ms += FIRST_STAY_MS
        assert self.back(failover)
        assert sorted(text for text in failover.first.texts if text != "ping") == ["heron", "kestrel", "stork"]
        failover.fail()
        failover.write(d="swan")
        failover.sync()
        assert failover.stored() == "second"
        assert sorted(text for text in failover.second.texts if text != "ping") == ["heron", "kestrel", "stork", "swan"]

    def test_a_provider_that_fails_again_within_a_day_comes_back_later_each_time(self, failover):
        failover.fallen()
        stays = [failover.provider_failover.active_failover.min_stay_ms]
        for number in range(7):
            self.settle(failover)
            failover.now_ms += stays[-1] - 1
            assert not self.back(failover)
            failover.now_ms += 1
            assert self.back(failover)
            failover.fail()
            failover.write(**{f"more{number}": f"word{number}"})
            failover.sync()
            stays.append(failover.provider_failover.active_failover.min_stay_ms)
        assert stays[:4] == [FIRST_STAY_MS * 2**number for number in range(4)]
        assert stays[-1] == LONGEST_STAY_MS
        failover.now_ms += LONGEST_STAY_MS
        assert self.back(failover)
        failover.now_ms += 24 * HOUR_MS
        failover.fail()
        failover.write(last="word")
        failover.sync()
        assert failover.provider_failover.active_failover.min_stay_ms == FIRST_STAY_MS

    def test_after_a_start_and_for_a_full_sync_it_waits_for_nothing(self, failover):
        failover.fallen()
        failover.start()
        assert self.back(failover)
        failover.fail()
        failover.write(d="swan")
        failover.sync()
        assert failover.stored() == "second"
        failover.first.fault = None
        failover.sync(SyncMode.FULL)
        assert failover.stored() == "first"

    def test_a_provider_that_is_still_failing_is_not_probed_at_every_sync(self, failover):
        failover.fallen()
        self.settle(failover)
        failover.now_ms += FIRST_STAY_MS
        self.settle(failover)
        asked = failover.first.asked
        failover.now_ms += PROBE_INTERVAL_MS - 1
        self.settle(failover)
        assert failover.first.asked == asked
        failover.now_ms += 1
        self.settle(failover)
        assert failover.first.asked == asked + 1
        assert "the first is down" in failover.provider_failover.active_failover.reason

    def test_a_costly_failback_waits(self, failover):
        failover.start(guard=CostLimit(2, remote=True))
        failover.fail()
        failover.write(a="heron", b="a long tale of herons and kestrels by the sea")
        failover.sync(SyncMode.FULL)
        assert failover.stored() == "second"
        failover.start(guard=CostLimit(2, remote=True))
        assert not self.back(failover)
        assert "remote/first does not take over" in failover.provider_failover.active_failover.reason
        assert "confirmAboveTokens" in failover.provider_failover.active_failover.reason
        failover.sync(SyncMode.FULL)
        assert failover.stored() == "first"

    def test_a_first_that_fails_on_its_way_back_changes_nothing(self, failover):
        failover.fallen()
        failover.start()
        failover.write(d="swan")
        failover.first.fault = None
        failover.first.before = lambda texts: failover.fail() if texts == ["ping"] else None
        failover.sync()
        assert failover.stored() == "second"
        assert set(failover.vectors()) == {"heron", "kestrel", "stork", "swan"}
        assert "remote/first does not take over: the first is down" in failover.provider_failover.active_failover.reason


def test_a_hand_over_that_is_stopped_leaves_the_old_index_and_pays_nothing_twice(failover):
    failover.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    failover.fail()
    stop, notes = [], RecordingObserver()
    notes.on_progress = lambda p: p.phase is SyncPhase.EMBEDDING and p.completed_chunks and stop.append(1)
    with pytest.raises(SyncCancelled):
        failover.sync(observer=notes, should_stop=lambda: bool(stop))
    assert failover.provider_failover.active_failover is None
    failover.sync()
    assert len(failover.second.texts) == len(set(failover.second.texts)) == 300


def test_a_failover_yields_to_changed_files_and_is_resumed(failover):
    failover.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    failover.fail()
    engine = failover.engine()
    news = []
    failover.second.before = lambda _texts: news.append(1)
    outcome = engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False, lambda: bool(news))
    assert (outcome.yielded, outcome.pending_embeddings) == (True, 300)
    assert failover.provider_failover.active_failover is None
    failover.write(new="swan")
    asked = failover.first.asked
    outcome = engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert (outcome.yielded, outcome.pending_embeddings, failover.stored()) == (False, 0, "second")
    assert failover.first.asked == asked
    assert sorted(failover.second.texts) == sorted([f"note{number}" for number in range(300)] + ["swan"])


def test_a_hand_over_that_no_cache_keeps_does_not_step_aside(failover):
    failover.cache.max_entries = 10
    failover.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    failover.fail()
    outcome = failover.engine().run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False, lambda: True)
    assert (outcome.yielded, outcome.pending_embeddings, failover.stored()) == (False, 0, "second")


def test_progress_shows_the_hand_over(failover):
    failover.write(a="heron", b="kestrel")
    failover.fail()
    notes = RecordingObserver()
    failover.sync(observer=notes)
    assert SyncPhase.SWAPPING in [progress.phase for progress in notes.progresses]
    assert [progress.completed_chunks for progress in notes.progresses if progress.phase is SyncPhase.EMBEDDING][
        -1
    ] == 2


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"active": true}', "[1]", "7"])
def test_a_note_that_is_none_of_ours_is_no_note(text):
    assert FailoverRecord.from_json(text) is None


def test_an_index_of_the_fallback_without_a_record_is_rebuilt_by_the_first(failover):
    """Swap the two providers, as in the settings."""
    failover.first, failover.second = failover.second, failover.first
    failover.start()
    failover.write(a="heron")
    failover.sync()
    failover.first, failover.second = failover.second, failover.first
    failover.start()
    assert failover.provider_failover.active_failover is None
    failover.sync()
    assert failover.stored() == "first"
    assert np.allclose(failover.vectors()["heron"], failover.first.vector("heron"))
