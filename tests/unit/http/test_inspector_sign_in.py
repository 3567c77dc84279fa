"""The sessions of the inspector and the throttle of failed sign-ins, by a clock of the test."""

import pytest

pytest.importorskip("mcp")

from memoryd_server.http.inspector_sign_in import AttemptLimit, InspectorSessions, SignInThrottle

ORIGIN = "http://127.0.0.1:7628"


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def opened(sessions, share="a", token=b"token"):
    return sessions.open(token, ORIGIN, share)


def test_a_session_is_found_by_its_id_until_it_is_closed(clock):
    sessions = InspectorSessions(clock)
    first, second = opened(sessions, token=b"one"), opened(sessions, token=b"two")
    assert first != second
    assert len(first) == 43
    assert (sessions.use(first).token, sessions.use(second).token) == (b"one", b"two")
    for unknown in ("", first[:-1], first + "a", "é\ud800"):
        assert sessions.use(unknown) is None
        sessions.close(unknown)
    sessions.close(first)
    assert sessions.use(first) is None
    assert sessions.use(second) is not None


def test_a_session_ends_after_its_time_although_it_is_used(clock):
    sessions = InspectorSessions(clock, seconds=100)
    session = opened(sessions)
    for _ in range(10):
        clock.now += 9.99
        assert sessions.use(session) is not None
    clock.now += 0.1
    assert sessions.use(session) is None
    assert len(sessions) == 0


def test_the_session_that_was_idle_longest_makes_room(clock):
    sessions = InspectorSessions(clock, most=4)
    first, second, third, fourth = (opened(sessions, share) for share in "abcd")
    assert sessions.use(first) is not None
    fifth = opened(sessions, "e")
    assert len(sessions) == 4
    assert sessions.use(second) is None
    assert all(sessions.use(each) is not None for each in (first, third, fourth, fifth))


def test_expired_sessions_make_room_before_others(clock):
    sessions = InspectorSessions(clock, most=2, seconds=100)
    opened(sessions, "a")
    clock.now += 50
    kept = opened(sessions, "b")
    clock.now += 60
    opened(sessions, "c")
    assert sessions.use(kept) is not None


def test_a_token_has_at_most_half_of_the_sessions(clock):
    sessions = InspectorSessions(clock, most=8)
    other = opened(sessions, "b")
    own = [opened(sessions) for _ in range(20)]
    assert len(sessions) == 5
    assert [sessions.use(each) is not None for each in own] == [False] * 16 + [True] * 4
    assert sessions.use(other) is not None


def test_a_session_does_not_show_its_token(clock):
    sessions = InspectorSessions(clock)
    assert "secret" not in repr(sessions.use(opened(sessions, token=b"secret")))


def attempts(throttle, address, count):
    """Return how many of these attempts the throttle allows."""
    return sum(throttle.take(address) == 0 for _ in range(count))


@pytest.fixture
def throttle(clock):
    return SignInThrottle(clock)


def test_an_address_has_five_attempts_and_then_one_each_twelve_seconds(throttle, clock):
    assert attempts(throttle, "192.0.2.1", 10) == 5
    assert throttle.take("192.0.2.1") == pytest.approx(12)
    clock.now += 11.9
    assert throttle.take("192.0.2.1") == pytest.approx(0.1)
    clock.now += throttle.take("192.0.2.1")
    assert attempts(throttle, "192.0.2.1", 10) == 1
    clock.now += 1_000_000
    assert attempts(throttle, "192.0.2.1", 10) == 5


def test_a_refused_attempt_does_not_extend_the_wait(throttle, clock):
    attempts(throttle, "192.0.2.1", 100)
    clock.now += 12
    assert throttle.take("192.0.2.1") == 0


def test_an_attempt_that_succeeds_does_not_count(throttle):
    for _ in range(100):
        assert throttle.take("192.0.2.1") == 0
        throttle.give_back("192.0.2.1")
    assert attempts(throttle, "192.0.2.1", 10) == 5
    throttle.give_back("192.0.2.2")
    assert attempts(throttle, "192.0.2.2", 10) == 5


def test_attempts_of_all_addresses_are_limited(throttle, clock):
    assert sum(attempts(throttle, f"192.0.2.{number}", 5) for number in range(20)) == 30
    assert throttle.take("198.51.100.1") == pytest.approx(1)
    clock.now += 10
    assert sum(attempts(throttle, f"198.51.100.{number}", 1) for number in range(20)) == 10


def test_the_addresses_of_an_ipv6_network_count_as_one(throttle):
    assert sum(attempts(throttle, f"2001:db8:0:1::{number:x}", 1) for number in range(10)) == 5
    assert attempts(throttle, "2001:db8:0:2::1", 10) == 5
    assert attempts(throttle, "fe80::1%eth0", 10) == 5
    assert attempts(throttle, "fe80::2%eth0", 10) == 0


def test_the_addresses_are_bounded(clock):
    throttle = SignInThrottle(clock)
    for number in range(5_000):
        address = f"10.0.{number // 256}.{number % 256}"
        throttle.take(address)
        clock.now += 0.3
        assert len(throttle) <= 256


def test_an_address_of_no_known_form_is_limited_too(throttle):
    assert attempts(throttle, "", 10) == attempts(throttle, "client", 10) == 5


def test_other_limits(clock):
    throttle = SignInThrottle(clock, of_address=AttemptLimit(1, 2), of_all=AttemptLimit(2, 100))
    assert attempts(throttle, "192.0.2.1", 3) == 1
    assert attempts(throttle, "192.0.2.2", 3) == 1
    assert throttle.take("192.0.2.3") == pytest.approx(100)
