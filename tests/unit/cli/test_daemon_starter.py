"""Starting a daemon from several processes. A shell script takes the place of the daemon."""

import fcntl
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from memoryd_server.cli.daemon_starter import MOST_LOG_BYTES, DaemonStarter, StartError
from waiting import wait_until

READY = """
echo start >> "$0.starts"
echo $$ > "$0.pid"
exec sleep 60
"""
FAILING = """
echo start >> "$0.starts"
echo '{"event": "a line of the log"}'
echo 'memoryd: the settings cannot be used:' >&2
echo '  listen: is not an address' >&2
exit 2
"""


class Script:
    """A program that stands for the daemon."""

    def __init__(self, folder):
        self._file = folder / "daemon"
        self.state = folder / "state"
        self._starters = []

    def write(self, text):
        self._file.write_text("#!/bin/sh\n" + text)
        self._file.chmod(0o700)
        return self

    def starter(self, *arguments):
        self._starters.append(DaemonStarter(self.state, arguments, python=str(self._file)))
        return self._starters[-1]

    @property
    def starts(self):
        file = self._file.with_name("daemon.starts")
        return file.read_text().count("start") if file.exists() else 0

    @property
    def pid(self):
        file = self._file.with_name("daemon.pid")
        return int(file.read_text() or 0) if file.exists() else 0

    def is_ready(self):
        return bool(self.pid)

    def end(self):
        """End the last daemon; its starters forget it."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            wait_until(lambda: all(starter.reap() for starter in self._starters))


@pytest.fixture
def script(tmp_path):
    script = Script(tmp_path)
    yield script
    script.end()


def start_many(script, count=8):
    """Start from `count` processes at a time, as far as locks of files see it; return the errors."""
    barrier = threading.Barrier(count)

    def start(_):
        barrier.wait()
        try:
            script.starter().start(script.is_ready, 20)
        except StartError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def is_locked(script):
    with (script.state / "memoryd.start.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_one_of_many_processes_starts_the_daemon_in_a_session_of_its_own(script):
    script.write(READY)
    assert start_many(script) == [""] * 8
    assert script.starts == 1
    assert os.getsid(script.pid) == script.pid
    assert script.state.stat().st_mode & 0o777 == 0o700


def test_the_daemon_holds_the_lock_until_it_ends(script):
    script.write(READY).starter().start(script.is_ready, 20)
    assert is_locked(script)
    script.end()
    assert not is_locked(script)


def test_a_start_that_fails_is_not_repeated_by_the_processes_that_waited(script):
    script.write(FAILING)
    errors = start_many(script)
    assert set(errors) == {errors[0]}
    assert "exit status 2" in errors[0]
    assert "listen: is not an address" in errors[0]
    assert "a line of the log" not in errors[0]
    assert script.starts < 8


def test_a_later_start_is_tried_again(script):
    starter = script.write(FAILING).starter()
    for count in (1, 2):
        with pytest.raises(StartError, match="is not an address"):
            starter.start(script.is_ready, 20)
        assert script.starts == count
    script.write(READY)
    starter.start(script.is_ready, 20)


def test_a_running_daemon_is_not_started_again(script):
    script.write(READY).starter().start(lambda: True, 20)
    assert script.starts == 0


def test_a_daemon_that_does_not_become_ready_is_reported(script):
    script.write(READY)
    with pytest.raises(StartError, match="not ready"):
        script.starter().start(lambda: False, 0.5)
    wait_until(script.is_ready)


def test_a_large_log_is_replaced_and_a_link_is_not_followed(script, tmp_path):
    script.state.mkdir()
    log = script.state / "memoryd.log"
    log.write_bytes(b"x" * (MOST_LOG_BYTES + 1))
    script.write(READY).starter().start(script.is_ready, 20)
    assert log.stat().st_size < 1_000
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.with_name("memoryd.log.1").stat().st_size > MOST_LOG_BYTES
    script.end()
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match=r"memoryd\.log"):
        script.starter().start(lambda: False, 20)


@pytest.mark.parametrize("name", ["memoryd.log", "memoryd.start.lock"])
def test_a_named_pipe_in_place_of_a_file_is_an_error_and_does_not_block(script, name):
    starter = script.write(READY).starter()
    script.state.mkdir()
    os.mkfifo(script.state / name)
    starting = ThreadPoolExecutor(1).submit(starter.start, lambda: False, 5)
    with pytest.raises(StartError, match="cannot start a daemon"):
        starting.result(10)
    assert script.starts == 0


def test_a_state_directory_that_cannot_be_written_is_reported(script, tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StartError, match="memoryd serve"):
        script.write(READY).starter().start(lambda: False, 20)
