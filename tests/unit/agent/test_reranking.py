"""The third stage of a search: when the reranker is called, how long a search waits, and what is cached."""

import asyncio
import threading
import time

import pytest

from fake_providers import fake_reranker
from memoryd_server.agent.reranking import (
    CONCURRENT_CALLS,
    LATE_CALLS,
    LONGEST_PAUSE_SECONDS,
    RerankPolicy,
    RerankStage,
    SharedReranking,
)
from memoryd_server.model import DegradationKind
from memoryd_server.providers import RerankConfig, RerankFailure, RerankReply, make_reranker
from waiting import eventually

QUERY = "red ferry"
PASSAGES = ("tea", "the red ferry", "a red boat")
PATIENT = RerankPolicy(timeout_seconds=20.0)
HASTY = RerankPolicy(timeout_seconds=0.02)
BEGINNING = 1_000.0


class Scripted:
    """A reranker whose calls wait for `released`; `fault` is raised, and a passage of `unscored` gets no score."""

    provider, model, endpoint = "http", "scripted", "http://scripted"

    def __init__(self):
        self.problem = ""
        self.prepared = 0
        self.calls = []
        self.fault = None
        self.unscored = ()
        self.released = threading.Event()
        self.released.set()
        self.closed = False

    def prepare(self):
        self.prepared += 1

    def capacity(self, _seconds):
        return 7

    def rerank(self, query, passages, _deadline):
        self.calls.append((query, tuple(passages)))
        assert self.released.wait(60)
        if self.fault is not None:
            raise self.fault
        scores = tuple(None if text in self.unscored else len(text) / 100 for text in passages)
        return RerankReply(scores, 10 * len(passages))

    def close(self):
        self.closed = True


class Clock:
    def __init__(self):
        self.now = BEGINNING

    def __call__(self):
        return self.now


@pytest.fixture
def reranker():
    scripted = Scripted()
    yield scripted
    scripted.released.set()


def stage_of(reranker, policy=PATIENT, **options):
    return RerankStage(reranker, policy, **options)


async def score(stage, query=QUERY, passages=PASSAGES, agent="main", deadline=None):
    return await stage.scores(agent, query, passages, time.monotonic() + 30 if deadline is None else deadline)


def used(stage):
    usage = stage.status().usage
    return {name: count for name in usage.__slots__ if (count := getattr(usage, name))}


async def test_scores_are_in_the_order_of_the_passages(reranker):
    stage = stage_of(reranker)
    outcome = await score(stage)
    assert outcome.scores == (0.03, 0.13, 0.1)
    assert (outcome.provider, outcome.model, outcome.candidates, outcome.cached) == ("http", "scripted", 3, 0)
    assert outcome.degradation is None
    assert used(stage) == {"calls": 1, "tokens": 30, "candidates": 3}


async def test_a_repeated_search_needs_no_call(reranker):
    stage = stage_of(reranker)
    first, second = await score(stage), await score(stage)
    assert (first.scores, second.cached) == (second.scores, 3)
    assert len(reranker.calls) == 1
    assert used(stage)["cache_hits"] == 3


async def test_only_passages_without_a_cached_score_are_sent(reranker):
    stage = stage_of(reranker)
    await score(stage)
    outcome = await score(stage, passages=("new", *PASSAGES))
    assert (outcome.candidates, outcome.cached) == (4, 3)
    assert reranker.calls[1] == (QUERY, ("new",))


@pytest.mark.parametrize("other", [{"query": "another"}, {"agent": "other"}])
async def test_the_scores_of_another_query_or_agent_are_not_used(reranker, other):
    stage = stage_of(reranker)
    await score(stage)
    assert (await score(stage, **other)).cached == 0
    assert len(reranker.calls) == 2


async def test_texts_are_not_mixed_up_in_the_cache(reranker):
    stage = stage_of(reranker)
    await score(stage, query="ab", passages=("c", "x"))
    assert (await score(stage, query="a", passages=("bc", "x"))).cached == 0


async def test_the_cache_is_bounded_and_keeps_what_was_used_last(reranker):
    stage = stage_of(reranker, cached_scores=4)
    await score(stage)
    await score(stage, passages=("tea", "one", "two"))
    outcome = await score(stage, passages=("tea", "a red boat"))
    assert outcome.cached == 2
    assert (await score(stage, passages=("the red ferry", "tea"))).cached == 1


@pytest.mark.parametrize("passages", [(), ("alone",)])
async def test_nothing_is_sent_if_there_is_nothing_to_order(reranker, passages):
    outcome = await score(stage_of(reranker), passages=passages)
    assert (outcome.scores, outcome.skipped, reranker.calls) == (None, "", [])


async def test_a_passage_without_a_score_has_none(reranker):
    reranker.unscored = ("tea",)
    outcome = await score(stage_of(reranker))
    assert (outcome.scores, outcome.candidates) == ((None, 0.13, 0.1), 2)


