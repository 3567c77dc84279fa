"""`run_command`: the output of the command of a secret source, without a shell, within bounds of time and size.

However a run ends, all processes of the command's group end with it. If memoryd is killed, the guard script ends them.
"""

import contextlib
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.credentials import command_guard

_OTHERS_WRITE = 0o022
_BLOCK = 65_536
_POLL_SECONDS = 0.05


class SecretCommandError(Exception):
    """A command cannot be run, or has failed. The message contains none of its output."""


@dataclass(frozen=True, slots=True)
class SecretCommand:
    """A command with its arguments, its whole environment and its limits."""

    path: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]
    seconds: float
    max_bytes: int


def check_command(path: Path) -> None:
    """Check that only the user or root can have changed the command.

    Raises:
        SecretCommandError: the path is relative, a link or no regular file, or other users can change the file.
    """
    if not path.is_absolute():
        raise SecretCommandError("is not an absolute path")
    try:
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise SecretCommandError(f"cannot be read: {getattr(error, 'strerror', None) or 'not a file name'}") from None
    if stat.S_ISLNK(found.st_mode):
        raise SecretCommandError("is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise SecretCommandError("is not a regular file")
    if found.st_uid not in {os.geteuid(), 0}:
        raise SecretCommandError("belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise SecretCommandError(f"can be changed by other users (mode {stat.S_IMODE(found.st_mode):04o})")


def run_command(command: SecretCommand, stdin: bytes) -> bytes:
    """Return what the command prints on stdout; stderr is discarded. Blocks for `command.seconds` at most.

    Raises:
        SecretCommandError: the command fails, or exceeds a limit.
    """
    deadline = time.monotonic() + command.seconds
    held, lifeline = os.pipe()
    try:
        process = _start(command, held)
    except (OSError, ValueError):
        raise SecretCommandError("cannot be started") from None
    else:
        with process:
            try:
                output = _exchange(process, stdin, command, deadline)
            finally:
                # The leader is not reaped yet, so its number is still that of the group.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        os.close(held)
        os.close(lifeline)
    if process.returncode == -signal.SIGKILL:
        raise SecretCommandError("was ended by a signal")
    if process.returncode:
        raise SecretCommandError(f"exited with status {process.returncode}")
    return output


def _start(command: SecretCommand, lifeline: int) -> subprocess.Popen[bytes]:
    # -I and -S: the interpreter of the guard imports no code that the environment or the folder provides.
    guard = (sys.executable, "-I", "-S", command_guard.__file__, str(lifeline))
    return subprocess.Popen(  # noqa: S603 -- the configured command, its arguments one by one
        [*guard, os.fspath(command.path), *command.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(command.environment),
        cwd=command.path.parent,
        pass_fds=(lifeline,),
        start_new_session=True,
    )


def _exchange(process: subprocess.Popen[bytes], stdin: bytes, command: SecretCommand, deadline: float) -> bytes:
    """Write `stdin` and return the output, when the command has ended or has closed its stdout."""
    assert process.stdin is not None  # noqa: S101 -- Popen was called with PIPE
    assert process.stdout is not None  # noqa: S101 -- Popen was called with PIPE
    for pipe in (process.stdin, process.stdout):
        os.set_blocking(pipe.fileno(), False)
    poller = select.poll()
    poller.register(process.stdin, select.POLLOUT)
    poller.register(process.stdout, select.POLLIN)
    output, left, reading = bytearray(), memoryview(stdin), True
    while reading or not _has_exited(process):
        exited = _has_exited(process)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise SecretCommandError(f"did not end within {command.seconds:g} s")
        ready = poller.poll(1000 * min(remaining, 0 if exited else _POLL_SECONDS))
        for descriptor, _ in ready:
            if descriptor == process.stdout.fileno():
                block = os.read(descriptor, _BLOCK)
                output += block
                if not block:
                    poller.unregister(descriptor)
                    reading = False
            else:
                left = _write(process, left, poller)
        if len(output) > command.max_bytes:
            raise SecretCommandError(f"printed more than {command.max_bytes} bytes")
        if exited and not ready:
            # A process that left the group may hold the pipe open.
            break
    return bytes(output)


def _write(process: subprocess.Popen[bytes], left: memoryview, poller: select.poll) -> memoryview:
    assert process.stdin is not None  # noqa: S101 -- Popen was called with PIPE
    descriptor = process.stdin.fileno()
    try:
        left = left[os.write(descriptor, left) :]
    except BrokenPipeError:
        left = left[:0]
    if not left:
        poller.unregister(descriptor)
        process.stdin.close()
    return left


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended. It is not reaped, so that its number, the group's, is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
