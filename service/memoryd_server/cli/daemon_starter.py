"""Start a daemon in the background, only once if several processes need it at the same time.

The process that locks a file in the state directory starts the daemon. The daemon inherits the lock and holds it until
it ends, even if the process that started it has exited. The other processes wait until the daemon runs, or until the
lock is released because the start failed; the file then contains the reason.
"""

import errno
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from memoryd_server.system import try_lock

START_SECONDS = 30.0
"""The longest wait for a daemon that starts."""

MOST_LOG_BYTES = 8 * 2**20
"""A log of this size is renamed before a daemon starts, and replaces the one that was renamed before."""

_POLL_SECONDS = 0.1
_MOST_SHOWN_LINES = 5
_MOST_SHOWN_CHARS = 1_500
_MOST_READ_BYTES = 64 * 1024
_MOST_RECORD_BYTES = 8_192
# How the command reports its own errors.
_ERROR_PREFIX = "memoryd: "


class StartError(Exception):
    """The daemon did not start; the message says why."""


class DaemonStarter:
    """Starts `memoryd serve` with `arguments` for one state directory. Every method blocks."""

    def __init__(self, state_dir: Path, arguments: Sequence[str], *, python: str = sys.executable) -> None:
        self._state_dir = state_dir
        # Without -P, a file in the current directory could take the place of a module.
        self._command = [python, "-P", "-m", "memoryd_server", "serve", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self.log = state_dir / "memoryd.log"

    def start(self, is_running: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Return when a daemon runs: one that runs already, that another process starts, or a new one.

        Raises:
            StartError: no daemon runs after `seconds`, or the daemon ended.
        """
        began, deadline = time.time(), time.monotonic() + seconds
        self.reap()
        try:
            self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = _open_regular(self._state_dir / "memoryd.start.lock", os.O_RDWR)
        except OSError as error:
            words = f"cannot start a daemon: {error.strerror}: {error.filename}; start `memoryd serve` yourself"
            raise StartError(words) from error
        try:
            self._start(lock, is_running, began, deadline)
        finally:
            os.close(lock)

    def _start(self, lock: int, is_running: Callable[[], bool], began: float, deadline: float) -> None:
        while not self._taken(lock):
            if is_running():
                return
            self._check(deadline)
            time.sleep(_POLL_SECONDS)
        if is_running():
            return
        # Other processes do not repeat a start that failed while they waited.
        failure = _read_failure(lock, since=began)
        if failure:
            raise StartError(failure)
        try:
            self._run(lock, is_running, deadline)
        except StartError as error:
            _write_failure(lock, str(error))
            raise

    def _taken(self, lock: int) -> bool:
        try:
            return try_lock(lock)
        except OSError as error:
            raise StartError(f"cannot lock {self._state_dir}/memoryd.start.lock: {error.strerror}") from error

    def _run(self, lock: int, is_running: Callable[[], bool], deadline: float) -> None:
        os.ftruncate(lock, 0)
        try:
            log, log_start = self._open_log()
            with os.fdopen(log, "wb") as output:
                self._process = subprocess.Popen(  # noqa: S603 -- this program itself
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        except OSError as error:
            raise StartError(f"cannot start a daemon: {error.strerror}: {error.filename}") from error
        while not is_running():
            code = self._process.poll()
            if code is not None:
                shown = _last_lines(self.log, log_start)
                raise StartError(f"the daemon did not start (exit status {code}): {shown}; its log is {self.log}")
            self._check(deadline)
            time.sleep(_POLL_SECONDS)

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise StartError(f"the daemon is not ready yet; its log is {self.log}. Try again in a few seconds")

    def _open_log(self) -> tuple[int, int]:
        """Return the log, open for appending, and its size."""
        with suppress(FileNotFoundError):
            if self.log.lstat().st_size > MOST_LOG_BYTES:
                self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        descriptor = _open_regular(self.log, os.O_WRONLY | os.O_APPEND)
        return descriptor, os.fstat(descriptor).st_size

    def reap(self) -> bool:
        """Let the system forget the daemon that this object started, if it has ended; return whether none runs."""
        return self._process is None or self._process.poll() is not None


def _open_regular(path: Path, flags: int) -> int:
    """Open a regular file, or create it. Without O_NONBLOCK, a named pipe in its place would block this thread.

    Raises:
        OSError: the file cannot be opened, is a symlink or is not a regular file.
    """
    safe = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | safe, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def _read_failure(lock: int, since: float) -> str:
    """Return why the last start failed, if it failed after `since` by the system's clock; otherwise an empty text."""
    with suppress(ValueError, KeyError, TypeError):
        record = json.loads(os.pread(lock, _MOST_RECORD_BYTES, 0))
        if float(record["failed_at"]) >= since:
            return str(record["message"])
    return ""


def _write_failure(lock: int, message: str) -> None:
    # A full disk has no room for it; then each process tries to start a daemon.
    with suppress(OSError):
        os.pwrite(lock, json.dumps({"failed_at": time.time(), "message": message}).encode(), 0)


def _last_lines(log: Path, start: int) -> str:
    """Return the last error that the daemon has printed, or else its last lines, as one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _MOST_READ_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "no log"
    # An error may have several lines, of which only the first one has the prefix.
    begin = max((at for at, line in enumerate(lines) if line.startswith(_ERROR_PREFIX)), default=None)
    shown = lines[-_MOST_SHOWN_LINES:] if begin is None else lines[begin : begin + _MOST_SHOWN_LINES]
    words = " ".join(line.strip() for line in shown).removeprefix(_ERROR_PREFIX)
    return words[:_MOST_SHOWN_CHARS] or "it printed nothing"
