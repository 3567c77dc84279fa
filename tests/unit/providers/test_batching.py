import itertools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers.batching import (
    MAX_BYTES,
    MIN_BYTES,
    RequestLimits,
    batches,
    embed_in_batches,
    estimate_tokens,
)
from memoryd_server.providers.http_errors import RequestRefused
from memoryd_server.providers.pacing import RequestSlots
from memoryd_server.providers.provider import PLAIN_TEXT, EmbeddingFailure

WAIT = 20


def never():
    return False


def vector_of(text):
    return np.asarray([len(text), sum(map(ord, text))], np.float32)


class Server:
    """What a provider would send requests to. `on` may raise, wait or answer; `peak` is the most requests at once."""

    def __init__(self, on=lambda _number, _texts: None, items=4, lanes=4):
        self.limits = RequestLimits(512, max_items=items, slots=RequestSlots(lanes))
        self.requests = []
        self.peak = 0
        self._on = on
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, texts):
        with self._lock:
            number = len(self.requests)
            self.requests.append(tuple(texts))
            self._now += 1
            self.peak = max(self.peak, self._now)
        try:
            answer = self._on(number, texts)
            return [vector_of(text) for text in texts] if answer is None else answer
        finally:
            with self._lock:
                self._now -= 1

    @property
    def texts(self):
        return sorted(text for texts in self.requests for text in texts)

    def embed(self, texts, should_stop=never):
        return embed_in_batches(texts, self.limits, self, should_stop)


def check(answers, texts):
    assert len(answers) == len(texts)
    for answer, text in zip(answers, texts, strict=True):
        assert not isinstance(answer, EmbeddingFailure), answer
        assert answer.tolist() == vector_of(text).tolist()


def numbered(count):
    return [f"text {number:03}" for number in range(count)]


def meeting(parties):
    """Lets nobody through before so many have come."""
    barrier = threading.Barrier(parties)

    def meet(_number, _texts):
        barrier.wait(WAIT)

    return meet


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_as_many_requests_are_under_way_as_there_are_lanes(lanes):
    server = Server(meeting(lanes), lanes=lanes)
    texts = numbered(4 * lanes * 3)
    check(server.embed(texts), texts)
    assert server.peak == lanes


def test_several_runs_share_the_lanes():
    server = Server(lambda *_: time.sleep(0.01), lanes=3)
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(server.embed, numbered(40)) for _ in range(4)]
        for run in runs:
            check(run.result(WAIT), numbered(40))
    assert server.peak <= 3


def test_answers_that_overtake_each_other_come_back_in_order():
    server = Server(lambda number, _texts: time.sleep(0.05 if number % 4 == 0 else 0))
    texts = numbered(60)
    check(server.embed(texts), texts)
    assert server.texts == texts


@pytest.mark.parametrize(
    ("texts", "limits", "sizes"),
    [
        (["x"] * 10, RequestLimits(512, max_items=4), [4, 4, 2]),
        (["x" * 40] * 4, RequestLimits(512, max_bytes=100), [2, 2]),
        (["é" * 40] * 4, RequestLimits(512, max_bytes=100), [1, 1, 1, 1]),
        (["x" * 40] * 5, RequestLimits(512, max_tokens=20), [2, 2, 1]),
        (["语" * 10] * 4, RequestLimits(512, max_tokens=20), [2, 2]),
        (["x" * 400, "a", "b"], RequestLimits(512, max_bytes=100), [1, 2]),
        ([], RequestLimits(512), []),
    ],
)
def test_a_request_is_bounded_by_items_bytes_and_tokens(texts, limits, sizes):
    cut = list(batches(texts, limits))
    assert [len(batch) for batch in cut] == sizes
    assert list(itertools.chain(*cut)) == list(range(len(texts)))


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abc", 1), ("abcde", 2), ("语言", 2), ("ab语", 2)])
def test_tokens_are_guessed_by_bytes_where_a_text_is_ascii(text, tokens):
    assert estimate_tokens(text) == tokens


def test_a_server_that_minds_the_size_gets_no_second_request_of_it():
    def too_long(_number, texts):
        if sum(map(len, texts)) > 12_000:
            raise RequestRefused("too many tokens overall", too_many=False)

    server = Server(too_long, items=1_000, lanes=1)
    texts = [f"{number:03} " + "x" * 996 for number in range(64)]
    check(server.embed(texts), texts)
    assert MIN_BYTES <= server.limits.max_bytes <= 12_000
    before = len(server.requests)
    check(server.embed(texts), texts)
    assert all(sum(map(len, sent)) <= 12_000 for sent in server.requests[before:])


def test_one_bad_text_makes_no_request_smaller():
    def refuse(_number, texts):
        if "text 007" in texts:
            raise RequestRefused("bad input", too_many=False)

    server = Server(refuse, items=64)
    answers = server.embed(numbered(64))
    assert [place for place, answer in enumerate(answers) if isinstance(answer, EmbeddingFailure)] == [7]
    assert not answers[7].transient
    assert (server.limits.max_bytes, server.limits.max_items) == (MAX_BYTES, 64)


