"""File locks: taken without waiting, or within a limit, and never on a file that is no longer at its path."""

import errno
import fcntl
import os
import threading
from datetime import UTC, datetime

import pytest

from memoryd_server.access.token_store import TokenStore
from memoryd_server.errors import FileBusy, IndexBusy
from memoryd_server.system import FileLock, try_lock


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


@pytest.fixture
def lock(path):
    lock = FileLock(path)
    yield lock
    lock.release()


def test_try_lock_does_not_wait_for_a_held_lock(path, holder):
    with path.open() as other:
        assert not try_lock(other.fileno())
        fcntl.flock(holder, fcntl.LOCK_UN)
        assert try_lock(other.fileno())


def test_try_acquire_returns_false_until_the_holder_releases_the_lock(path, lock):
    other = FileLock(path)
    assert lock.try_acquire()
    assert lock.try_acquire()
    assert not other.try_acquire()
    lock.release()
    assert other.try_acquire()
    other.release()


def test_a_wait_ends_at_its_limit_or_when_stopped(lock, holder):
    for seconds, should_stop in ((0.1, lambda: False), (60, lambda: True)):
        with pytest.raises(TimeoutError):
            lock.wait(seconds, should_stop)


def test_wait_returns_immediately_if_the_lock_is_held_already(lock):
    lock.wait(0.1)
    lock.wait(0.1)


def test_a_lock_file_that_is_replaced_during_the_wait_is_opened_again(path, lock, holder):
    waiting = threading.Thread(target=lock.wait, args=(10,))
    waiting.start()
    path.unlink()
    waiting.join(10)
    assert not lock.is_lost
    with path.open() as other:
        assert not try_lock(other.fileno())


def test_wait_and_try_acquire_refuse_a_symbolic_link(path, lock, tmp_path):
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        lock.wait(0.1)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        lock.try_acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_in_place_of_a_lock_file_blocks_no_caller(path, lock):
    os.mkfifo(path)
    lock.wait(0.1)


def test_acquire_names_the_process_that_holds_the_lock(path, lock):
    lock.acquire()
    with pytest.raises(IndexBusy, match=str(os.getpid())):
        FileLock(path).acquire()


def test_a_removed_lock_file_is_a_lost_lock(path, lock):
    lock.acquire()
    assert not lock.is_lost
    path.unlink()
    assert lock.is_lost


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
