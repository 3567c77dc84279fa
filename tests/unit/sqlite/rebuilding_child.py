"""Rebuilds an index repeatedly, each time in a fork that is killed by SIGKILL one step later than the previous one.

Arguments: a folder with an index, a folder for the outcomes, and the steps at which the processes that come after die
too. A step is one call that changes the index's folder or makes it durable. Writes the folder of each outcome.
"""

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path

from index_fixture import IndexFixture
from memoryd_server.sync.progress import SyncMode

SECOND = "kestrel"


def die_before(step):
    """Lets the process die in place of its `step`-th step."""
    count = itertools.count(1)

    def wrapped(real):
        def stand_in(*arguments, **named):
            if next(count) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return stand_in

    os.fsync = wrapped(os.fsync)
    Path.replace, Path.unlink = wrapped(Path.replace), wrapped(Path.unlink)


def killed(folder, step):
    """Return whether a rebuild in a fork had this many steps, so that it was killed."""
    child = os.fork()
    if child == 0:
        try:
            index = IndexFixture(folder)
            index.write("memory/a.md", SECOND)
            die_before(step)
            index.open().sync(SyncMode.FULL)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if os.waitstatus_to_exitcode(status) == 0:
        return False
    raise AssertionError(f"the rebuild failed: {status}")


def main():
    beginning, outcomes, *more = (Path(argument) for argument in sys.argv[1:])
    for step in itertools.count(1):
        folder = outcomes / str(step)
        shutil.copytree(beginning, folder)
        if not killed(folder, step):
            return
        for again in more:
            killed(folder, int(str(again)))
        print(folder, flush=True)  # noqa: T201 -- for the test that reads it


main()
