"""Places and paces: who is refused, with which limit and when to come again, and that each place is given back."""

import contextlib

import pytest

from memoryd_server.access import admission
from memoryd_server.access.admission import CallLimits, RateLimiter
from memoryd_server.access.tokens import ALL_AGENTS_GRANT, Grant
from memoryd_server.errors import TooManyRequests

ONE = Grant(share="one")
OTHER = Grant(share="other")


class Door:
    """An admission with a clock of its own, and what it holds at once."""

    def __init__(self, **limits):
        self.now = 100.0
        self.admission = RateLimiter(CallLimits(**limits), lambda: self.now)

    def call(self, grant):
        return self.admission.call(grant)

    def stream(self, grant, *, about_health=False):
        return self.admission.stream(grant, about_health=about_health)

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
    door = Door(**{total: 4, own: 2})
    enter = getattr(door, shape)
    with door.held(enter, [ONE, ONE]):
        door.refused(enter, ONE, _key(own))
        with door.held(enter, [OTHER, ALL_AGENTS_GRANT]):
            assert (door.admission.calls, door.admission.streams) == ((4, 0) if shape == "call" else (0, 4))
            door.refused(enter, OTHER, _key(total))
            door.refused(enter, ALL_AGENTS_GRANT, _key(total))
    assert (door.admission.calls, door.admission.streams) == (0, 0)
    with door.held(enter, [ONE, ONE]):
        pass


def _key(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_the_owner_is_held_to_the_total_alone():
    door = Door(max_concurrent_calls=3, token_concurrent_calls=1, token_calls_per_second=0.001)
    with door.held(door.call, [ALL_AGENTS_GRANT] * 3):
        door.refused(door.call, ALL_AGENTS_GRANT, "maxConcurrentCalls")
    for _ in range(50):
        with door.call(ALL_AGENTS_GRANT):
            pass


def test_calls_and_streams_do_not_take_each_others_places():
    door = Door(max_concurrent_calls=1, max_concurrent_streams=1)
    with door.call(ONE), door.stream(ONE):
        door.refused(door.call, ONE, "maxConcurrentCalls")
        door.refused(door.stream, ONE, "maxConcurrentStreams")


def test_a_watch_on_the_health_takes_a_place_of_its_token_and_of_nobody_else():
    door = Door(max_concurrent_streams=1, token_concurrent_streams=2)
    with door.stream(ONE), door.stream(OTHER, about_health=True), door.stream(ALL_AGENTS_GRANT, about_health=True):
        assert door.admission.streams == 1
        with door.stream(ONE, about_health=True), pytest.raises(TooManyRequests), door.stream(ONE, about_health=True):
            pass


def test_what_a_token_may_call_in_a_second_comes_back_with_time():
    door = Door(token_calls_per_second=10)
    burst = int(10 * admission.BURST_SECONDS)
    for _ in range(burst):
        with door.call(ONE):
            pass
    error = door.refused(door.call, ONE, "tokenCallsPerSecond")
    assert error.retry_after_seconds == pytest.approx(0.1)
    with door.call(OTHER):
        pass
    door.now += error.retry_after_seconds
    with door.stream(ONE):
        door.refused(door.call, ONE, "tokenCallsPerSecond")
    door.now += 1000
    for _ in range(burst):
        with door.call(ONE):
            pass
    door.refused(door.call, ONE, "tokenCallsPerSecond")


def test_a_refused_call_is_not_counted_against_the_rate():
    door = Door(token_calls_per_second=1)
    for _ in range(int(admission.BURST_SECONDS)):
        with door.call(ONE):
            pass
    waits = [door.refused(door.call, ONE, "tokenCallsPerSecond").retry_after_seconds for _ in range(5)]
    assert waits == [pytest.approx(1.0)] * 5


def test_a_rate_below_one_still_lets_a_call_in():
    door = Door(token_calls_per_second=0.1)
    with door.call(ONE):
        pass
    assert door.refused(door.call, ONE, "tokenCallsPerSecond").retry_after_seconds == pytest.approx(10)


def test_limits_may_change_while_calls_are_under_way():
    door = Door(max_concurrent_calls=1)
    with door.call(ONE):
        door.admission.limits = CallLimits(max_concurrent_calls=2)
        with door.call(ONE):
            door.admission.limits = CallLimits(max_concurrent_calls=1)
            door.refused(door.call, ONE, "maxConcurrentCalls")
    with door.call(ONE):
        pass


def test_tokens_that_are_quiet_are_forgotten(monkeypatch):
    monkeypatch.setattr(admission, "_MAX_SHARES", 3)
    door = Door(token_calls_per_second=0.5, token_concurrent_calls=1)
    with door.call(ONE):
        for number in range(20):
            door.now += 10
            with door.call(Grant(share=str(number))):
                pass
        assert len(door.admission._shares) <= 4
        door.refused(door.call, ONE, "tokenConcurrentCalls")
