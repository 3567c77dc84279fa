"""One command in its process group; the guard.

Runs one command to its end, in a process group of its own that ends with it. Blocks; one thread a run.

Both pipes are read as they fill, so that no child waits for us, and no more is kept than was asked for. Whatever way a
run ends, nothing of its group is left: not a child that ignores SIGTERM, nor a grandchild that holds the pipes.

Starts the guard process with the first group that it is to watch, and tells it of every group.
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
        process.wait(_GUARD_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# Time between asking a group to end and ending it, and time for what it wrote before it ended.
_ENDING_SECONDS = 0.5
_DRAIN_SECONDS = 0.5
# How soon the end of a process is noticed where the system does not tell.
_TICK_SECONDS = 0.05
_BLOCK = 65_536
# The command begins when the guard knows its group; a daemon that dies before that closes the pipe instead.
_GATE = ("/bin/sh", "-c", 'read -r go || exit 125; exec "$@" </dev/null', "qmd")


class ExitKind(StrEnum):
    """How a run ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    TOO_MUCH = "printed too much"


@dataclass(frozen=True, slots=True)
class Command:
    """A command with where and how long it may run.

    `most_bytes` is what it may print on stdout before it is ended; None keeps the last 64 KiB and reads on. Of stderr
    the last 64 KiB are kept in any case.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    seconds: float
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a run left. `code` is negative where a signal ended the process; what is no UTF-8 is replaced."""

    ending: ExitKind
    code: int
    stdout: str
    stderr: str
    elapsed_seconds: float


class _Pipe:
    """What came through one pipe, as far as it is kept: all of it up to a limit, or its tail."""

    def __init__(self, descriptor: int, most_bytes: int | None) -> None:
        self.descriptor = descriptor
        self.overflowed = False
        self._most_bytes = most_bytes
        self._kept = bytearray()

    def read(self) -> bool:
        """Takes what is there; whether there may be more."""
        try:
            block = os.read(self.descriptor, _BLOCK)
        except BlockingIOError:
            return True
        self._kept += block
        most = _BLOCK if self._most_bytes is None else self._most_bytes
        if len(self._kept) > most:
            self.overflowed = self._most_bytes is not None
            del self._kept[: len(self._kept) - most]
        return bool(block)

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


class CommandRun:
    """One run of a command. `run` belongs to one thread; any may `cancel`."""

    def __init__(self, invocation: Command, guard: ProcessGuard) -> None:
        self._invocation = invocation
        self._guard = guard
        self._wake, self._waker = os.pipe()
        self._lock = threading.Lock()
        self._cancelled = False
        self._open = True

    def cancel(self) -> None:
        """Ends the group soon; the run tells CANCELLED. Also before the run, and after its end."""
        with self._lock:
            if self._open and not self._cancelled:
                self._cancelled = True
                os.write(self._waker, b"x")

    def run(self) -> CommandResult:
        """Runs the command to its end; once.

        Raises:
            OSError: no process can be started.
        """
        try:
            return self._run()
        finally:
            self.discard()

    def discard(self) -> None:
        """Frees what a run holds that never ran, or has ended."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._wake)
                os.close(self._waker)

    def _run(self) -> CommandResult:
        began = time.monotonic()
        if self._cancelled:
            return CommandResult(ExitKind.CANCELLED, 0, "", "", 0.0)
        with _started(self._invocation) as process:
            try:
                self._let_go(process)
                pipes = _pipes(process, self._invocation.most_bytes)
                ending = self._until_ended(process, pipes, began + self._invocation.seconds)
            finally:
                _end_group(process)
                self._guard.release(process.pid)
            _drain(pipes, time.monotonic() + _DRAIN_SECONDS)
            if pipes[0].overflowed:
                ending = ExitKind.TOO_MUCH
            code = process.returncode
        return CommandResult(ending, code, pipes[0].text, pipes[1].text, time.monotonic() - began)

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 -- a pipe was asked for
        self._guard.register(process.pid)
        with contextlib.suppress(OSError):
            process.stdin.write(b"go\n")
            process.stdin.close()

    def _until_ended(self, process: subprocess.Popen[bytes], pipes: Sequence[_Pipe], until: float) -> ExitKind:
        poller = select.poll()
        open_pipes = {pipe.descriptor: pipe for pipe in pipes}
        with _end_of(process) as ends:
            for descriptor in (self._wake, *ends, *open_pipes):
                poller.register(descriptor, select.POLLIN)
            while not _has_exited(process):
                left = until - time.monotonic()
                if left <= 0:
                    return ExitKind.TIMED_OUT
                for descriptor, _ in poller.poll(1000 * (left if ends else min(left, _TICK_SECONDS))):
                    if descriptor == self._wake:
                        return ExitKind.CANCELLED
                    if descriptor in open_pipes and not open_pipes[descriptor].read():
                        poller.unregister(descriptor)
                if pipes[0].overflowed:
                    return ExitKind.TOO_MUCH
        return ExitKind.EXITED


@contextlib.contextmanager
def _end_of(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """A descriptor that turns readable when the process ends; none where the system has no such thing."""
    ends: list[int] = []
    with contextlib.suppress(AttributeError, OSError):
        ends.append(os.pidfd_open(process.pid))
    try:
        yield ends
    finally:
        for descriptor in ends:
            os.close(descriptor)


def _started(invocation: Command) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 -- the configured command, its arguments one by one
        [*_GATE, *invocation.command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(invocation.environment),
        cwd=invocation.folder,
        start_new_session=True,
    )


def _pipes(process: subprocess.Popen[bytes], most_bytes: int | None) -> tuple[_Pipe, _Pipe]:
    assert process.stdout is not None  # noqa: S101 -- a pipe was asked for
    assert process.stderr is not None  # noqa: S101 -- a pipe was asked for
    pipes = _Pipe(process.stdout.fileno(), most_bytes), _Pipe(process.stderr.fileno(), None)
    for pipe in pipes:
        os.set_blocking(pipe.descriptor, False)
    return pipes


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. It is not reaped, so that its number, which is the group's, stays taken."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Leaves nothing of the group: asks first, and after half a second no more. Then reaps the leader."""
    if not _has_exited(process):
        _signal(process.pid, signal.SIGTERM)
        until = time.monotonic() + _ENDING_SECONDS
        while not _has_exited(process) and time.monotonic() < until:
            time.sleep(_TICK_SECONDS / 5)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _drain(pipes: Sequence[_Pipe], until: float) -> None:
    """Reads what the group wrote before it ended. Whoever left the group and holds a pipe open is not waited for."""
    poller = select.poll()
    for pipe in pipes:
        poller.register(pipe.descriptor, select.POLLIN)
    left = {pipe.descriptor: pipe for pipe in pipes}
    while left and (ready := poller.poll(1000 * max(0.0, until - time.monotonic()))):
        for descriptor, _ in ready:
            if not left[descriptor].read():
                poller.unregister(descriptor)
                del left[descriptor]
