"""When a backend that failed is tried again."""

from memoryd_server.qmd.fallback import FIRST_PAUSE_SECONDS, CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_breaker_is_closed_until_a_failure():
    breaker = CircuitBreaker(Clock())
    assert not breaker.open
    assert breaker.next_probe_seconds == 0


def test_the_pauses_double_up_to_the_most():
    clock = Clock()
    breaker = CircuitBreaker(clock)
    pauses = []
    for _ in range(6):
        breaker.failed("broken", 40.0)
        pauses.append(breaker.next_probe_seconds)
        clock.now += breaker.next_probe_seconds
        assert breaker.next_probe_seconds == 0
    assert pauses == [FIRST_PAUSE_SECONDS, 10, 20, 40, 40, 40]
    assert breaker.reason == "broken"


def test_a_success_closes_the_breaker_and_the_next_pause_is_short_again():
    breaker = CircuitBreaker(Clock())
    breaker.failed("a", 600)
    breaker.failed("b", 600)
    assert breaker.reason == "b"
    breaker.succeeded()
    assert (breaker.open, breaker.reason) == (False, "")
    breaker.failed("c", 600)
    assert breaker.next_probe_seconds == FIRST_PAUSE_SECONDS
