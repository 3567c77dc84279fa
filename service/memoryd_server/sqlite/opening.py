"""Create, recover, upgrade, swap in; open read-only.

Opens the file of an index for writing: creates, recovers, upgrades it, or sets it aside where it is damaged.

Reads an index that cannot be written: on a read-only mount, owned by somebody else, or on a full disk.

Puts a rebuilt index in the place of the old one, so that a crash at any step leaves one whole index.

The steps: the new file is complete and closed (`.rebuilding`, no WAL of its own) → it is renamed to `.ready`, which
says so → the old file's journals go, for a leftover one would bring the old rows back, silently → `.ready` is renamed
over the old file. Start-up looks which of these had happened and finishes or undoes the rest.
"""

import glob
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import apsw

from memoryd_server.errors import IndexReadOnly, IndexTooNew, IndexUnavailable, MemorydError
from memoryd_server.model import Degradation
from memoryd_server.sqlite import maintenance, schema
from memoryd_server.sqlite.connection import (
    APPLICATION_ID,
    JournalMode,
    damage_words,
    impaired,
    is_damage,
    open_reader,
    open_unchanging,
    open_writer,
    size_bytes,
    transaction,
    translated,
)
from memoryd_server.sqlite.readers import ReaderPool
from memoryd_server.store import BuildIdentity, Difference, StoreSizes
from memoryd_server.system import READ_ONLY, sync_folder

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What an index says of itself: with what it was built, how that differs, and whether a sync has completed."""

    built_with: BuildIdentity | None
    differences: tuple[Difference, ...]
    keyword_outdated: bool
    whole: bool

    @classmethod
    def of(cls, connection: apsw.Connection, wanted: BuildIdentity) -> Self:
        """Reads them."""
        return cls(
            BuildIdentity.from_json(str(schema.get_meta(connection, "identity"))),
            schema.build_differences(connection, wanted),
            maintenance.keyword_outdated(connection),
            schema.get_meta(connection, "last_sync_ms") is not None,
        )


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    """An open index. `mishap` says what was found in its place, and where that is now; None when nothing was."""

    connection: apsw.Connection
    facts: IndexFacts
    mishap: Degradation | None = None


def open_index(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> OpenedIndex:
    """The index at `path`; one that has to be begun has a revision above `after_revision`.

    Raises:
        IndexTooNew: a newer memoryd wrote it; nothing has been touched.
        apsw.Error, OSError: it can neither be opened nor made.
    """
    refuse_newer(path, header_version(path))
    recover(path)
    try:
        return _open_or_begin(path, identity, journal, after_revision)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        mishap = set_aside(path, f"the index is damaged ({damage_words(error)}) and is built anew from the Markdown")
        return _begun(path, identity, journal, after_revision, mishap)


def _begun(
    path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int, mishap: Degradation | None = None
) -> OpenedIndex:
    connection = begin(path, identity, journal, after_revision)
    return OpenedIndex(connection, IndexFacts.of(connection, identity), mishap)


def begin(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> apsw.Connection:
    """An empty index where no file is, or one without tables."""
    connection = open_writer(path, journal)
    try:
        _make_tables(connection, identity, after_revision)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def begun(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> Iterator[apsw.Connection]:
    """The same, open until the block ends. What SQLite raises when it opens or closes it is translated."""
    with translated():
        connection = begin(path, identity, journal, after_revision)
    try:
        yield connection
    finally:
        with translated():
            connection.close()


def sizes(path: Path) -> StoreSizes:
    """The bytes of an index and of its write-ahead log. Blocks."""
    return StoreSizes(*size_bytes(path))


def _make_tables(connection: apsw.Connection, identity: BuildIdentity, after_revision: int) -> None:
    with transaction(connection):
        schema.create(connection, identity, after_revision)


def set_aside(path: Path, why: str) -> Degradation:
    """Renames a damaged index and says where it is now; `why` is what was found."""
    aside = move_aside(path, time.time())
    return impaired(path, aside, f"{why}; the damaged file was set aside as {aside}")


def _open_or_begin(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> OpenedIndex:
    connection = open_writer(path, journal)
    try:
        if schema.is_empty(connection):
            _make_tables(connection, identity, after_revision)
        version = schema.user_version(connection)
        refuse_newer(path, version)
        if version == schema.SCHEMA_VERSION or schema.upgrade(connection):
            return OpenedIndex(connection, IndexFacts.of(connection, identity))
    except BaseException:
        connection.close()
        raise
    connection.close()
    remove_database(path)
    why = f"the index was made by an older memoryd (schema {version}) and is built anew"
    return _begun(path, identity, journal, after_revision, impaired(path, path, why))


def own_path(wanted: Path) -> tuple[Path, Degradation | None]:
    """The wanted path, or a sibling where another program's database is there.

    Raises:
        IndexUnavailable: another program's database is at the sibling's path too.
    """
    if not _is_foreign(wanted):
        return wanted, None
    sibling = wanted.with_name(f"{wanted.stem}.memoryd.sqlite")
    if _is_foreign(sibling):
        raise IndexUnavailable(
            f"{wanted} and {sibling} were made by other programs; configure another path for the index"
        )
    return sibling, impaired(wanted, sibling, f"{wanted} was made by another program and is left untouched")


def refuse_newer(path: Path, version: int) -> None:
    """Raises IndexTooNew where the schema is a later memoryd's."""
    if version > schema.SCHEMA_VERSION:
        raise IndexTooNew(
            f"the index {path} has schema {version}, this memoryd knows {schema.SCHEMA_VERSION}; "
            "upgrade memoryd, or remove the file to have it rebuilt from the Markdown"
        )


