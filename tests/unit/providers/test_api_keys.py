"""Several keys of one provider: the next one is used when the server limits the one before."""

import time

import pytest

from fake_providers import fake_provider
from fake_providers.faults import Refused
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers import api_keys
from memoryd_server.providers.api_keys import ApiKeyPool
from memoryd_server.providers.gemini import gemini
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.providers.provider import EmbeddingFailure, RemoteConfig

KEYS = ("key-one-0123", "key-two-0123", "key-three-0123")
QUICK = ThrottleConfig(first_pause_seconds=0.01)


@pytest.fixture
def server():
    with fake_provider("gemini", KEYS) as server:
        server.tired = {}
        inner = server.check_key

        def check_key(key):
            inner(key)
            if key in server.tired:
                raise Refused(server.tired[key])

        server.check_key = check_key
        yield server


@pytest.fixture
def provider(server):
    provider = gemini(RemoteConfig("gemini", server.model, server.url, (", ".join(KEYS[:2]), KEYS[2]), pace=QUICK))
    yield provider
    provider.close()


def used(server):
    return [server.key_of(request) for request in server.requests]


def embedded(provider, text="a"):
    (answer,) = provider.embed_documents([text], lambda: False)
    return not isinstance(answer, EmbeddingFailure)


def test_the_first_key_is_used_until_it_is_limited_and_rests_then(server, provider):
    assert embedded(provider)
    server.tired[KEYS[0]] = server.limited(seconds=30)
    assert embedded(provider)
    assert embedded(provider)
    assert used(server) == [KEYS[0], KEYS[0], KEYS[1], KEYS[1]]


def test_a_rested_key_is_used_again(server, provider):
    server.tired[KEYS[0]] = server.limited(seconds=1)
    assert embedded(provider)
    server.tired.clear()
    until = time.monotonic() + 20
    while used(server)[-1] != KEYS[0]:
        assert time.monotonic() < until
        time.sleep(0.05)
        assert embedded(provider)
    assert set(used(server)[1:-1]) == {KEYS[1]}


def test_a_question_finds_another_key_within_its_deadline(server, provider):
    server.tired = {key: server.limited(seconds=60) for key in KEYS[:2]}
    provider.embed_query("a", time.monotonic() + 5)
    assert used(server) == list(KEYS)


def test_when_all_keys_are_limited_the_server_is_waited_for(server, provider):
    server.tired = {key: server.limited(seconds=60) for key in KEYS}
    with pytest.raises(EmbeddingUnavailable, match="HTTP 429") as caught:
        provider.embed_query("a", time.monotonic() + 2)
    assert caught.value.retry_after_seconds == 60
    assert used(server) == list(KEYS)


def test_another_key_has_a_quota_of_its_own(server, provider):
    server.tired = {key: server.quota() for key in KEYS[:2]}
    assert embedded(provider)
    assert used(server) == list(KEYS)
    server.tired[KEYS[2]] = server.quota()
    with pytest.raises(EmbeddingQuotaExceeded):
        embedded(provider)


def test_a_key_that_is_refused_is_not_passed_over(server, provider):
    server.keys.discard(KEYS[0])
    with pytest.raises(EmbeddingUnavailable, match="refuses the key"):
        embedded(provider)
    assert used(server) == [KEYS[0]]


def test_no_key_shows_when_all_fail(server, provider):
    server.tired = {key: server.failing(503) for key in KEYS}
    for key in KEYS:
        server.tired[key].body["error"]["message"] = f"cannot serve {' '.join(KEYS)}"
    with pytest.raises(EmbeddingUnavailable) as caught:
        embedded(provider)
    assert not [key for key in KEYS if key in caught.value.message]


def test_a_ring_without_keys_has_one_without_headers():
    ring = ApiKeyPool([])
    assert (len(ring), ring.current(), ring.header(0)) == (1, 0, {})
    assert not ring.cool_down(0, 10)


def test_where_all_rest_the_first_to_wake_is_taken():
    ring = ApiKeyPool([{"x": "a"}, {"x": "b"}])
    assert ring.cool_down(0, 60)
    assert ring.current() == 1
    assert not ring.cool_down(1, 30)
    assert ring.current() == 1
    assert api_keys.QUOTA_COOLDOWN_SECONDS > api_keys.KEY_COOLDOWN_SECONDS


@pytest.mark.attacks
@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_a_key_is_tried_again_after_an_hour_however_long_a_pause_was_requested(seconds):
    keys = ApiKeyPool([{"a": "one"}, {"a": "two"}])
    keys.cool_down(0, seconds)
    keys.cool_down(1, 3_601.0)
    assert keys.current() == 0
