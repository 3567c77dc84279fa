"""CommandRun: one command in a separate process group; ProcessGuard: ends the groups if the daemon dies.

A run blocks its thread until the command has ended. Both pipes are read as they fill, so that no child blocks on
writing, and no more is kept than `Command.max_bytes` allows. However a run ends, all processes of its group end,
including a child that ignores SIGTERM and a grandchild that holds the pipes.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memoryd_server.qmd import guard_script

_GUARD_ENDING_SECONDS = 2.0


class ProcessGuard:
    """One guard process for all process groups of a daemon. Thread-safe.

    The process starts with the first registration. If it has died, the next registration replaces it, and registers
    every group with the new one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def register(self, group: int) -> None:
        """Register a group, which then ends with the daemon.

        Raises:
            OSError: no guard process can be started.
        """
        with self._lock:
            self._groups.add(group)
            try:
                sent = self._is_alive()
                if sent:
                    self._send(f"+{group}\n")
            except OSError:
                sent = False
            if not sent:
                self._replace()

    def release(self, group: int) -> None:
        """Unregister a group that has ended. The system may reuse its number."""
        with self._lock:
            self._groups.discard(group)
            # If the guard has died, its replacement receives the remaining groups.
            with contextlib.suppress(OSError):
                if self._process is not None:
                    self._send(f"-{group}\n")

    def close(self) -> None:
        """End the guard process and every group that is still registered."""
        with self._lock:
            process, self._process = self._process, None
            self._groups.clear()
        if process is not None:
            _end(process)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _replace(self) -> None:
        if self._process is not None:
            _end(self._process)
        # -P and -S: the interpreter starts fast and imports no code from the working directory. With a separate
        # session, the process does not receive Ctrl-C from the terminal.
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and script
            [sys.executable, "-P", "-S", guard_script.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._send("".join(f"+{group}\n" for group in sorted(self._groups)))

    def _send(self, lines: str) -> None:
        assert self._process is not None  # noqa: S101 -- the callers ensure it
        assert self._process.stdin is not None  # noqa: S101 -- Popen was called with PIPE
        self._process.stdin.write(lines.encode())
        self._process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 -- Popen was called with PIPE
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_GUARD_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# The time between SIGTERM and SIGKILL, and the time to read the output that a group wrote before it ended.
_TERM_SECONDS = 0.5
_DRAIN_SECONDS = 0.5
# The polling interval for the end of a process, if the system has no pidfd.
_POLL_SECONDS = 0.05
_BLOCK = 65_536
# The command starts when its group is registered with the guard. If the daemon dies before that, the pipe closes, and
# the shell exits.
_WAIT_FOR_GO = ("/bin/sh", "-c", 'read -r go || exit 125; exec "$@" </dev/null', "qmd")


class ExitKind(StrEnum):
    """How a run ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    OVERFLOWED = "printed too much"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, its environment, working directory and time limit.

    If it prints more than `max_bytes` on stdout, it is ended. If `max_bytes` is None, the last 64 KiB of stdout are
    kept. The last 64 KiB of stderr are always kept.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    seconds: float
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a run. `code` is negative if a signal ended the process. Invalid UTF-8 is replaced."""

    ending: ExitKind
    code: int
    stdout: str
    stderr: str
    elapsed_seconds: float


class _Pipe:
    """Reads one pipe: all of the output up to `max_bytes` or, if it is None, the last 64 KiB."""

    def __init__(self, descriptor: int, max_bytes: int | None) -> None:
        self.descriptor = descriptor
        self.overflowed = False
        self._max_bytes = max_bytes
        self._data = bytearray()

    def read(self) -> bool:
        """Read the available output; return whether there may be more."""
        try:
            block = os.read(self.descriptor, _BLOCK)
        except BlockingIOError:
            return True
        self._data += block
        limit = _BLOCK if self._max_bytes is None else self._max_bytes
        if len(self._data) > limit:
            self.overflowed = self._max_bytes is not None
            del self._data[: len(self._data) - limit]
        return bool(block)

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


class CommandRun:
    """One run of a command. `run` is for one thread; any thread may `cancel`."""

    def __init__(self, command: Command, guard: ProcessGuard) -> None:
        self._command = command
        self._guard = guard
        self._wake, self._waker = os.pipe()
        self._lock = threading.Lock()
        self._cancelled = False
        self._open = True

    def cancel(self) -> None:
        """End the group; the run's result is CANCELLED. May be called before the run, and after its end."""
        with self._lock:
            if self._open and not self._cancelled:
                self._cancelled = True
                os.write(self._waker, b"x")

    def run(self) -> CommandResult:
        """Run the command to its end. May be called once.

        Raises:
            OSError: no process can be started.
        """
        try:
            return self._run()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the descriptors of a run that has ended or will not be run."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._wake)
                os.close(self._waker)

    def _run(self) -> CommandResult:
        began = time.monotonic()
        if self._cancelled:
            return CommandResult(ExitKind.CANCELLED, 0, "", "", 0.0)
        with _start(self._command) as process:
            try:
                self._register_and_go(process)
                pipes = _pipes(process, self._command.max_bytes)
                ending = self._wait(process, pipes, began + self._command.seconds)
            finally:
                _end_group(process)
                self._guard.release(process.pid)
            _drain(pipes, time.monotonic() + _DRAIN_SECONDS)
            if pipes[0].overflowed:
                ending = ExitKind.OVERFLOWED
            code = process.returncode
        return CommandResult(ending, code, pipes[0].text, pipes[1].text, time.monotonic() - began)

    def _register_and_go(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 -- Popen was called with PIPE
        self._guard.register(process.pid)
        with contextlib.suppress(OSError):
            process.stdin.write(b"go\n")
            process.stdin.close()

    def _wait(self, process: subprocess.Popen[bytes], pipes: Sequence[_Pipe], deadline: float) -> ExitKind:
        poller = select.poll()
        open_pipes = {pipe.descriptor: pipe for pipe in pipes}
        with _pidfd(process) as pidfds:
            for descriptor in (self._wake, *pidfds, *open_pipes):
                poller.register(descriptor, select.POLLIN)
            while not _has_exited(process):
                left = deadline - time.monotonic()
                if left <= 0:
                    return ExitKind.TIMED_OUT
                for descriptor, _ in poller.poll(1000 * (left if pidfds else min(left, _POLL_SECONDS))):
                    if descriptor == self._wake:
                        return ExitKind.CANCELLED
                    if descriptor in open_pipes and not open_pipes[descriptor].read():
                        poller.unregister(descriptor)
                if pipes[0].overflowed:
                    return ExitKind.OVERFLOWED
        return ExitKind.EXITED


@contextlib.contextmanager
def _pidfd(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Open a descriptor that becomes readable when the process ends; an empty list if the system has no pidfd."""
    pidfds: list[int] = []
    with contextlib.suppress(AttributeError, OSError):
        pidfds.append(os.pidfd_open(process.pid))
    try:
        yield pidfds
    finally:
        for descriptor in pidfds:
            os.close(descriptor)


def _start(command: Command) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 -- the configured command, its arguments one by one
        [*_WAIT_FOR_GO, *command.command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(command.environment),
        cwd=command.folder,
        start_new_session=True,
    )


def _pipes(process: subprocess.Popen[bytes], max_bytes: int | None) -> tuple[_Pipe, _Pipe]:
    assert process.stdout is not None  # noqa: S101 -- Popen was called with PIPE
    assert process.stderr is not None  # noqa: S101 -- Popen was called with PIPE
    pipes = _Pipe(process.stdout.fileno(), max_bytes), _Pipe(process.stderr.fileno(), None)
    for pipe in pipes:
        os.set_blocking(pipe.descriptor, False)
    return pipes


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended. It is not reaped, so that its number, the group's, is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End all processes of the group: SIGTERM, and after half a second SIGKILL. Then reap the leader."""
    if not _has_exited(process):
        _signal(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _TERM_SECONDS
        while not _has_exited(process) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _drain(pipes: Sequence[_Pipe], deadline: float) -> None:
    """Read the output that the group wrote before it ended, until `deadline`.

    A process that left the group may hold a pipe open, so the end of the pipes is not awaited.
    """
    poller = select.poll()
    for pipe in pipes:
        poller.register(pipe.descriptor, select.POLLIN)
    open_pipes = {pipe.descriptor: pipe for pipe in pipes}
    while open_pipes and (ready := poller.poll(1000 * max(0.0, deadline - time.monotonic()))):
        for descriptor, _ in ready:
            if not open_pipes[descriptor].read():
                poller.unregister(descriptor)
                del open_pipes[descriptor]
