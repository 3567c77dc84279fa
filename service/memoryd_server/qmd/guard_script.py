"""Run as a process of its own: ends the registered process groups when the daemon is gone, however it went.

It reads lines from its stdin, `+<group>` and `-<group>`. The pipe's other end is the daemon's alone, so that its end
is the daemon's. (A parent-death signal would miss grandchildren, and comes when a mere thread ends.)
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable


def watch(lines: Iterable[str]) -> set[int]:
    """Returns the groups that are registered when the lines end."""
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
    """Watches, then ends what is left."""
    # Whoever ends the daemon's group must not end this one before it has done its work.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in watch(sys.stdin):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
