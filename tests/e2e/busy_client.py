"""A client process that searches, syncs, writes and appends for some seconds, and reports its counts and errors."""

import json
import random
import sys
import time
from pathlib import Path

from memoryd.client import MemorydError, connect

address, workspace, number, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
chance = random.Random(number)
told = {"searches": 0, "syncs": 0, "writes": 0, "appends": 0, "errors": []}


def search(connection):
    assert connection.search(query=f"heron number{chance.randrange(200)}x").results
    told["searches"] += 1


def sync(connection):
    *_, last = connection.sync(timeout=60)
    assert last.completed.failed_files == 0
    told["syncs"] += 1


def write(_connection):
    (workspace / "memory" / f"of-{number}.md").write_text(f"writer{number}at{told['writes']}x\n")
    told["writes"] += 1


def append(connection):
    connection.append(text=f"line {told['appends']} of {number}", path="memory/shared.md")
    told["appends"] += 1


with connect(address) as connection:
    until = time.monotonic() + seconds
    for turn in [write, sync, search, append]:
        turn(connection)
    while time.monotonic() < until:
        turn = chance.choice([search] * 6 + [sync, write, append])
        try:
            turn(connection)
        except (MemorydError, AssertionError) as error:
            told["errors"].append(f"{turn.__name__}: {error}")
json.dump(told, sys.stdout)
