"""The script that runs the command of a secret source, and ends it if memoryd has ended.

Usage: `command_guard.py <lifeline> <command> <argument>...`. The script is the leader of a process group, to which the
command and its children belong. `lifeline` is the number of the reading end of a pipe; only memoryd has the other end,
so end of file means that memoryd has ended. The exit status is that of the command, or 127 if it cannot be started.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

_NOT_STARTED = 127
_POLL_MS = 10


def main(lifeline: int, command: list[str]) -> int:
    """Run the command to its end and return its exit status."""
    try:
        process = subprocess.Popen(command)  # noqa: S603 -- the configured command, without a shell
    except OSError:
        return _NOT_STARTED
    # Only the command may hold these pipes open.
    for descriptor in (0, 1):
        os.close(descriptor)
    poller = select.poll()
    poller.register(lifeline, select.POLLIN)
    with contextlib.suppress(AttributeError, OSError):
        poller.register(os.pidfd_open(process.pid), select.POLLIN)
    while process.poll() is None:
        if any(descriptor == lifeline for descriptor, _ in poller.poll(_POLL_MS)):
            os.killpg(0, signal.SIGKILL)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    # An ordinary exit would flush the closed stdout.
    os._exit(main(int(sys.argv[1]), sys.argv[2:]))
