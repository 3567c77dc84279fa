"""Checks of the Unix sockets that the daemon listens on, or is to."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from memoryd_server.observe.doctor import Check, failure, warning, well

# sockaddr_un holds 108 bytes with the closing NUL.
MOST_PATH_BYTES = 107
_PATIENCE_SECONDS = 2.0


def check_socket(path: Path) -> Iterator[Check]:
    """Whether a socket can be made at `path`, who can open it, and whether anybody answers."""
    name = "socket"
    size = len(os.fsencode(path))
    if size > MOST_PATH_BYTES:
        yield failure(
            name,
            f"the path {path} is {size} bytes long; the system allows {MOST_PATH_BYTES}",
            "the daemon does not start",
            "choose a shorter one with --listen unix:PATH or memoryd.listen",
        )
        return
    yield from _folder(name, path.parent)
    try:
        mode = path.lstat().st_mode
    except OSError:
        yield well(name, f"nothing is at {path} yet; the daemon makes it")
        return
    if not stat.S_ISSOCK(mode):
        yield failure(
            name,
            f"{path} is no socket",
            "the daemon does not start, and removes nothing",
            "move it away, or choose another path",
        )
        return
    if stat.S_IMODE(mode) & 0o077:
        yield warning(
            name,
            f"{path} can be opened by others (mode {stat.S_IMODE(mode):04o})",
            "whoever can open the socket may use every agent, without a token",
            f"chmod 600 {path}",
        )
    yield _answer(name, path)


def _folder(name: str, folder: Path) -> Iterator[Check]:
    if not folder.exists():
        return
    mode = folder.stat().st_mode
    if not os.access(folder, os.W_OK | os.X_OK):
        yield failure(
            name,
            f"{folder} cannot be written",
            "the daemon cannot make its socket there",
            "make it writable for the daemon's user, or choose another path",
        )
    elif stat.S_IMODE(mode) & 0o022 and not mode & stat.S_ISVTX:
        yield warning(
            name,
            f"others can write {folder} (mode {stat.S_IMODE(mode):04o})",
            "they can put a socket of their own in the place of the daemon's, and read what clients send",
            f"chmod go-w {folder}, or choose another path",
        )


def _answer(name: str, path: Path) -> Check:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(_PATIENCE_SECONDS)
        try:
            one.connect(str(path))
        except OSError as error:
            return _silent(name, path, error)
    return well(name, f"{path} is listened at")


def _silent(name: str, path: Path, error: OSError) -> Check:
    if error.errno == errno.ECONNREFUSED:
        return warning(
            name,
            f"nobody listens at {path}",
            "a daemon was killed and left its socket; clients that dial it fail with UNAVAILABLE",
            "start the daemon, which replaces it",
        )
    return failure(
        name,
        f"{path} cannot be dialled: {error.strerror or error}",
        "no command and no client of this user reaches the daemon there",
        "run the command as the daemon's user, or name another daemon with --address",
    )
