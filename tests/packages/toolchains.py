"""The programs that pack and build: whether they are installed, and their output."""

import os
import shutil
import subprocess

import pytest

# A build can compile all dependencies, on a machine that several builds share.
COMMAND_SECONDS = 900


def require(*programs):
    """Skip the test if a program is not installed. CI has all of them, so there it fails."""
    missing = [name for name in programs if shutil.which(name) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}: not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must not skip this test; it {reason}")
    pytest.skip(reason)


def run(*command, cwd, **environment):
    """Run a command to its end, and return its standard output. Fail with its output if its exit status is not 0."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout[-5000:], done.stderr[-5000:])
    return done.stdout


def run_maven(*arguments, cwd):
    """Run Maven to its end, without its progress, and with options for a Java program of a few seconds."""
    options = (os.environ.get("MAVEN_OPTS", ""), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    quiet = ("-B", "-ntp", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return run("mvn", *quiet, *arguments, cwd=cwd, MAVEN_OPTS=" ".join(options))
