"""The Python client as its users have it: the built package, with the oldest and the newest libraries."""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clients.runner import REPOSITORY

CLIENT = REPOSITORY / "clients" / "python"
VENVS = REPOSITORY / ".tools" / "clients" / "python"
AGES = ("oldest", "newest")


def run(*command, timeout=120, **options):
    """What a command printed; fails with what it said when it fails."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout, check=False, **options
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def build(folder):
    """The wheel and the source distribution, in that order."""
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=CLIENT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def python_of(age):
    """The interpreter of an environment that `make clients-python` made."""
    python = Path(VENVS / age / "bin" / "python")
    if not python.exists() and os.environ.get("CI") == "true":
        pytest.fail("CI must not skip it: `make clients-python` makes the environments")
    if not python.exists():
        pytest.skip("`make clients-python` makes the environments of the oldest and the newest libraries")
    return python


def install(interpreter, wheel):
    """Install the wheel into the environment of the interpreter, unless it is there already.

    The workers of a test run share the environments. Without the lock, one would remove files that another imports.
    """
    environment = interpreter.parent.parent
    pip = (interpreter, "-m", "pip", "--disable-pip-version-check", "--no-input")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with (environment / ".installed").open("a+", encoding="ascii") as installed:
        fcntl.flock(installed, fcntl.LOCK_EX)
        installed.seek(0)
        if installed.read() == digest:
            return
        installed.truncate(0)
        run(*pip, "install", "-q", "--no-index", "--no-deps", "--force-reinstall", wheel)
        # The libraries that the package requires are installed, in versions that it accepts.
        run(*pip, "check")
        installed.write(digest)
