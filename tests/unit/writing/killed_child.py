"""Appends again and again, each time in a fork that dies by SIGKILL one system call later than the one before.

Arguments: a folder for the outcomes, a JSON object with the append's arguments, and the folders to begin from, each
with a `workspace` and perhaps a `state`. Every outcome is a copy of its beginning as the dead process left it. Writes
what it made as JSON lines: the outcome's folder, the call that never returned, and how much of a write arrived.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from patient import PatientAppender

from memoryd_server.writing import ledger

# All that could change what is on disk; to die before any other call is to die after one of these.
CALLS = ("open", "mkdir", "write", "fsync", "ftruncate", "replace", "unlink")
# How much of a write arrives before the process dies: nothing, one byte, half, all but one byte.
PARTS = (0.0, "first", 0.5, "all but one")
FINISHED = 0


def part_of(data, part):
    if part == "first":
        return data[:1]
    if part == "all but one":
        return data[:-1]
    return data[: int(len(data) * part)]


def die_at(call, part, report):
    """Lets the process die in place of its `call`-th system call, after `part` of it where it is a write."""
    count = itertools.count()
    real_write, kill = os.write, os.kill

    def wrapped(name, real):
        def stand_in(*arguments, **named):
            if next(count) == call:
                real_write(report, name.encode())
                if name == "write":
                    real_write(arguments[0], part_of(arguments[1], part))
                kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return stand_in

    for name in CALLS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def attempt(folder, call, part, append):
    """What a fork that dies at `call` ended with: (exit status, name of the call)."""
    heard, report = os.pipe()
    child = os.fork()
    if child == 0:
        ledger.COMPACT_ABOVE_BYTES = append.get("compact_above", ledger.COMPACT_ABOVE_BYTES)
        appender = PatientAppender(folder / "workspace", folder / "state" / "memory" / "main.appends")
        die_at(call, part, report)
        if append.get("recover"):
            appender.recover()
        appender.append(append["text"], path=append["path"], idempotency_key=append["key"], heading=append["heading"])
        os._exit(FINISHED)
    os.close(report)
    _, status = os.waitpid(child, 0)
    name = os.read(heard, 100).decode()
    os.close(heard)
    return status, name


def outcomes(folder, beginning, append):
    for call in itertools.count():
        name = ""
        for part in PARTS:
            if part and name != "write":
                break
            target = folder / f"{beginning.name}-{call}-{PARTS.index(part)}"
            shutil.copytree(beginning, target)
            status, name = attempt(target, call, part, append)
            if status == FINISHED:
                return
            if not os.WIFSIGNALED(status):
                raise SystemExit(f"call {call} ({name}): the fork failed with {os.waitstatus_to_exitcode(status)}")
            yield {"folder": str(target), "call": name, "part": part}


def main():
    folder, append, *beginnings = sys.argv[1:]
    for beginning in beginnings:
        for outcome in outcomes(Path(folder), Path(beginning), json.loads(append)):
            sys.stdout.write(json.dumps(outcome) + "\n")


main()