def test_a_text_is_not_blamed_for_a_vector_that_was_asked_for_before_it():
    """The server goes bad while a request is under way: its vector says nothing of what is refused meanwhile."""
    refused = threading.Event()

    def go_bad(_number, texts):
        if texts == ("early",):
            assert refused.wait(WAIT)
            return
        refused.set()
        raise RequestRefused("no such model", too_many=False)

    server = Server(go_bad, items=1, lanes=2)
    answers = server.embed(["early", "late"])
    check(answers[:1], ["early"])
    assert (answers[1].transient, answers[1].reason) == (True, "no such model")
    assert server.requests[-1] == (PLAIN_TEXT,)


@pytest.mark.parametrize("error", [EmbeddingUnavailable("it is down"), EmbeddingQuotaExceeded("no credit")])
def test_a_provider_that_fails_gets_nothing_more_and_what_is_under_way_counts(error):
    slow = threading.Event()

    def fail(number, texts):
        if number == 1:
            slow.set()
            raise error
        assert slow.wait(WAIT)
        time.sleep(0.1)

    server = Server(fail, lanes=3)
    answers = server.embed(numbered(100))
    made = [answer for answer in answers if not isinstance(answer, EmbeddingFailure)]
    assert len(server.requests) <= 4
    assert len(made) == 4 * (len(server.requests) - 1)
    assert {(a.transient, a.reason) for a in answers if isinstance(a, EmbeddingFailure)} == {(True, error.message)}


def test_a_provider_that_fails_at_once_raises():
    def fail(*_):
        raise EmbeddingQuotaExceeded("no credit")

    with pytest.raises(EmbeddingQuotaExceeded, match="no credit"):
        Server(fail).embed(numbered(30))


class Hanging:
    """Holds every request from number `after` on until `go`, and stops the run once `lanes` of them hang."""

    def __init__(self, after, lanes):
        self._after = after
        self._lanes = lanes
        self._hanging = 0
        self._lock = threading.Lock()
        self.go = threading.Event()

    def __call__(self, number, _texts):
        if number >= self._after:
            with self._lock:
                self._hanging += 1
            assert self.go.wait(WAIT)

    def all_hang(self):
        return self._hanging >= self._lanes and not self.go.is_set()


@pytest.mark.parametrize("after", [0, 6])
def test_a_stopped_run_ends_at_once_while_its_requests_hang(after):
    hanging = Hanging(after, lanes=4)
    server = Server(hanging)
    began = time.monotonic()
    answers = server.embed(numbered(100), hanging.all_hang)
    assert time.monotonic() - began < WAIT / 2
    assert sum(not isinstance(answer, EmbeddingFailure) for answer in answers) == 4 * after
    assert {answer.reason for answer in answers if isinstance(answer, EmbeddingFailure)} == {"stopped"}
    hanging.go.set()


def test_requests_in_progress_at_a_stop_are_not_repeated():
    hanging = Hanging(2, lanes=4)
    server = Server(hanging)
    texts = numbered(40)
    answers = server.embed(texts, hanging.all_hang)
    missing = [text for text, answer in zip(texts, answers, strict=True) if isinstance(answer, EmbeddingFailure)]
    assert len(missing) == 32
    # Two texts of a request in progress are no longer wanted.
    wanted = missing[2:]

    def go_on():
        """Let the server answer. Called after the run has taken over the requests in progress."""
        hanging.go.set()
        return False

    check(server.embed(wanted, go_on), wanted)
    assert server.texts == texts


def test_requests_that_failed_after_a_stop_are_repeated():
    gate = threading.Event()

    def fail_late(number, _texts):
        if number == 0:
            assert gate.wait(WAIT)
            raise EmbeddingUnavailable("it was down then")

    server = Server(fail_late, lanes=1)
    server.embed(numbered(4), lambda: bool(server.requests))
    gate.set()
    check(server.embed(numbered(4)), numbered(4))


def test_a_run_waits_for_the_lanes_that_an_earlier_one_still_holds():
    hanging = Hanging(0, lanes=2)
    server = Server(hanging, lanes=2)
    server.embed(numbered(8), hanging.all_hang)
    began = time.monotonic()
    other = [text.upper() for text in numbered(8)]
    answers = server.embed(other, lambda: time.monotonic() - began > 0.3)
    assert all(isinstance(answer, EmbeddingFailure) for answer in answers)
    assert len(server.requests) == 2
    hanging.go.set()
    check(server.embed(other), other)


HANGING = """
import threading
from memoryd_server.providers.batching import RequestLimits, embed_in_batches

begun = threading.Event()
def hang(texts):
    begun.set()
    threading.Event().wait()

answers = embed_in_batches(["a", "b"], RequestLimits(512), hang, begun.is_set)
print([answer.reason for answer in answers])
"""


def test_requests_that_hang_do_not_keep_a_process_from_ending():
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[0] == "['stopped', 'stopped']"
