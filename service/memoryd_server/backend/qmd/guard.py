"""Starts the guard process with the first group that it is to watch, and tells it of every group."""

import contextlib
import subprocess
import sys
import threading

from memoryd_server.backend.qmd import guard_script

_ENDING_SECONDS = 2.0


class Guard:
    """One guard process for all of a daemon's groups. Thread-safe.

    A guard that has died is replaced at the next registration, which tells the new one of every group.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def register(self, group: int) -> None:
        """From now on the group ends with the daemon.

        Raises:
            OSError: no guard can be started.
        """
        with self._lock:
            self._groups.add(group)
            try:
                told = self._alive()
                if told:
                    self._tell(f"+{group}\n")
            except OSError:
                told = False
            if not told:
                self._replace()

    def release(self, group: int) -> None:
        """The group has ended; its number may be given to others."""
        with self._lock:
            self._groups.discard(group)
            # A guard that has died is told everything when it is replaced.
            with contextlib.suppress(OSError):
                if self._process is not None:
                    self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the guard, and with it every group that is still registered."""
        with self._lock:
            process, self._process = self._process, None
            self._groups.clear()
        if process is not None:
            _end(process)

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _replace(self) -> None:
        if self._process is not None:
            _end(self._process)
        # -P and -S: it starts at once, and nothing in a folder can change what it does. A session of its own: Ctrl-C
        # at the terminal is for the daemon.
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and script
            [sys.executable, "-P", "-S", guard_script.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._tell("".join(f"+{group}\n" for group in sorted(self._groups)))

    def _tell(self, lines: str) -> None:
        assert self._process is not None  # noqa: S101 -- the callers see to it
        assert self._process.stdin is not None  # noqa: S101 -- a pipe was asked for
        self._process.stdin.write(lines.encode())
        self._process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 -- a pipe was asked for
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
