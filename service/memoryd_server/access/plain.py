"""Tokens as they stand in a file, one a line: for every agent, and for clients to read."""

import secrets
from pathlib import Path

from memoryd_server.access.private import read_private, write_private
from memoryd_server.errors import SettingsError

_WHAT = "the token file"
# Told apart at a glance, by people and by tools that look for secrets in the wrong places.
_PREFIX = "memoryd_"
_RANDOM_BYTES = 32


def new_token() -> str:
    """A token that nobody can guess: 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens of a file; blank lines and lines that begin with `#` are passed over.

    Raises:
        FileNotFoundError: there is none.
        SettingsError: it cannot be read, or others can open it.
    """
    try:
        lines = [line.strip() for line in read_private(path, _WHAT).decode().splitlines()]
    except UnicodeError as error:
        raise SettingsError(f"cannot read {_WHAT} {path}: {error}") from error
    return tuple(line for line in lines if line and not line.startswith("#"))


def first_token(path: Path) -> str | None:
    """The token that a client on this machine shows; None where there is no such file or no token in it.

    Raises:
        SettingsError: it cannot be read, or others can open it.
    """
    try:
        return next(iter(read_tokens(path)), None)
    except FileNotFoundError:
        return None


def generate_token(path: Path) -> None:
    """Puts a new token into a private file at `path`.

    Raises:
        SettingsError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error
    write_private(path, f"{new_token()}\n".encode())
