"""`read_private_file`: the content of a file that holds secrets, within bounds of size and time."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from memoryd_server.threads import DaemonExecutor

_T = TypeVar("_T")

_BLOCK = 65_536
_GROUP_OR_OTHERS = 0o077


class SecretFileError(Exception):
    """A file cannot be used. The message follows the name of the setting that contains its path, and is not secret."""


def read_private_file(path: Path, *, max_bytes: int, seconds: float) -> bytes:
    """Return the content of a regular file with one link that only its owner, the user or root, may open.

    Neither a named pipe nor a file system that does not answer keeps the caller waiting for longer than `seconds`.

    Raises:
        SecretFileError: the file is missing, unsafe, larger than `max_bytes`, or not read within `seconds`.
    """
    deadline = time.monotonic() + seconds
    try:
        return within(seconds, lambda: _read(path, max_bytes, deadline))
    except TimeoutError:
        raise SecretFileError(f"cannot be read within {seconds:g} s") from None


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """Return the result of `call`, which runs on a thread of its own.

    Raises:
        TimeoutError: the call has not returned after `seconds`. Its thread ends with the call, and does not keep the
            process from exiting.
    """
    return DaemonExecutor(1, "secret").submit(call).result(seconds)


def _read(path: Path, max_bytes: int, deadline: float) -> bytes:
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise SecretFileError("is a symbolic link")
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _refuse_unsafe(os.fstat(descriptor))
            return _content(descriptor, max_bytes, deadline)
        finally:
            os.close(descriptor)
    except TimeoutError:
        raise
    except OSError as error:
        raise SecretFileError(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise SecretFileError("is not a file name") from None


def _refuse_unsafe(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecretFileError("is not a regular file")
    if found.st_nlink != 1:
        raise SecretFileError("has more than one hard link")
    if found.st_uid not in {os.geteuid(), 0}:
        raise SecretFileError("belongs to another user")
    if found.st_mode & _GROUP_OR_OTHERS:
        raise SecretFileError(f"can be opened by other users (mode {stat.S_IMODE(found.st_mode):04o}); run chmod 600")


def _content(descriptor: int, max_bytes: int, deadline: float) -> bytes:
    content = bytearray()
    while block := os.read(descriptor, min(_BLOCK, max_bytes + 1 - len(content))):
        content += block
        if len(content) > max_bytes:
            raise SecretFileError(f"is larger than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(content)