def _header(path: Path) -> bytes:
    """The file's header, read without SQLite, which could write beside it; empty where no database is."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return b""
    return header if len(header) == _HEADER_BYTES and header.startswith(_MAGIC) else b""


def header_version(path: Path) -> int:
    """The schema version in the file's header; 0 where there is none. A later one may still stand in the log."""
    return int.from_bytes(_header(path)[60:64], "big")


def _is_foreign(path: Path) -> bool:
    """Whether another program's SQLite database is at `path`. Damage is not foreignness."""
    header = _header(path)
    return bool(header) and int.from_bytes(header[68:72], "big") != APPLICATION_ID


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
    found = next((each for each in (ready_path(path), path) if each.exists()), None)
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
    refuse_newer(path, version)
    if version < schema.SCHEMA_VERSION:
        raise _beyond(refusal, "the index was made by an older memoryd and has to be upgraded first")


def _beyond(refusal: MemorydError, words: str) -> MemorydError:
    """The refusal with what makes it final."""
    return type(refusal)(f"{refusal.message}; {words}")


def _has_journal(path: Path) -> bool:
    """Whether a transaction of a daemon that was killed may stand beside the file."""
    journals = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    return any(journal.exists() and journal.stat().st_size for journal in journals)


MOST_KEPT = 2
"""Damaged files that are kept, the newest ones: they are for whoever wants to know what happened."""

_JOURNALS = ("-wal", "-shm", "-journal")


def rebuilding_path(path: Path) -> Path:
    """Where a rebuild writes."""
    return path.with_name(path.name + ".rebuilding")


def ready_path(path: Path) -> Path:
    """Where a finished rebuild waits for its swap."""
    return path.with_name(path.name + ".ready")


def commit(path: Path) -> None:
    """Puts the finished rebuild in place. Both files are closed, and nobody opens them meanwhile."""
    rebuilding_path(path).replace(ready_path(path))
    sync_folder(path.parent)
    _finish(path)


def recover(path: Path) -> None:
    """Finishes a swap that had begun and removes what an unfinished rebuild left."""
    remove_database(rebuilding_path(path))
    if ready_path(path).exists():
        _finish(path)


def discard(path: Path) -> None:
    """Removes what a rebuild that failed left, so that no later start-up takes it for newer than the index."""
    remove_database(rebuilding_path(path))
    ready_path(path).unlink(missing_ok=True)


def move_aside(path: Path, unix_seconds: float) -> Path:
    """Renames a damaged database to a name that says so and when, removes its journals, and answers with that name.

    Older ones beyond `MOST_KEPT` are removed.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_seconds))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    path.replace(aside)
    remove_journals(path)
    for old in sorted(path.parent.glob(f"{glob.escape(path.name)}.damaged-*"))[:-MOST_KEPT]:
        old.unlink(missing_ok=True)
    sync_folder(path.parent)
    return aside


def remove_database(path: Path) -> None:
    """Removes a database file with its journals; absent ones are fine."""
    path.unlink(missing_ok=True)
    remove_journals(path)


def remove_journals(path: Path) -> None:
    """Removes the journals of a database that is gone or set aside."""
    for suffix in _JOURNALS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _finish(path: Path) -> None:
    remove_journals(path)
    sync_folder(path.parent)
    ready_path(path).replace(path)
    sync_folder(path.parent)
