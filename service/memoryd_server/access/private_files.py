"""Files that hold secrets, and the detection of changed files.

`read_private` refuses a file that other users can open; `write_private` replaces a file atomically with one of mode
0600. `signature` detects changes from metadata alone, without reading the content.
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
    """Return the content of a file that only its owner can open.

    `what` names the file in messages. `root_may_share` allows a group to read a file that root owns, as is usual for
    certificate keys.

    Raises:
        FileNotFoundError: the file does not exist.
        SettingsError: the file cannot be read, other users can open it, or it is larger than 1 MiB; the message says
            what to do.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
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
        raise SettingsError(f"{what} {path} is not a regular file")
    refused = _OTHERS if root_may_share and found.st_uid == 0 else _OTHERS | _GROUP
    if found.st_mode & refused:
        raise SettingsError(
            f"{what} {path} can be opened by other users (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"run: chmod 600 {path}"
        )


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` with a file of mode 0600, atomically and durably.

    Raises:
        SettingsError: the file cannot be written.
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


# Two writes within one clock tick of the file system leave the same time. A file that changed this recently is
# therefore treated as changed again.
_SETTLED_NS = 100_000_000

Signature = tuple[tuple[int, ...], ...]


def signature(paths: Sequence[Path]) -> Signature | None:
    """Return a value that differs once one of the files changes.

    None while one is too recent for that to be certain.
    """
    parts = [_part(path) for path in paths]
    now = time.time_ns()
    if any(part and now - part[0] < _SETTLED_NS for part in parts):
        return None
    return tuple(parts)


def _part(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116 -- runs for each call on TCP, and takes half the time
    except OSError as error:
        return (0, error.errno or 0)
    times = max(found.st_mtime_ns, found.st_ctime_ns)
    return (times, found.st_ino, found.st_size, found.st_mode, found.st_uid)
