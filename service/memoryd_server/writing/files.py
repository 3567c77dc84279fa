"""Whole reads and writes of a file descriptor, and directories that last."""

import os
from pathlib import Path

_STEP_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

MOST_REPLACEMENTS = 8
"""How often a file that another program replaces during one operation is opened again."""


def write_all(fd: int, data: bytes) -> None:
    """Writes every byte, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Makes `data` the whole content of a file that its owner alone can read, for good when `durable`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_range(fd: int, start: int, end: int) -> bytes:
    """Returns the bytes from `start` up to `end`, fewer when the file is shorter."""
    parts = []
    while start < end and (part := os.pread(fd, min(end - start, _STEP_BYTES), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def sync_folders(root: str, folders: tuple[str, ...] = ()) -> None:
    """Makes the names in `root`, and in each folder below it, survive a power cut. Follows no link below `root`."""
    fd = os.open(root, _DIRECTORY)
    try:
        os.fsync(fd)
        for folder in folders:
            inner = os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
            os.fsync(fd)
    finally:
        os.close(fd)
