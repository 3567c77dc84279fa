"""A command in a fork of a preloaded process ends and prints as one in a new interpreter does."""

import os
import signal
import subprocess

import pytest

from daemon_process import COMMAND, LAUNCHER, end, environment, serving
from preloaded import Launcher

pytestmark = pytest.mark.slow


def run_new(*arguments, environ, stdin):
    return subprocess.run(
        [*COMMAND, *arguments], env=environ, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("--version",), None),
        (("search",), None),
        (("health",), None),
        (("recall", "--workspace", "WORKSPACE", "-"), "When does the red ferry sail?"),
        (("search", "--json", "--workspace", "WORKSPACE", "ferry"), None),
    ],
    ids=["version", "usage error", "no daemon", "standard input", "search"],
)
def test_output_and_exit_status_are_those_of_a_new_interpreter(places, arguments, stdin):
    home, workspace, _ = places
    arguments = [str(workspace) if argument == "WORKSPACE" else argument for argument in arguments]
    environ = environment(home)
    assert LAUNCHER.can_start(environ)
    new = run_new(*arguments, environ=environ, stdin=stdin)
    fork = LAUNCHER.run(arguments, environ, stdin, 60)
    assert fork.returncode == new.returncode
    assert without_times(fork.stdout) == without_times(new.stdout)
    assert without_times(fork.stderr) == without_times(new.stderr)


def without_times(text):
    return [line for line in text.splitlines() if "elapsed" not in line and "indexed" not in line.lower()]


def test_a_daemon_in_a_fork_has_its_own_process_and_ends_with_its_signal(places):
    home, workspace, state = places
    with serving(workspace, state, home=home) as served:
        assert os.getsid(served.process.pid) == os.getsid(0)
        assert served.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(0.05)
        assert served.memoryd("agents").stdout.startswith("main")
        assert end(served.process, signal.SIGKILL) == -signal.SIGKILL
        assert served.process.poll() == -signal.SIGKILL
        assert served.memoryd("health").returncode == 5


def test_variables_that_are_read_before_the_command_runs_need_a_new_interpreter(places):
    home, *_ = places
    environ = environment(home)
    for name in ("TZ", "LC_ALL", "LD_PRELOAD", "PYTHONUTF8"):
        assert not LAUNCHER.can_start({**environ, name: "x"})
    assert LAUNCHER.can_start({**environ, "MEMORYD_ADDRESS": "x"})
    assert not Launcher().can_start(environ), "forks are off unless a test is in the long tier"
