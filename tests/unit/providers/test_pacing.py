import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers import pacing
from memoryd_server.providers.pacing import (
    CallerStopped,
    RateLimited,
    Throttle,
    TransientFailure,
    WaitLimit,
    retry_after,
)

ENDLESS = WaitLimit(math.inf, lambda: False)
WAIT = 20


def within(seconds):
    return WaitLimit(time.monotonic() + seconds, lambda: False)


class Call:
    """Raises each of `failures` once, in order, then returns. `times` are those of its calls."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.times = []

    def __call__(self):
        self.times.append(time.monotonic())
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    def pauses(self):
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def quick(name="p", **options):
    """Return a throttle with short pauses."""
    return Throttle(name, **{"first_pause_seconds": 0.02, "longest_pause_seconds": 0.1, **options})


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (1.0, 1.0)])
def test_pauses_double_up_to_a_bound_and_jitter_takes_at_most_half(jitter, share):
    call = Call(*[RateLimited("busy")] * 5)
    assert quick(jitter=lambda: jitter).attempt(call, ENDLESS) == "done"
    wanted = [share * pause for pause in (0.02, 0.04, 0.08, 0.1, 0.1)]
    assert all(pause >= least for pause, least in zip(call.pauses(), wanted, strict=True))
    assert sum(call.pauses()) < WAIT / 4


def test_the_pauses_are_those_that_were_promised():
    assert (pacing.FIRST_PAUSE_SECONDS, pacing.LONGEST_PAUSE_SECONDS) == (0.5, 8.0)


@pytest.mark.parametrize(
    ("failure", "tries"),
    [(TransientFailure("down"), 1 + pacing.RETRIES), (RateLimited("busy"), 1 + pacing.RATE_LIMIT_RETRIES)],
)
def test_a_call_that_never_succeeds_is_given_up(failure, tries):
    call = Call(*[failure] * 50)
    pacer = quick()
    with pytest.raises(EmbeddingUnavailable, match=f"tried {tries} times"):
        pacer.attempt(call, ENDLESS)
    assert (len(call.times), pacer.retries) == (tries, tries - 1)


def test_failures_of_changing_kinds_are_given_up_as_well():
    kinds = [RateLimited("busy"), TransientFailure("down")] * 20
    with pytest.raises(EmbeddingUnavailable):
        quick().attempt(Call(*kinds[1:]), ENDLESS)


@pytest.mark.parametrize("asked", [0.3, None])
def test_a_cooldown_is_shared_by_all_who_call(asked):
    pauses = {"first_pause_seconds": 0.3, "longest_pause_seconds": 0.3} if asked is None else {}
    pacer = quick(jitter=lambda: 1.0, **pauses)
    first = Call(RateLimited("busy", asked))
    others = [Call() for _ in range(4)]
    with ThreadPoolExecutor(5) as threads:
        running = [threads.submit(pacer.attempt, first, ENDLESS)]
        while not pacer.retries:
            time.sleep(0.001)
        running += [threads.submit(pacer.attempt, call, ENDLESS) for call in others]
        assert [run.result(WAIT) for run in running] == ["done"] * 5
    assert all(call.times[-1] - first.times[0] >= 0.3 for call in (first, *others))


def test_a_waiting_call_respects_a_later_cooldown():
    pacer = quick()
    early, late = Call(RateLimited("busy", 0.1)), Call(RateLimited("busy", 0.5))
    both = threading.Barrier(2)

    def after_both(call):
        failing = bool(call.failures)
        if failing:
            both.wait(WAIT)
        return call()

    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(pacer.attempt, lambda c=call: after_both(c), ENDLESS) for call in (early, late)]
        assert [run.result(WAIT) for run in runs] == ["done"] * 2
    assert early.times[-1] - late.times[0] >= 0.5


def test_a_server_that_is_down_for_one_call_holds_up_no_other():
    pacer = quick(first_pause_seconds=60.0, longest_pause_seconds=60.0)
    with ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(pacer.attempt, Call(TransientFailure("reset")), ENDLESS)
        while not pacer.retries:
            time.sleep(0.001)
        assert pacer.attempt(Call(), within(5)) == "done"
        pacer.close()
        with pytest.raises(EmbeddingUnavailable, match="closed"):
            stuck.result(WAIT)


def test_turns_that_others_take_do_not_count_as_failures():
    pacer = quick()
    others = Call()

    class Overtaken(Call):
        def __call__(self):
            pacer.attempt(others, ENDLESS)
            return super().__call__()

    call = Overtaken(*[RateLimited("busy")] * 3 * pacing.RATE_LIMIT_RETRIES)
    assert pacer.attempt(call, ENDLESS) == "done"


def test_requests_are_spread_over_the_minute():
    pacer = Throttle("p", requests_per_minute=600)
    call = Call()
    with ThreadPoolExecutor(4) as threads:
        for run in [threads.submit(pacer.attempt, call, ENDLESS) for _ in range(6)]:
            run.result(WAIT)
    assert max(call.times) - min(call.times) >= 5 * 0.1 - 0.02


def test_a_question_does_not_wait_for_its_turn_and_the_others_wait_for_it():
    pacer = Throttle("p", requests_per_minute=120)
    calls = [Call() for _ in range(3)]
    began = time.monotonic()
    pacer.attempt(calls[0], ENDLESS)
    pacer.attempt(calls[1], within(0.4))
    asked = time.monotonic()
    pacer.attempt(calls[2], ENDLESS)
    assert asked - began < 0.45
    assert calls[2].times[0] - began >= 0.95


@pytest.mark.parametrize(
    ("pacer", "failures"), [(Throttle("p", requests_per_minute=1), []), (Throttle("p"), [RateLimited("busy", 60)])]
)
def test_a_caller_who_stops_waits_no_longer(pacer, failures):
    with suppress(EmbeddingUnavailable):
        pacer.attempt(Call(*failures), within(1))
    began = time.monotonic()
    with pytest.raises(CallerStopped):
        pacer.attempt(Call(), WaitLimit(math.inf, lambda: time.monotonic() - began > 0.1))
    assert time.monotonic() - began < WAIT / 4


def test_closing_ends_every_wait():
    pacer = Throttle("p", requests_per_minute=1)
    pacer.attempt(Call(), ENDLESS)
    threading.Timer(0.1, pacer.close).start()
    with pytest.raises(EmbeddingUnavailable, match="closed"):
        pacer.attempt(Call(), ENDLESS)


@pytest.mark.parametrize("asked", [301.0, 1e12])
def test_a_server_that_asks_for_too_long_is_not_waited_for(asked):
    pacer = Throttle("p")
    with pytest.raises(EmbeddingUnavailable, match="busy") as raised:
        pacer.attempt(Call(RateLimited("busy", asked)), ENDLESS)
    assert raised.value.retry_after_seconds == asked
    assert pacer._not_before <= time.monotonic() + pacing.MAX_COOLDOWN_SECONDS
    with pytest.raises(EmbeddingUnavailable, match="requested a pause"):
        pacer.attempt(Call(), ENDLESS)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("10", 10.0), ("0.5", 0.5), ("-3", 0.0), ("inf", None), ("nan", None), ("soon", None), ("", None), (None, None)],
)
def test_retry_after_is_read_as_seconds(value, seconds):
    assert retry_after(value) == seconds


def test_retry_after_is_read_as_a_date():
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("Fri, 21 Oct 2999 07:28:00 GMT") == pacing.MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize("value", ["1e300", "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"])
def test_a_time_that_no_duration_can_hold_is_bounded_or_ignored(value):
    assert (retry_after(value) or 0.0) <= pacing.MAX_RETRY_AFTER_SECONDS
