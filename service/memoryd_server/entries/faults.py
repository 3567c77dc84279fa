"""Gives LanceDB's failures the names that callers know."""

from collections.abc import Iterator
from contextlib import contextmanager

from memoryd_server.errors import DiskFull, EntriesUnavailable, MemorydError
from memoryd_server.system import DISK_FULL

_MOST_CHARS = 300
_FULL = ("no space left", "os error 28", "disk quota exceeded")


@contextmanager
def entry_errors(where: str) -> Iterator[None]:
    """Names what went wrong with the dataset at `where`.

    Raises:
        DiskFull: for want of space or quota.
        EntriesUnavailable: for any other reason.
    """
    try:
        yield
    except MemorydError:
        raise
    # LanceDB raises RuntimeError, ValueError, OSError and Arrow's own errors for the same causes.
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:_MOST_CHARS]
        if _is_full(error):
            raise DiskFull(f"the entries at {where} cannot be written: {said}; free some space") from error
        raise EntriesUnavailable(f"the entries at {where} cannot be used: {said}", retry_after_seconds=1.0) from error


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return True
    return any(words in str(error).lower() for words in _FULL)


def is_conflict(error: Exception) -> bool:
    """Whether another writer's commit came first, so that trying again helps."""
    return "conflict" in str(error).lower()
