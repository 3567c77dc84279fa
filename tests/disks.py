"""Real disks of a test's own: small ones, and ones that cannot be written."""

import subprocess
from contextlib import contextmanager, suppress

import pytest


def _run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


@contextmanager
def small_disk(folder, kilobytes):
    """`folder` on a disk of its own, of so many kilobytes. Skips the test where nothing can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=0755", "tmpfs", folder)
    if done.returncode:
        pytest.skip(f"mounting takes root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        assert _run("umount", "-l", folder).returncode == 0


@contextmanager
def unwritable(folder):
    """`folder`, which nobody can write while the block lasts, root no more than others."""
    done = _run("mount", "--bind", folder, folder)
    if done.returncode:
        pytest.skip(f"mounting takes root: {done.stderr.strip()}")
    try:
        assert _run("mount", "-o", "remount,bind,ro", folder).returncode == 0
        yield folder
    finally:
        assert _run("umount", "-l", folder).returncode == 0


def fill_up(folder):
    """A file that takes what room is left; removing it gives the room back."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return ballast
