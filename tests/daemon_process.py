"""The daemon as users start it: the `memoryd` command in its own process."""

import os
import selectors
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from preloaded import Launcher

COMMAND = (sys.executable, "-m", "memoryd_server")
# An import alone can take this long on a machine that is used by many.
READY_SECONDS = 90
# What could point a test at the settings or the daemon of whoever runs it, or spend their money.
PRIVATE = ("MEMORYD_", "OPENCLAW_", "XDG_RUNTIME_DIR")
KEYS = ("_API_KEY", "_API_KEYS")


def environment(home):
    """The environment of a user who has nothing but a home."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(PRIVATE) and not name.endswith(KEYS)
    }
    return {**kept, "HOME": str(home), "NO_COLOR": "1"}


@dataclass
class Served:
    """A daemon that listens, and where."""

    address: str
    workspace: Path | None
    state: Path
    home: Path
    process: subprocess.Popen

    def memoryd(self, *arguments, **options):
        """Runs a verb against this daemon."""
        return memoryd(*arguments, "--state-dir", self.state, home=self.home, **options)


LAUNCHER = Launcher()


def memoryd(*arguments, home, stdin=None):
    """Runs the command to its end."""
    arguments = [str(argument) for argument in arguments]
    environ = environment(home)
    if LAUNCHER.can_start(environ):
        return LAUNCHER.run(arguments, environ, stdin, 60)
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def begin(*arguments, home):
    """Start the command and return its process; `end` ends it. Its errors go to `command.log` in the home."""
    with (Path(home) / "command.log").open("ab") as errors:
        return _started(list(COMMAND), list(map(str, arguments)), environment(home), errors)


def start(workspace, state, *arguments, home, listen=None, within=(), variables=(), memoryd=COMMAND):
    """Starts `memoryd serve` and waits until it says that it listens. `within` is a command that runs it.

    `memoryd` is the command of the daemon, and `variables` are added to its environment.

    If `workspace` is None, it is the one of the settings.
    """
    arguments = [
        "serve",
        *(() if workspace is None else ("--workspace", workspace)),
        "--state-dir",
        state,
        "--listen",
        listen or f"unix:{state}/m.sock",
        *arguments,
    ]
    environ = {**environment(home), **dict(variables)}
    log = Path(home) / "daemon.log"
    with log.open("ab") as errors:
        process = _started([*within, *memoryd], list(map(str, arguments)), environ, errors)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if selector.select(READY_SECONDS) else ""
    if not line.startswith("listening on "):
        end(process)
        raise AssertionError(f"the daemon did not start: {line!r} {log.read_text('utf-8')[-2000:]}")
    address = line.removeprefix("listening on ").strip()
    return Served(address, None if workspace is None else Path(workspace), Path(state), Path(home), process)


def _started(command, arguments, environ, errors):
    """Start a process with a pipe as its standard output."""
    if command != list(COMMAND) or not LAUNCHER.can_start(environ):
        return subprocess.Popen(
            [*map(str, command), *arguments], env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    reading, writing = os.pipe()
    process = LAUNCHER.start(arguments, environ, [0, writing, errors.fileno()])
    os.close(writing)
    process.stdout = os.fdopen(reading, encoding="utf-8")
    return process


def end(process, number=signal.SIGTERM):
    """Ends a daemon by its id and returns its exit code."""
    if process.poll() is None:
        process.send_signal(number)
    code = process.wait(60)
    process.stdout.close()
    return code


@contextmanager
def serving(workspace, state, *arguments, home, listen=None):
    """A daemon until the block ends."""
    served = start(workspace, state, *arguments, home=home, listen=listen)
    try:
        yield served
    finally:
        end(served.process)


@contextmanager
def serving_heron(home, settings=None):
    """A daemon with one note, of a heron, that listens at a TCP port and at a socket, until the block ends."""
    workspace, state = home / "workspace", home / "state"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "a.md").write_text("the heron nests by the weir\n")
    state.mkdir()
    if settings:
        (state / "memoryd.json5").write_text(settings)
    with serving(workspace, state, "--listen", f"unix:{state}/m.sock", home=home, listen="127.0.0.1:0") as served:
        yield served
