"""The script of the guard process, which ends the registered process groups when the daemon has ended in any way.

It reads lines from stdin, `+<group>` and `-<group>`. Only the daemon has the other end of the pipe, so end of file
means that the daemon has ended. (A parent-death signal would miss grandchildren, and is also sent when a thread ends.)
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable


def watch(lines: Iterable[str]) -> set[int]:
    """Return the groups that are registered when the lines end."""
    groups: set[int] = set()
    for line in lines:
        with contextlib.suppress(ValueError):
            group = int(line[1:])
            if line.startswith("+"):
                groups.add(group)
            else:
                groups.discard(group)
    return groups


def main() -> None:
    """Read stdin to its end, then end the groups that are still registered."""
    # A signal to the daemon's process group must not end this process before it has ended the groups.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in watch(sys.stdin):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
