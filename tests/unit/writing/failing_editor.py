"""Performs an edit again and again, each time in a fork that fails one call later than the one before.

Arguments: a folder for the outcomes, and a JSON object with `scenario`, `system` and `fault` ("kill", or the number of
an error of the system). The fork dies by SIGKILL in place of a call, or the call raises the error. Every call that
changes something on disk is counted, and every step of the history. Writes JSON lines: the outcome's folder, the name
of the call, and the exception that the edit raised, if any. The last line has an empty name: nothing failed.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.writing import FileDeletion, LineInsertion, NewContent
from unit.writing.edit_fixture import SYSTEMS, EditFixture

# All that could change what is on disk; to die before any other call is to die after one of these.
CALLS = (
    "open", "mkdir", "write", "fsync", "link", "rename", "unlink", "fchmod", "fchown", "setxattr", "removexattr"
)  # fmt: skip
STEPS = ("begin", "finish", "cancel")
NOTE, NEW = "memory/a/note.md", "memory/b/new.md"
TEXT = b"one\ntwo\nthree\n" * 40


def create(edits):
    return edits.write(NEW, NewContent(b"made\n" * 50), **REQUEST)


def replace(edits):
    return edits.write(NOTE, LineInsertion(1, b"inserted"), **REQUEST)


def delete(edits):
    return edits.write(NOTE, FileDeletion(), **REQUEST)


def move(edits):
    return edits.move(NOTE, NEW, **REQUEST)


def restore(edits):
    oldest = edits.history.records(NOTE, older_than=None, limit=10)[-1]
    return edits.restore(oldest.version_id, **REQUEST)


REQUEST = {"key": "k", "request_sha256": "r"}
SCENARIOS = {"create": create, "replace": replace, "delete": delete, "move": move, "restore": restore}


def build(folder):
    """Make the state before each edit: a file whose content was replaced once."""
    edits = EditFixture(folder, prefix="base")
    edits.put("memory/other.md", b"other\n")
    edits.put(NOTE, b"before all\n")
    edits.write(NOTE, TEXT)
    edits.close()


@dataclass
class FailingHistory:
    """A history whose steps are counted with the calls. A step that fails has changed nothing."""

    history: object
    count: object = field(default=lambda _name: None)

    def __getattr__(self, name):
        inner = getattr(self.history, name)
        if name not in STEPS:
            return inner

        def counted(*arguments):
            self.count(name)
            return inner(*arguments)

        return counted


def fail_at(call, fault, report):
    """Return a function that counts calls, and fails the one with the number `call`."""
    numbers = itertools.count()
    write, kill = os.write, os.kill

    def count(name, *arguments):
        if next(numbers) != call:
            return
        write(report, name.encode())
        if name == "write":
            write(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
        if fault == "kill":
            kill(os.getpid(), signal.SIGKILL)
        raise OSError(int(fault), os.strerror(int(fault)))

    return count


def wrap_calls(count):
    def wrapped(name, real):
        def counted(*arguments, **named):
            count(name, *arguments)
            return real(*arguments, **named)

        return counted

    for name in CALLS:
        setattr(os, name, wrapped(name, getattr(os, name)))


@dataclass
class FailingRenames:
    """The renames of one system, counted."""

    inner: object
    count: object = field(default=lambda _name: None)

    def exchange(self, *arguments):
        self.count("renameat2")
        return self.inner.exchange(*arguments)

    def to_free_name(self, *arguments):
        self.count("renameat2")
        return self.inner.to_free_name(*arguments)

    def link(self, *arguments):
        return self.inner.link(*arguments)


def attempt(folder, scenario, system, call, fault):
    """Fork, fail at one call, and return the exit status, the name of the call and the name of the exception."""
    heard, report = os.pipe()
    child = os.fork()
    if child == 0:
        error = b""
        try:
            renames = FailingRenames(SYSTEMS[system])
            edits = EditFixture(folder, renames=renames, wrap=FailingHistory)
            count = fail_at(call, fault, report)
            # The history raises its own errors.
            if fault == "kill":
                edits.history.count = count
            renames.count = count
            wrap_calls(count)
            SCENARIOS[scenario](edits)
        except BaseException as raised:  # noqa: BLE001 -- reported
            error = type(raised).__name__.encode()
        os.write(report, b":" + error)
        os._exit(0)
    os.close(report)
    _, status = os.waitpid(child, 0)
    name, _, error = os.read(heard, 100).decode().partition(":")
    os.close(heard)
    return status, name, error


def main():
    folder, order = Path(sys.argv[1]), json.loads(sys.argv[2])
    base = folder / "base"
    build(base)
    for call in itertools.count():
        target = folder / f"outcome-{call}"
        shutil.copytree(base, target)
        status, name, error = attempt(target, order["scenario"], order["system"], call, order["fault"])
        if order["fault"] == "kill" and name and not os.WIFSIGNALED(status):
            raise SystemExit(f"call {call} ({name}): the fork was not killed but raised {error!r}")
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(json.dumps({"folder": str(target), "call": name, "error": error}) + "\n")
        if not name:
            return


if __name__ == "__main__":
    main()
