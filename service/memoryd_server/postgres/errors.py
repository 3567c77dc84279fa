"""Translate the errors of psycopg into those of memoryd, and text into what PostgreSQL can store."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from memoryd_server.errors import (
    DeadlineTooShort,
    DiskFull,
    IndexBusy,
    IndexDamaged,
    IndexReadOnly,
    IndexUnavailable,
    MemorydError,
)

RETRY_SECONDS = 5.0

# A row of an index has at most 2,704 bytes.
_MAX_KEY_CHARS = 200

_GONE = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
_BUSY = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)


class ServerNotAnswering(psycopg.OperationalError):  # type: ignore[misc] # psycopg is optional, and not followed by mypy
    """The server keeps a connection open, but does not answer; the connection was closed."""


class ServerIsLate(ServerNotAnswering):
    """The server has neither answered nor cancelled a statement by the deadline; the connection was closed."""


@contextmanager
def translated(*, has_deadline: bool = True) -> Iterator[None]:
    """Raise the errors of psycopg as errors of `memoryd_server.errors`."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, has_deadline=has_deadline) from error


def translate(error: psycopg.Error, *, has_deadline: bool = True) -> MemorydError:
    """Return the error of `memoryd_server.errors` for an error of psycopg, in a call with or without a deadline."""
    reason = described(error)
    if isinstance(error, ServerIsLate):
        return DeadlineTooShort(f"the PostgreSQL server cannot be used: {reason}", retry_after_seconds=RETRY_SECONDS)
    if isinstance(error, errors.QueryCanceled) and has_deadline:
        return DeadlineTooShort("the search did not finish before the deadline; allow more time or shorten the query")
    return _without_deadline(error, reason)


def _without_deadline(error: psycopg.Error, reason: str) -> MemorydError:
    if isinstance(error, _BUSY):
        return IndexBusy(f"the PostgreSQL database is locked by another transaction: {reason}", retry_after_seconds=1.0)
    if isinstance(error, errors.DiskFull):
        return DiskFull(f"no space is left on the disk of the PostgreSQL server: {reason}")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return IndexReadOnly(f"the PostgreSQL server accepts no writes: {reason}")
    if isinstance(error, _GONE):
        return IndexDamaged(f"tables of the database are missing: {reason}", retry_after_seconds=1.0)
    is_limit = isinstance(error, errors.ProgramLimitExceeded)
    is_outage = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not is_limit
    if not is_outage:
        return IndexUnavailable(f"the PostgreSQL database cannot be used: {reason}")
    # psycopg has no SQLSTATE for a refused connection.
    advice = "; check memoryd.store.passwordFile" if "password" in reason else ""
    return IndexUnavailable(
        f"the PostgreSQL server cannot be used: {reason}{advice}", retry_after_seconds=RETRY_SECONDS
    )


def described(error: psycopg.Error) -> str:
    """Return the message of an error on one line. It may name host and user, and never contains the password."""
    primary = error.diag.message_primary
    return primary or "; ".join(line.strip() for line in str(error).splitlines() if line.strip()) or "no reason given"


def bounded(text: str) -> str:
    """Return a text that fits a row of an index with others: of a long one, the beginning and a hash."""
    if len(text) <= _MAX_KEY_CHARS:
        return storable(text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{storable(text[: _MAX_KEY_CHARS - len(digest)])}{digest}"


def storable(text: str) -> str:
    """Return a text that PostgreSQL can store: U+0000, which it refuses, becomes U+FFFD."""
    return text.replace("\0", "\ufffd") if "\0" in text else text
