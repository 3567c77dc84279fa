"""Folders that are below each other, deeper than Python's recursion limit and than any path of the system."""

import os
import subprocess
from contextlib import contextmanager

MORE_THAN_RECURSION = 1_200


@contextmanager
def deep_folders(top, count, *files):
    """Make `count` folders named "d" below `top`, with `files` in the last; remove all of it at the end."""
    folder = os.open(top, os.O_RDONLY)
    for _ in range(count):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    for name in files:
        with os.fdopen(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=folder), "wb") as file:
            file.write(b"the heron nests by the weir\n")
    os.close(folder)
    try:
        yield
    finally:
        # Python's own rmtree, and so pytest's clean-up, recurses.
        subprocess.run(["rm", "-rf", top / "d"], check=True)
