"""Locks of files: taken without waiting, or within a limit, and never on a file that is no longer at its path."""

import fcntl
import os
import threading
from datetime import UTC, datetime

import pytest

from memoryd_server.access import TokenStore
from memoryd_server.errors import FileBusy
from memoryd_server.locks import open_locked, try_lock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.lock"


@pytest.fixture
def holder(path):
    """A descriptor that holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def test_a_held_lock_is_not_waited_for(path, holder):
    with path.open() as other:
        assert not try_lock(other.fileno())
        fcntl.flock(holder, fcntl.LOCK_UN)
        assert try_lock(other.fileno())


def test_a_wait_ends_with_its_limit_or_when_it_is_told_to(path, holder):
    for seconds, should_stop in ((0.1, lambda: False), (60, lambda: True)):
        with pytest.raises(TimeoutError):
            open_locked(path, seconds, should_stop)


def test_a_lock_file_that_is_replaced_during_the_wait_is_opened_again(path, holder):
    found = []
    waiting = threading.Thread(target=lambda: found.append(open_locked(path, 10)))
    waiting.start()
    path.unlink()
    waiting.join(10)
    (descriptor,) = found
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    os.close(descriptor)


def test_a_pipe_in_place_of_a_lock_file_holds_nobody(path):
    os.mkfifo(path)
    os.close(open_locked(path, 0.1))


def test_a_token_store_that_is_locked_is_left_alone_and_named(tmp_path):
    store = TokenStore(tmp_path / "tokens.json", lock_seconds=0.1)
    record, _ = store.add("first", None, datetime.now(UTC), None)
    with (tmp_path / "tokens.json.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FileBusy, match=r"tokens\.json\.lock"):
            store.add("second", None, datetime.now(UTC), None)
        with pytest.raises(FileBusy):
            store.revoke(record.token_id)
    assert [each.name for each in store.read()] == ["first"]