async def test_a_late_reply_is_skipped_and_of_use_to_the_next_search(reranker):
    stage = stage_of(reranker, HASTY)
    reranker.released.clear()
    outcome = await score(stage)
    assert (outcome.scores, outcome.candidates) == (None, 0)
    assert outcome.degradation.kind is DegradationKind.RERANKING_SKIPPED
    assert "did not answer within 0.02 s" in outcome.degradation.reason
    reranker.released.set()
    await eventually(lambda: used(stage).get("tokens"))
    assert (await score(stage)).cached == 3
    assert used(stage)["late"] == 1


async def test_the_callers_deadline_limits_the_wait_and_is_no_failure(reranker):
    stage = stage_of(reranker)
    reranker.released.clear()
    for number in range(2 * LATE_CALLS):
        outcome = await score(stage, query=f"{number}", deadline=time.monotonic() + 0.12)
        assert outcome.skipped
        reranker.released.set()
        await eventually(lambda number=number: used(stage).get("tokens", 0) == 30 * (number + 1))
        reranker.released.clear()
    assert stage.status().reason == ""


async def test_a_caller_without_time_gets_no_call(reranker):
    outcome = await score(stage_of(reranker), deadline=time.monotonic() + 0.05)
    assert "leaves no time" in outcome.skipped
    assert reranker.calls == []


async def test_searches_for_the_same_scores_share_a_call(reranker):
    stage = stage_of(reranker)
    reranker.released.clear()
    searches = [asyncio.create_task(score(stage)) for _ in range(3)]
    await eventually(lambda: reranker.calls)
    searches.append(asyncio.create_task(score(stage, passages=("new", *PASSAGES))))
    await eventually(lambda: len(reranker.calls) == 2)
    reranker.released.set()
    first, *others = await asyncio.gather(*searches)
    assert first.scores == others[0].scores == others[1].scores == others[2].scores[1:]
    assert reranker.calls[1] == (QUERY, ("new",))
    assert used(stage)["calls"] == 2


async def test_calls_are_bounded(reranker):
    stage = stage_of(reranker)
    reranker.released.clear()
    searches = [asyncio.create_task(score(stage, query=f"{number}")) for number in range(CONCURRENT_CALLS)]
    await eventually(lambda: len(reranker.calls) == CONCURRENT_CALLS)
    assert "earlier calls of the reranker have not ended" in (await score(stage)).skipped
    reranker.released.set()
    assert all(outcome.scores for outcome in await asyncio.gather(*searches))
    assert (await score(stage)).scores


async def test_a_failure_prevents_calls_for_a_growing_pause(reranker):
    clock = Clock()
    stage = stage_of(reranker, monotonic=clock)
    reranker.fault = RerankFailure("it is broken")
    pauses = []
    for number in range(8):
        outcome = await score(stage, query=f"{number}", deadline=clock.now + 30)
        assert outcome.degradation.reason == "it is broken"
        assert stage.status().reason == "it is broken"
        before = clock.now
        while True:
            clock.now += 1.0
            skipped = (await score(stage, query="x", deadline=clock.now + 30)).skipped if number < 7 else ""
            if "called again in" not in skipped:
                break
        pauses.append(clock.now - before)
        clock.now += LONGEST_PAUSE_SECONDS
    assert pauses[:3] == sorted(pauses[:3])
    assert max(pauses) <= LONGEST_PAUSE_SECONDS + 1
    reranker.fault = None
    clock.now += LONGEST_PAUSE_SECONDS
    assert (await score(stage, deadline=clock.now + 30)).scores
    assert stage.status().reason == ""


async def test_the_pause_that_a_server_requests_is_kept(reranker):
    clock = Clock()
    stage = stage_of(reranker, monotonic=clock)
    reranker.fault = RerankFailure("the rate is limited", 100.0)
    await score(stage, deadline=clock.now + 30)
    clock.now += 99.0
    assert "called again in 1.0 s" in (await score(stage, deadline=clock.now + 30)).skipped
    assert len(reranker.calls) == 1


async def test_after_a_pause_one_call_is_tried_before_the_others(reranker):
    clock = Clock()
    stage = stage_of(reranker, monotonic=clock)
    reranker.fault = RerankFailure("it is broken")
    await score(stage, deadline=clock.now + 30)
    reranker.fault = None
    clock.now += 3.0
    reranker.released.clear()
    trial = asyncio.create_task(score(stage, query="trial", deadline=clock.now + 30))
    await eventually(lambda: len(reranker.calls) == 2)
    assert "is being called again" in (await score(stage, deadline=clock.now + 30)).skipped
    reranker.released.set()
    assert (await trial).scores
    assert (await score(stage, deadline=clock.now + 30)).scores


