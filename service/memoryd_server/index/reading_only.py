"""Reads an index that cannot be written: on a read-only mount, owned by somebody else, or on a full disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from memoryd_server.errors import IndexReadOnly, MemorydError
from memoryd_server.index import opening, schema, swap
from memoryd_server.index.connection import damage_words, is_damage, open_reader, open_unchanging
from memoryd_server.index.readers import ReaderPool
from memoryd_server.system import READ_ONLY


@contextmanager
def refusals_named(folder: Path) -> Iterator[None]:
    """Names what a folder that cannot be written refuses.

    Raises:
        IndexReadOnly: it did.
    """
    try:
        yield
    except (apsw.ReadOnlyError, apsw.CantOpenError, OSError) as error:
        told = error.errno in READ_ONLY if isinstance(error, OSError) else not os.access(folder, os.W_OK | os.X_OK)
        if not told:
            raise
        raise IndexReadOnly(
            f"{folder} cannot be written ({error}); make it writable for the daemon's user, or choose another "
            "--state-dir"
        ) from error


def open_to_read(path: Path, readers: int, refusal: MemorydError) -> ReaderPool:
    """Readers of the index at `path`; `refusal` says why there is no writer.

    Raises:
        IndexTooNew: a newer memoryd wrote it.
        MemorydError: the refusal: there is no index, or one that must be written before it can be read.
        apsw.Error: it cannot be read.
    """
    # A rebuild whose swap was cut short is whole, and newer than what it was to replace.
    found = next((each for each in (swap.ready_path(path), path) if each.exists()), None)
    if found is None:
        raise _beyond(refusal, "there is no index yet that could be read meanwhile")
    pool = ReaderPool(found, readers, open_reader if _has_journal(found) else open_unchanging)
    try:
        with pool.connection() as connection:
            _check_version(found, schema.user_version(connection), refusal)
    except BaseException as error:
        pool.close()
        if is_damage(error):
            raise _beyond(refusal, f"the index is damaged ({damage_words(error)})") from error
        raise
    return pool


def _check_version(path: Path, version: int, refusal: MemorydError) -> None:
    opening.refuse_newer(path, version)
    if version < schema.SCHEMA_VERSION:
        raise _beyond(refusal, "the index was made by an older memoryd and has to be upgraded first")


def _beyond(refusal: MemorydError, words: str) -> MemorydError:
    """The refusal with what makes it final."""
    return type(refusal)(f"{refusal.message}; {words}")


def _has_journal(path: Path) -> bool:
    """Whether a transaction of a daemon that was killed may stand beside the file."""
    journals = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    return any(journal.exists() and journal.stat().st_size for journal in journals)
