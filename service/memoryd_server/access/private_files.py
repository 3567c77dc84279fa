"""Secret files: private, whole, change detection.

Files that hold secrets: read only while they are private, written so that they always are.

Whether files have changed since they were last read, told by their metadata alone.
"""

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from memoryd_server.errors import SettingsError
from memoryd_server.system import sync_folder

_OTHERS = 0o007
_GROUP = 0o070
_MOST_BYTES = 2**20


def read_private(path: Path, what: str, *, root_may_share: bool = False) -> bytes:
    """The content of a file that nobody but its owner can open.

    `what` names it in messages. `root_may_share` allows a group to read a file that belongs to root, as systems keep
    the keys of certificates.

    Raises:
        FileNotFoundError: there is none.
        SettingsError: it cannot be read, others can open it, or it is far too large; the message says what to do.
    """
    try:
        # Without O_NONBLOCK a pipe would keep us waiting for whoever writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _refuse_shared(path, os.fstat(descriptor), what, root_may_share=root_may_share)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(_MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SettingsError(f"cannot read {what} {path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise SettingsError(f"{what} {path} is larger than {_MOST_BYTES} bytes; is it the right file?")
    return content


def _refuse_shared(path: Path, found: os.stat_result, what: str, *, root_may_share: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SettingsError(f"{what} {path} is no regular file")
    refused = _OTHERS if root_may_share and found.st_uid == 0 else _OTHERS | _GROUP
    if found.st_mode & refused:
        raise SettingsError(
            f"{what} {path} can be opened by others (mode {stat.S_IMODE(found.st_mode):04o}); run: chmod 600 {path}"
        )


def write_private(path: Path, content: bytes) -> None:
    """Puts a file of mode 0600 in the place of `path`, whole or not at all, and makes it durable.

    Raises:
        SettingsError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error


# Two writes within the clock tick of a file system leave the same time behind. What changed this recently is taken for
# changed once more.
_SETTLED_NS = 100_000_000

Signature = tuple[tuple[int, ...], ...]


def signature(paths: Sequence[Path]) -> Signature | None:
    """What tells these files from later ones at the same paths; None while one of them is too young to tell."""
    parts = [_part(path) for path in paths]
    now = time.time_ns()
    if any(part and now - part[0] < _SETTLED_NS for part in parts):
        return None
    return tuple(parts)


def _part(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116 -- called for each call on TCP, and half the price
    except OSError as error:
        return (0, error.errno or 0)
    times = max(found.st_mtime_ns, found.st_ctime_ns)
    return (times, found.st_ino, found.st_size, found.st_mode, found.st_uid)
