"""Places and paces: who is refused, with which limit and when to come again, and that each place is given back."""

import contextlib

import pytest

from memoryd_server.access import admission
from memoryd_server.access.admission import CallLimits, RateLimiter
from memoryd_server.access.tokens import ALL_AGENTS_GRANT, Grant
from memoryd_server.errors import TooManyRequests

ONE = Grant(share="one")
OTHER = Grant(share="other")


class RateLimiterFixture:
    """An admission with a clock of its own, and what it holds at once."""

    def __init__(self, *, max_idle_shares=1_024, **limits):
        self.now = 100.0
        self.limiter = RateLimiter(CallLimits(**limits), lambda: self.now, max_idle_shares=max_idle_shares)

    def call(self, grant):
        return self.limiter.call(grant)

    def stream(self, grant, *, about_health=False):
        return self.limiter.stream(grant, about_health=about_health)

    def held(self, shape, grants):
        """Everything that is let in one after the other, held together."""
        held = contextlib.ExitStack()
        for grant in grants:
            held.enter_context(shape(grant))
        return held

    def refused(self, shape, grant, limit):
        with pytest.raises(TooManyRequests) as caught, shape(grant):
            pass
        assert caught.value.metadata == {"limit": limit}
        assert f"memoryd.limits.{limit}" in caught.value.message
        assert caught.value.retry_after_seconds > 0
        return caught.value


@pytest.mark.parametrize(
    ("shape", "total", "own"),
    [
        ("call", "max_concurrent_calls", "token_concurrent_calls"),
        ("stream", "max_concurrent_streams", "token_concurrent_streams"),
    ],
)
def test_a_token_has_its_share_and_leaves_the_others_theirs(shape, total, own):
    limiter = RateLimiterFixture(**{total: 4, own: 2})
    enter = getattr(limiter, shape)
    with limiter.held(enter, [ONE, ONE]):
        limiter.refused(enter, ONE, _key(own))
        with limiter.held(enter, [OTHER, ALL_AGENTS_GRANT]):
            assert (limiter.limiter.calls, limiter.limiter.streams) == ((4, 0) if shape == "call" else (0, 4))
            limiter.refused(enter, OTHER, _key(total))
            limiter.refused(enter, ALL_AGENTS_GRANT, _key(total))
    assert (limiter.limiter.calls, limiter.limiter.streams) == (0, 0)
    with limiter.held(enter, [ONE, ONE]):
        pass


def _key(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_the_owner_is_held_to_the_total_alone():
    limiter = RateLimiterFixture(max_concurrent_calls=3, token_concurrent_calls=1, token_calls_per_second=0.001)
    with limiter.held(limiter.call, [ALL_AGENTS_GRANT] * 3):
        limiter.refused(limiter.call, ALL_AGENTS_GRANT, "maxConcurrentCalls")
    for _ in range(50):
        with limiter.call(ALL_AGENTS_GRANT):
            pass


def test_calls_and_streams_do_not_take_each_others_places():
    limiter = RateLimiterFixture(max_concurrent_calls=1, max_concurrent_streams=1)
    with limiter.call(ONE), limiter.stream(ONE):
        limiter.refused(limiter.call, ONE, "maxConcurrentCalls")
        limiter.refused(limiter.stream, ONE, "maxConcurrentStreams")


def test_a_watch_on_the_health_takes_a_place_of_its_token_and_of_nobody_else():
    limiter = RateLimiterFixture(max_concurrent_streams=1, token_concurrent_streams=2)
    with (
        limiter.stream(ONE),
        limiter.stream(OTHER, about_health=True),
        limiter.stream(ALL_AGENTS_GRANT, about_health=True),
    ):
        assert limiter.limiter.streams == 1
        with (
            limiter.stream(ONE, about_health=True),
            pytest.raises(TooManyRequests),
            limiter.stream(ONE, about_health=True),
        ):
            pass


def test_what_a_token_may_call_in_a_second_comes_back_with_time():
    limiter = RateLimiterFixture(token_calls_per_second=10)
    burst = int(10 * admission.BURST_SECONDS)
    for _ in range(burst):
        with limiter.call(ONE):
            pass
    error = limiter.refused(limiter.call, ONE, "tokenCallsPerSecond")
    assert error.retry_after_seconds == pytest.approx(0.1)
    with limiter.call(OTHER):
        pass
    limiter.now += error.retry_after_seconds
    with limiter.stream(ONE):
        limiter.refused(limiter.call, ONE, "tokenCallsPerSecond")
    limiter.now += 1000
    for _ in range(burst):
        with limiter.call(ONE):
            pass
    limiter.refused(limiter.call, ONE, "tokenCallsPerSecond")


def test_a_refused_call_is_not_counted_against_the_rate():
    limiter = RateLimiterFixture(token_calls_per_second=1)
    for _ in range(int(admission.BURST_SECONDS)):
        with limiter.call(ONE):
            pass
    waits = [limiter.refused(limiter.call, ONE, "tokenCallsPerSecond").retry_after_seconds for _ in range(5)]
    assert waits == [pytest.approx(1.0)] * 5


def test_a_rate_below_one_still_lets_a_call_in():
    limiter = RateLimiterFixture(token_calls_per_second=0.1)
    with limiter.call(ONE):
        pass
    assert limiter.refused(limiter.call, ONE, "tokenCallsPerSecond").retry_after_seconds == pytest.approx(10)


def test_limits_may_change_while_calls_are_under_way():
    limiter = RateLimiterFixture(max_concurrent_calls=1)
    with limiter.call(ONE):
        limiter.limiter.limits = CallLimits(max_concurrent_calls=2)
        with limiter.call(ONE):
            limiter.limiter.limits = CallLimits(max_concurrent_calls=1)
            limiter.refused(limiter.call, ONE, "maxConcurrentCalls")
    with limiter.call(ONE):
        pass


def test_tokens_that_are_quiet_are_forgotten():
    limiter = RateLimiterFixture(max_idle_shares=3, token_calls_per_second=0.5, token_concurrent_calls=1)
    with limiter.call(ONE):
        for number in range(20):
            limiter.now += 10
            with limiter.call(Grant(share=str(number))):
                pass
        assert len(limiter.limiter._shares) <= 4
        limiter.refused(limiter.call, ONE, "tokenConcurrentCalls")
