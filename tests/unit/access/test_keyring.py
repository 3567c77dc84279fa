import hmac
import io
import os
from datetime import UTC, datetime, timedelta

import pytest

from memoryd_server.access import private_files
from memoryd_server.access import tokens as keyring_module
from memoryd_server.access.grants import Grant
from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenVerifier
from memoryd_server.errors import SettingsError
from memoryd_server.observe.log import make_log

NOW = datetime(2026, 5, 4, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ring(files, clock):
    return TokenVerifier(files, clock, make_log("debug", "json", io.StringIO()))


def opened(ring, token):
    ring.refresh()
    return ring.grant(token.encode())


def test_each_token_opens_what_its_record_says(ring, files):
    store = TokenStore(files.store)
    _, every = store.add("", None, NOW, None)
    _, some = store.add("", ["ada", "bob"], NOW, None)
    assert opened(ring, every) == Grant()
    assert opened(ring, some) == Grant(frozenset({"ada", "bob"}))
    assert opened(ring, some[:-1]) is None
    assert opened(ring, "") is None


def test_a_token_opens_nothing_from_the_second_it_expires(ring, files, clock):
    _, token = TokenStore(files.store).add("", None, NOW, NOW + timedelta(seconds=10))
    clock.now = NOW + timedelta(seconds=9)
    assert opened(ring, token)
    clock.now = NOW + timedelta(seconds=10)
    assert opened(ring, token) is None


def test_a_token_is_compared_in_constant_time_with_every_other(ring, files, monkeypatch):
    store = TokenStore(files.store)
    made = [store.add("", None, NOW, None)[1] for _ in range(5)]
    ring.refresh()
    compared = []

    class Counting:
        @staticmethod
        def compare_digest(one, other):
            compared.append(len(one) == len(other) == 32)
            return hmac.compare_digest(one, other)

    monkeypatch.setattr(keyring_module, "hmac", Counting)
    for token in (made[0], made[4], "wrong", "x" * 10_000):
        compared.clear()
        ring.grant(token.encode())
        assert compared == [True] * 5


def test_files_are_read_again_only_when_they_change(ring, files, monkeypatch):
    files.plain.parent.mkdir()
    files.plain.write_text("one\n")
    files.plain.chmod(0o600)
    reads = []
    read = keyring_module.read_tokens
    monkeypatch.setattr(keyring_module, "read_tokens", lambda path: reads.append(path) or read(path))
    # Otherwise what has just changed is read again, since a further change within the clock's tick would not show.
    monkeypatch.setattr(private_files, "_SETTLED_NS", 0)
    for _ in range(5):
        assert opened(ring, "one") == Grant()
    assert len(reads) == 1


def test_a_change_within_a_tick_of_the_clock_is_seen(ring, files):
    files.plain.parent.mkdir()
    for token in ("aaaa", "bbbb", "cccc"):
        files.plain.write_text(token)
        files.plain.chmod(0o600)
        assert opened(ring, token) == Grant()
    assert opened(ring, "aaaa") is None


@pytest.mark.parametrize("content", ["# nothing\n", "\n", ""])
def test_an_empty_token_opens_nothing(ring, files, content):
    files.plain.parent.mkdir()
    files.plain.write_text(content)
    files.plain.chmod(0o600)
    for token in ("", " ", "# nothing"):
        assert opened(ring, token) is None


def test_the_first_token_is_made_once(ring, files):
    ring.open(for_tcp=True)
    token = files.plain.read_text()
    ring.open(for_tcp=True)
    assert files.plain.read_text() == token
    assert opened(ring, token.strip()) == Grant()


def test_no_token_is_made_for_a_socket(ring, files):
    ring.open(for_tcp=False)
    assert not files.plain.parent.exists()


def test_no_token_is_made_where_all_have_expired(ring, files):
    """Whoever lets tokens expire does not ask for one without end."""
    TokenStore(files.store).add("", None, NOW - timedelta(days=2), NOW - timedelta(days=1))
    ring.open(for_tcp=True)
    assert not files.plain.exists()


def test_one_bad_file_leaves_the_other_in_force(ring, files):
    _, token = TokenStore(files.store).add("", None, NOW, None)
    files.plain.write_text("plain")
    files.plain.chmod(0o644)
    assert opened(ring, token) == Grant()
    assert opened(ring, "plain") is None
    assert "chmod 600" in ring.problem
    files.plain.chmod(0o600)
    assert opened(ring, "plain") == Grant()
    assert ring.problem == ""


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_token_file_that_is_no_regular_file_is_refused_without_blocking(ring, files, make):
    files.plain.parent.mkdir()
    make(files.plain, 0o600)
    with pytest.raises(SettingsError, match="regular file"):
        ring.open(for_tcp=True)
