"""Concurrency and rate limits: which calls are refused, with which limit and retry time, and release of places."""

import contextlib

import pytest

from memoryd_server.access import admission
from memoryd_server.access.admission import CallLimits, RateLimiter
from memoryd_server.access.grants import ALL_AGENTS_GRANT, Grant
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


def test_a_health_watch_counts_for_its_own_token_alone():
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


def test_the_call_rate_of_a_token_refills_with_time():
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


def test_unread_replies_are_bounded_by_token_and_in_total():
    limiter = RateLimiterFixture(token_unread_reply_bytes=100, max_unread_reply_bytes=150)
    replies = lambda size: lambda grant: limiter.limiter.reply(grant, size, refusable=True)  # noqa: E731
    with limiter.held(replies(60), [ONE]):
        limiter.refused(replies(41), ONE, "tokenUnreadReplyBytes")
        with limiter.held(replies(40), [ONE]):
            limiter.refused(limiter.call, ONE, "tokenUnreadReplyBytes")
            limiter.refused(limiter.stream, ONE, "tokenUnreadReplyBytes")
            with limiter.call(OTHER), limiter.stream(ONE, about_health=True):
                pass
            limiter.refused(replies(51), ALL_AGENTS_GRANT, "maxUnreadReplyBytes")
            with limiter.held(replies(50), [ALL_AGENTS_GRANT]):
                limiter.refused(limiter.call, ALL_AGENTS_GRANT, "maxUnreadReplyBytes")
    assert limiter.limiter.reply_bytes == 0
    with limiter.call(ONE), limiter.call(ALL_AGENTS_GRANT):
        pass


def test_reply_that_is_the_only_one_is_not_refused():
    limiter = RateLimiterFixture(token_unread_reply_bytes=10, max_unread_reply_bytes=10)
    with limiter.limiter.reply(ONE, 11, refusable=True):
        assert limiter.limiter.reply_bytes == 11


def test_reply_that_must_not_be_repeated_is_counted_and_not_refused():
    limiter = RateLimiterFixture(token_unread_reply_bytes=10, max_unread_reply_bytes=10)
    with limiter.limiter.reply(ONE, 9, refusable=True), limiter.limiter.reply(ONE, 9, refusable=False):
        limiter.refused(limiter.call, ONE, "tokenUnreadReplyBytes")
    assert limiter.limiter.reply_bytes == 0
