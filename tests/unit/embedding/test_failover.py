"""The fallback takes over if the configured provider fails permanently, within the cost limit, and only for a time."""

import numpy as np
import pytest

from desk import Notes
from memoryd_server.embedding.embedder import CostLimit, Embedder
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
from shelf import FREE, Shelf
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


class Town(Shelf):
    """A fixture with a configured provider and a fallback. The clock advances only when a test sets it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.now_ms = 10 * HOUR_MS
        self.first, self.second = Provider("first"), Provider("second")
        self.start()

    def start(self, guard=FREE, second_guard=FREE, no_second=""):
        """As after a start of the daemon."""
        second = None if no_second else Embedder(self.second, lambda: self.cache, second_guard)
        first = Embedder(self.first, lambda: self.cache, guard)
        self.lineup = ProviderFailover(first, second, no_second, now_ms=lambda: self.now_ms)
        with self.desk.store.read() as reader:
            self.lineup.load_state(reader)

    def lineup_of_sync(self):
        return self.lineup

    def stored(self):
        with self.desk.store.read() as reader:
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
def town(tmp_path):
    town = Town(tmp_path)
    yield town
    town.close()


@pytest.mark.parametrize(
    "error", [EmbeddingUnavailable("refuses the key (HTTP 401)"), EmbeddingQuotaExceeded("no credit is left")]
)
def test_the_fallback_takes_over_if_the_first_fails_permanently(town, error):
    town.write(a="heron", b="kestrel")
    town.fail(error)
    outcome = town.sync()
    assert (outcome.pending_embeddings, outcome.embedding_reason, town.stored()) == (0, "", "second")
    assert sorted(town.second.texts) == ["heron", "kestrel"]
    assert town.lineup.active_failover.reason == error.message
    assert town.lineup.active.state.pending == 0


def test_the_whole_index_changes_hands_and_no_vector_of_the_first_stays(town):
    town.fallen()
    assert sorted(town.second.texts) == ["heron", "kestrel", "stork"]
    assert set(town.vectors()) == {"heron", "kestrel", "stork"}
    assert town.nearest("stork")[0] == ("memory/c.md", 1.0)


def test_until_the_swap_the_old_vectors_are_in_place(town):
    town.write(a="heron", b="kestrel")
    town.sync()
    town.fail()
    town.write(c="stork")
    seen = []
    town.second.before = lambda _texts: seen.append((town.stored(), sorted(town.vectors())))
    town.sync()
    assert seen == [("first", ["heron", "kestrel"])]


def test_later_syncs_call_only_the_fallback(town):
    town.fallen()
    asked = town.first.asked
    town.write(d="swan")
    assert town.sync().pending_embeddings == 0
    assert town.second.batches[-1] == ["swan"]
    assert town.first.asked == asked


def test_a_first_that_answers_the_second_time_stays(town):
    town.write(a="heron")
    town.fail()
    asks = []

    def answer_again(texts, should_stop):
        asks.append(texts)
        if len(asks) == 1:
            raise EmbeddingUnavailable("a moment's trouble")
        return WordProvider.embed_documents(town.first, texts, should_stop)

    town.first.embed_documents = answer_again
    assert town.sync().pending_embeddings == 1
    assert town.lineup.active_failover is None
    assert town.second.texts == []
    assert town.sync().pending_embeddings == 0


def test_a_refused_text_causes_no_failover(town):
    town.write(a="heron", b="unspeakable")
    assert town.sync().pending_embeddings == 1
    assert (town.lineup.active_failover, town.second.asked) == (None, 0)


def test_if_both_providers_fail_the_old_vectors_stay_and_both_reasons_are_reported(town):
    town.write(a="heron")
    town.sync()
    town.fail()
    town.second.fault = EmbeddingUnavailable("the second is down")
    town.write(b="kestrel")
    assert town.sync().pending_embeddings == 1
    assert (town.stored(), set(town.vectors())) == ("first", {"heron"})
    reason = town.lineup.active.state.reason
    assert "the first is down" in reason
    assert "remote/second does not take over: the second is down" in reason


def test_a_second_that_fails_half_way_is_no_second(town):
    town.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    town.fail()
    town.second.lives = 1
    assert town.sync().pending_embeddings == 300
    assert town.lineup.active_failover is None
    town.second.lives = None
    assert town.sync().pending_embeddings == 0
    assert len(town.second.texts) == len(set(town.second.texts)) == 300


def test_a_costly_failover_waits_for_a_full_sync(town):
    town.start(second_guard=CostLimit(1, remote=True))
    town.write(a="a heron stands by the pier", b="a kestrel above")
    town.fail()
    outcome = town.sync()
    assert outcome.pending_embeddings == 2
    assert "more than memoryd.confirmAboveTokens" in town.lineup.active.state.reason
    assert town.second.asked == 0
    assert town.sync(SyncMode.FULL).pending_embeddings == 0
    assert town.stored() == "second"


def test_an_unusable_fallback_is_reported_with_its_reason(town):
    town.start(no_second="the fallback gemini cannot be used: no API key")
    town.write(a="heron")
    town.fail()
    town.sync()
    assert town.lineup.active.state.reason == "the first is down; the fallback gemini cannot be used: no API key"


def test_a_provider_that_cannot_be_used_at_all_is_stood_in_for_at_the_first_sync(town):
    town.first = UnavailableProvider("openai", "no API key is configured for the provider openai")
    town.start(guard=CostLimit(1, remote=False))
    town.write(a="heron")
    assert town.sync().pending_embeddings == 0
    assert town.lineup.active_failover.reason == "no API key is configured for the provider openai"


@pytest.mark.parametrize("full", [False, True])
def test_a_rebuild_for_other_reasons_keeps_the_failover_record(town, full):
    town.fallen()
    since = town.lineup.active_failover.since_ms
    if full:
        town.sync(SyncMode.FULL)
    town.start()
    assert (town.lineup.active_failover.since_ms, town.lineup.active_failover.reason.split(";")[0]) == (
        since,
        "the first is down",
    )
    assert len(town.second.texts) == 3


class TestTheWayBack:
    def back(self, town):
        town.first.fault = None
        town.sync()
        return town.stored() == "first"

    def settle(self, town):
        """Until a first look found the first still away."""
        town.sync()
        assert town.stored() == "second"

    def test_it_waits_until_the_second_has_stayed_for_a_while(self, town):
        town.fallen()
        self.settle(town)
        asked = town.first.asked
        town.now_ms += FIRST_STAY_MS - 1
        assert not self.back(town)
        assert town.first.asked == asked
        town.now_ms += 1
        assert self.back(town)
        assert town.lineup.active_failover is None
        assert town.sync().pending_embeddings == 0

    def test_cached_texts_are_embedded_once_by_each_provider(self, town):
        town.fallen()
        self.settle(town)
        town.now_ms += FIRST_STAY_MS
        assert self.back(town)
        assert sorted(text for text in town.first.texts if text != "ping") == ["heron", "kestrel", "stork"]
        town.fail()
        town.write(d="swan")
        town.sync()
        assert town.stored() == "second"
        assert sorted(text for text in town.second.texts if text != "ping") == ["heron", "kestrel", "stork", "swan"]

    def test_who_fails_again_within_a_day_comes_back_later_each_time(self, town):
        town.fallen()
        stays = [town.lineup.active_failover.min_stay_ms]
        for number in range(7):
            self.settle(town)
            town.now_ms += stays[-1] - 1
            assert not self.back(town)
            town.now_ms += 1
            assert self.back(town)
            town.fail()
            town.write(**{f"more{number}": f"word{number}"})
            town.sync()
            stays.append(town.lineup.active_failover.min_stay_ms)
        assert stays[:4] == [FIRST_STAY_MS * 2**number for number in range(4)]
        assert stays[-1] == LONGEST_STAY_MS
        town.now_ms += LONGEST_STAY_MS
        assert self.back(town)
        town.now_ms += 24 * HOUR_MS
        town.fail()
        town.write(last="word")
        town.sync()
        assert town.lineup.active_failover.min_stay_ms == FIRST_STAY_MS

    def test_after_a_start_and_for_a_full_sync_it_waits_for_nothing(self, town):
        town.fallen()
        town.start()
        assert self.back(town)
        town.fail()
        town.write(d="swan")
        town.sync()
        assert town.stored() == "second"
        town.first.fault = None
        town.sync(SyncMode.FULL)
        assert town.stored() == "first"

    def test_a_provider_that_is_still_failing_is_not_probed_at_every_sync(self, town):
        town.fallen()
        self.settle(town)
        town.now_ms += FIRST_STAY_MS
        self.settle(town)
        asked = town.first.asked
        town.now_ms += PROBE_INTERVAL_MS - 1
        self.settle(town)
        assert town.first.asked == asked
        town.now_ms += 1
        self.settle(town)
        assert town.first.asked == asked + 1
        assert "the first is down" in town.lineup.active_failover.reason

    def test_a_costly_failback_waits(self, town):
        town.start(guard=CostLimit(2, remote=True))
        town.fail()
        town.write(a="heron", b="a long tale of herons and kestrels by the sea")
        town.sync(SyncMode.FULL)
        assert town.stored() == "second"
        town.start(guard=CostLimit(2, remote=True))
        assert not self.back(town)
        assert "remote/first does not take over" in town.lineup.active_failover.reason
        assert "confirmAboveTokens" in town.lineup.active_failover.reason
        town.sync(SyncMode.FULL)
        assert town.stored() == "first"

    def test_a_first_that_fails_on_its_way_back_changes_nothing(self, town):
        town.fallen()
        town.start()
        town.write(d="swan")
        town.first.fault = None
        town.first.before = lambda texts: town.fail() if texts == ["ping"] else None
        town.sync()
        assert town.stored() == "second"
        assert set(town.vectors()) == {"heron", "kestrel", "stork", "swan"}
        assert "remote/first does not take over: the first is down" in town.lineup.active_failover.reason


def test_a_hand_over_that_is_stopped_leaves_the_old_index_and_pays_nothing_twice(town):
    town.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    town.fail()
    stop, notes = [], Notes()
    notes.on_progress = lambda p: p.phase is SyncPhase.EMBEDDING and p.completed_chunks and stop.append(1)
    with pytest.raises(SyncCancelled):
        town.sync(notes=notes, should_stop=lambda: bool(stop))
    assert town.lineup.active_failover is None
    town.sync()
    assert len(town.second.texts) == len(set(town.second.texts)) == 300


def test_a_failover_yields_to_changed_files_and_is_resumed(town):
    town.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    town.fail()
    engine = town.engine()
    news = []
    town.second.before = lambda _texts: news.append(1)
    outcome = engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False, lambda: bool(news))
    assert (outcome.yielded, outcome.pending_embeddings, town.lineup.active_failover) == (True, 300, None)
    town.write(new="swan")
    asked = town.first.asked
    outcome = engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert (outcome.yielded, outcome.pending_embeddings, town.stored()) == (False, 0, "second")
    assert town.first.asked == asked
    assert sorted(town.second.texts) == sorted([f"note{number}" for number in range(300)] + ["swan"])


def test_a_hand_over_that_no_cache_keeps_does_not_step_aside(town):
    town.cache.max_entries = 10
    town.write(**{f"n{number:03}": f"note{number}" for number in range(300)})
    town.fail()
    outcome = town.engine().run(SyncMode.INCREMENTAL, Notes(), lambda: False, lambda: True)
    assert (outcome.yielded, outcome.pending_embeddings, town.stored()) == (False, 0, "second")


def test_progress_shows_the_hand_over(town):
    town.write(a="heron", b="kestrel")
    town.fail()
    notes = Notes()
    town.sync(notes=notes)
    assert SyncPhase.SWAPPING in [progress.phase for progress in notes.progresses]
    assert [progress.completed_chunks for progress in notes.progresses if progress.phase is SyncPhase.EMBEDDING][
        -1
    ] == 2


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"active": true}', "[1]", "7"])
def test_a_note_that_is_none_of_ours_is_no_note(text):
    assert FailoverRecord.from_json(text) is None


def test_an_index_of_the_fallback_without_a_record_is_rebuilt_by_the_first(town):
    """Swap the two providers, as in the settings."""
    town.first, town.second = town.second, town.first
    town.start()
    town.write(a="heron")
    town.sync()
    town.first, town.second = town.second, town.first
    town.start()
    assert town.lineup.active_failover is None
    town.sync()
    assert town.stored() == "first"
    assert np.allclose(town.vectors()["heron"], town.first.vector("heron"))