async def test_repeated_lateness_counts_as_a_failure(reranker):
    stage = stage_of(reranker, HASTY, first_pause_seconds=60.0)
    reranker.released.clear()
    for number in range(LATE_CALLS):
        assert "did not answer" in (await score(stage, query=f"{number}")).skipped
    outcome = await score(stage)
    assert "it is called again in" in outcome.skipped
    assert len(reranker.calls) == LATE_CALLS
    assert used(stage)["late"] == LATE_CALLS


async def test_a_failure_of_calls_at_the_same_time_counts_once(reranker):
    clock = Clock()
    stage = stage_of(reranker, monotonic=clock)
    reranker.fault = RerankFailure("it is broken")
    reranker.released.clear()
    searches = [asyncio.create_task(score(stage, query=f"{n}", deadline=clock.now + 30)) for n in range(3)]
    await eventually(lambda: len(reranker.calls) == 3)
    reranker.released.set()
    await asyncio.gather(*searches)
    clock.now += 2.1
    reranker.fault = None
    assert (await score(stage, deadline=clock.now + 30)).scores
    assert used(stage)["failures"] == 3


async def test_an_unexpected_exception_is_a_failure(reranker):
    reranker.fault = ZeroDivisionError("a fault")
    stage = stage_of(reranker)
    assert (await score(stage)).skipped == "the reranker failed: a fault"


async def test_a_problem_is_reported_without_a_call_and_prepared(reranker):
    reranker.problem = "the model is being loaded"
    stage = stage_of(reranker)
    assert (await score(stage)).degradation.reason == "the model is being loaded"
    assert (reranker.prepared, reranker.calls) == (1, [])
    assert stage.status().reason == "the model is being loaded"
    reranker.problem = ""
    assert (await score(stage)).scores


async def test_cached_scores_need_no_reranker(reranker):
    stage = stage_of(reranker)
    await score(stage)
    reranker.problem = "it is gone"
    assert (await score(stage)).cached == 3


async def test_a_cancelled_search_leaves_nothing_behind(reranker):
    stage = stage_of(reranker)
    reranker.released.clear()
    search = asyncio.create_task(score(stage))
    await eventually(lambda: reranker.calls)
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    reranker.released.set()
    await eventually(lambda: used(stage).get("tokens"))
    assert len(asyncio.all_tasks()) == 1
    assert (await score(stage)).cached == 3


async def test_a_cancelled_search_whose_call_fails_leaves_nothing_behind(reranker):
    stage = stage_of(reranker)
    reranker.fault = RerankFailure("it is broken")
    reranker.released.clear()
    search = asyncio.create_task(score(stage))
    await eventually(lambda: reranker.calls)
    search.cancel()
    reranker.released.set()
    await eventually(lambda: used(stage).get("failures"))


async def test_a_shutdown_answers_waiting_searches_immediately(reranker):
    stage = stage_of(reranker)
    reranker.released.clear()
    search = asyncio.create_task(score(stage))
    await eventually(lambda: reranker.calls)
    stage.shut_down()
    assert "stopping" in (await search).skipped
    assert (await score(stage, query="later")).skipped


def test_the_number_of_candidates_is_the_smaller_of_the_settings_and_the_capacity(reranker):
    assert stage_of(reranker, RerankPolicy(candidates=30)).candidates == 7
    assert stage_of(reranker, RerankPolicy(candidates=5)).candidates == 5


async def test_a_change_of_the_reranker_closes_the_former_one_and_begins_without_scores():
    made = []

    def make(config):
        if config.provider == "none":
            return None
        made.append(Scripted())
        return made[-1]

    shared = SharedReranking(make)
    shared.start(RerankConfig(), PATIENT)
    assert shared.current is None
    await shared.change(RerankConfig("http", "a"), PATIENT)
    await score(shared.current)
    kept = shared.current
    await shared.change(RerankConfig("http", "a"), RerankPolicy(candidates=3, timeout_seconds=20.0))
    assert shared.current is kept
    assert (kept.candidates, (await score(kept)).cached) == (3, 3)
    await shared.change(RerankConfig("http", "b"), PATIENT)
    assert made[0].closed
    assert (await score(shared.current)).cached == 0
    await shared.change(RerankConfig(), PATIENT)
    assert (shared.current, made[1].closed) == (None, True)


async def test_a_real_server_is_called_once_for_a_query_and_its_passages():
    with fake_reranker("jina") as server:
        stage = stage_of(make_reranker(RerankConfig("http", server.model, server.url, keys=("a-key",))))
        first = await score(stage)
        assert first.scores == (0.0, 1.0, 0.5)
        assert (await score(stage)).cached == 3
        assert len(server.requests) == 1
        server.faults.append(server.failing())
        assert "HTTP 500" in (await score(stage, query="tea")).skipped
        assert "called again in" in (await score(stage, query="tea")).skipped
        assert len(server.requests) == 2
        assert "a-key" not in repr(stage.status())
        await asyncio.to_thread(stage.close)
    assert "closed" in (await score(stage, query="tea")).skipped
