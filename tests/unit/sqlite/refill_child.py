"""Upgrades and syncs an index of schema 4 until it is killed by SIGKILL before its n-th SQL statement.

Arguments: the folder of a TranscriptFixture, and n. The exit status is 0 if the sync had fewer statements.
"""

import itertools
import os
import signal
import sys
from pathlib import Path

import apsw

from transcript_fixture import TranscriptFixture

folder, step = Path(sys.argv[1]), int(sys.argv[2])
count = itertools.count(1)


def trace(_cursor, _statement, _bindings):
    if next(count) == step:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(trace))
index = TranscriptFixture(folder)
index.part_chars = 2_000
index.open().sync()
index.close()
