"""A question's vector comes in its own short time, and a provider that is down delays no search twice."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from memoryd_server.agent import query_embedding
from memoryd_server.agent.query_embedding import QueryEmbedder
from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable
from waiting import eventually
from word_provider import WordProvider, word_vector


def soon(seconds=30.0):
    return time.monotonic() + seconds


@pytest.fixture
def provider():
    return WordProvider()


@pytest.fixture
def make(provider):
    with ThreadPoolExecutor(8) as threads:
        yield lambda **options: QueryEmbedder(provider, threads, **options)


@pytest.fixture
def questions(make):
    return make()


def paused_for(questions):
    return max(0.0, questions._paused_until - time.monotonic())


async def test_a_question_has_the_vector_of_its_text(questions):
    asked = await questions.embed("red ferry", soon())
    assert asked.error is None
    assert np.allclose(asked.vector, word_vector("red ferry"))


async def test_a_question_is_remembered_and_the_least_recent_forgotten(make, provider):
    questions = make(max_remembered=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        assert np.allclose((await questions.embed(text, soon())).vector, word_vector(text))
    assert provider.questions == ["a", "b", "c", "b"]


async def test_a_remembered_vector_of_another_length_is_asked_for_again(questions, provider):
    assert (await questions.embed("a", soon(), 16)).fresh
    assert not (await questions.embed("a", soon(), 16)).fresh
    provider.dimensions = 8
    for dimensions, size in ((16, 16), (8, 8), (0, 8)):
        assert (await questions.embed("a", soon(), dimensions)).vector.size == size
    assert provider.questions == ["a", "a"]


async def test_a_failure_is_not_asked_for_again_until_the_pause_is_over(questions, provider):
    provider.down = "it is down"
    first = await questions.embed("a", soon())
    assert (first.vector, first.error.message) == (None, "it is down")
    for text in ("a", "b", "c"):
        assert (await questions.embed(text, soon())).error is first.error
    assert provider.questions == ["a"]


@pytest.mark.parametrize(
    ("error", "pauses"),
    [(EmbeddingOutage("down"), True), (EmbeddingQuotaExceeded("no credit"), True), (EmbeddingUnavailable("no"), False)],
)
async def test_only_an_outage_or_a_used_up_quota_pauses_the_provider(questions, provider, error, pauses):
    def fail(text):
        if text == "bad":
            raise error

    provider.before_query = fail
    assert (await questions.embed("bad", soon())).error is error
    assert bool(paused_for(questions)) is pauses
    assert ((await questions.embed("good", soon())).vector is None) is pauses


@pytest.mark.parametrize("of_all", [False, True])
async def test_a_vector_of_another_length_counts_where_every_text_gets_one(questions, provider, of_all):
    provider.dimensions = 17 if of_all else 16
    asked = await questions.embed("q" if of_all else "misshapen", soon(), 16)
    if of_all:
        assert asked.vector.size == 17
    else:
        assert "17 dimensions instead of 16" in asked.error.message
        assert paused_for(questions) == 0
    assert provider.questions[1:] == ["ping"]


async def test_cached_query_vectors_are_used_while_the_provider_is_paused(questions, provider):
    await questions.embed("a", soon())
    provider.down = "it is down"
    assert (await questions.embed("b", soon())).error is not None
    assert (await questions.embed("a", soon())).vector is not None


async def test_pauses_grow_with_each_failure_and_start_again_after_a_success(make, provider):
    questions = make(first_pause_seconds=0.1)
    provider.down = "it is down"
    lengths = []
    for _ in range(3):
        await questions.embed("a", soon())
        lengths.append(paused_for(questions))
        await asyncio.sleep(lengths[-1] + 0.01)
    assert lengths[0] < 0.11 < lengths[1] < 0.21 < lengths[2] < 0.41
    provider.down = ""
    assert (await questions.embed("a", soon())).vector is not None
    assert (await questions.embed("b", soon())).vector is not None
    provider.down = "again"
    assert (await questions.embed("c", soon())).error.message == "again"
    assert paused_for(questions) < 0.11


async def test_many_at_once_that_fail_together_count_as_one_failure(questions, provider):
    together = threading.Barrier(8)
    provider.before_query = lambda _text: together.wait(10)
    provider.down = "it is down"
    answers = await asyncio.gather(*(questions.embed(f"q{number}", soon()) for number in range(8)))
    assert [answer.error.message for answer in answers] == ["it is down"] * 8
    assert paused_for(questions) <= query_embedding.FIRST_PAUSE_SECONDS


async def test_a_provider_that_hangs_costs_the_time_for_embedding_and_then_rests(questions, provider):
    gate = threading.Event()
    provider.before_query = lambda _text: gate.wait(20)
    try:
        began = time.monotonic()
        asked = await questions.embed("a", soon(1.7))
        assert 1.0 < time.monotonic() - began < 1.7
        assert isinstance(asked.error, EmbeddingUnavailable)
        began = time.monotonic()
        assert (await questions.embed("b", soon())).error is asked.error
        assert time.monotonic() - began < 0.5
    finally:
        gate.set()


async def test_the_longest_wait_holds_however_far_the_deadline_is(make, provider):
    questions = make(longest_wait_seconds=0.2)
    gate = threading.Event()
    provider.before_query = lambda _text: gate.wait(20)
    try:
        async with asyncio.timeout(5):
            assert "in time" in (await questions.embed("a", soon(60))).error.message
    finally:
        gate.set()


@pytest.mark.parametrize("seconds", [-1.0, 0.3, 0.6])
async def test_a_short_deadline_pauses_the_provider_for_no_other_caller(questions, provider, seconds):
    gate = threading.Event()
    provider.before_query = lambda _text: gate.wait(20)
    assert (await questions.embed("a", soon(seconds))).error is not None
    gate.set()
    assert (await questions.embed("b", soon())).vector is not None


async def test_a_caller_that_leaves_pauses_the_provider_for_no_other_caller(questions, provider):
    gate = threading.Event()
    provider.before_query = lambda _text: gate.wait(20)
    asking = asyncio.ensure_future(questions.embed("a", soon()))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gate.set()
    assert (await questions.embed("b", soon())).vector is not None


async def test_a_vector_that_is_late_is_known_the_next_time(questions, provider):
    gate = threading.Event()
    provider.before_query = lambda _text: gate.wait(30)
    late = await questions.embed_soon("red ferry", soon(), 0, 0.05)
    assert late.vector is None
    assert "within 0.05 s" in late.error.message
    assert isinstance(late.error, EmbeddingOutage)
    assert (await questions.embed_soon("red ferry", soon(), 0, 0.05)).vector is None
    gate.set()
    assert np.allclose((await questions.embed_soon("red ferry", soon(), 0, 30.0)).vector, word_vector("red ferry"))
    assert questions.known("red ferry") is not None
    # One call has answered all three.
    assert provider.questions == ["red ferry"]
    assert paused_for(questions) == 0


async def test_few_calls_continue_although_nobody_waits_for_them(questions, provider):
    gate = threading.Event()
    provider.before_query = lambda _text: gate.wait(30)
    for number in range(query_embedding.MOST_CALLS + 5):
        assert (await questions.embed_soon(f"text {number}", soon(), 0, 0.001)).vector is None
    refused = await questions.embed_soon("one more", soon(), 0, 0.001)
    assert refused.error.message == f"remote still embeds {query_embedding.MOST_CALLS} earlier queries"
    gate.set()
    assert (await questions.embed_soon("text 0", soon(), 0, 30.0)).vector is not None
    await eventually(lambda: len(provider.questions) == query_embedding.MOST_CALLS)
    assert (await questions.embed_soon("another", soon(), 0, 30.0)).vector is not None
    assert len(provider.questions) == query_embedding.MOST_CALLS + 1


async def test_an_error_within_the_time_is_returned(questions, provider):
    provider.down = "the provider is down"
    answer = await questions.embed_soon("red ferry", soon(), 0, 30.0)
    assert answer.vector is None
    assert isinstance(answer.error, EmbeddingUnavailable)
