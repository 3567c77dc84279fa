"""Open, create, upgrade, recover, set aside and replace the file of an index.

A damaged index is renamed and an empty one created in its place. An index that cannot be written (a read-only mount,
another owner, a full disk) is opened for reading.

A rebuilt index replaces the old one in steps, such that a crash at any of them leaves one complete index:

1. The new file is complete and closed (`.rebuilding`, without a log of its own).
2. It is renamed to `.ready`, which marks it as complete.
3. The old file's journals are deleted; a leftover journal would restore the old rows silently.
4. `.ready` is renamed over the old file.

`recover` completes or undoes these steps at start.
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
from memoryd_server.sqlite import maintenance, relocation, schema
from memoryd_server.sqlite.connection import (
    APPLICATION_ID,
    JournalMode,
    damage_reason,
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
from memoryd_server.sqlite.vector_rows import discard_outdated
from memoryd_server.store import BuildIdentity, Difference, StoreSizes
from memoryd_server.system import READ_ONLY, sync_folder

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What an index was built with, how that differs from what is wanted, and whether a sync has completed."""

    built_with: BuildIdentity | None
    differences: tuple[Difference, ...]
    keyword_outdated: bool
    has_completed_sync: bool

    @classmethod
    def of(cls, connection: apsw.Connection, wanted: BuildIdentity) -> Self:
        """Read the facts from an open index."""
        return cls(
            BuildIdentity.from_json(str(schema.get_meta(connection, "identity"))),
            schema.build_differences(connection, wanted),
            maintenance.keyword_outdated(connection),
            schema.get_meta(connection, "last_sync_ms") is not None,
        )


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    """An open index. `incident` says why an earlier file was replaced, and where it is now; None if none was."""

    connection: apsw.Connection
    facts: IndexFacts
    incident: Degradation | None = None


def open_index(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> OpenedIndex:
    """Open the index at `path`; create it if it is missing, with a revision above `after_revision`.

    Raises:
        IndexTooNew: the index was written by a newer memoryd; nothing was changed.
        apsw.Error, OSError: the index can neither be opened nor created.
    """
    refuse_newer(path, header_version(path))
    recover(path)
    try:
        return _open_or_create(path, identity, journal, after_revision)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        reason = f"the index is damaged ({damage_reason(error)}) and is being rebuilt from the Markdown"
        return _created(path, identity, journal, after_revision, set_aside(path, reason))


def _created(
    path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int, incident: Degradation | None = None
) -> OpenedIndex:
    connection = create_index(path, identity, journal, after_revision)
    return OpenedIndex(connection, IndexFacts.of(connection, identity), incident)


def create_index(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> apsw.Connection:
    """Create an empty index in a missing file or in one without tables; return its connection."""
    connection = open_writer(path, journal)
    try:
        _create_tables(connection, identity, after_revision)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def new_index(
    path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int
) -> Iterator[apsw.Connection]:
    """Create an empty index and close it when the block ends; errors of opening and closing are translated."""
    with translated():
        connection = create_index(path, identity, journal, after_revision)
    try:
        yield connection
    finally:
        with translated():
            connection.close()


def sizes(path: Path) -> StoreSizes:
    """Return the bytes of an index and of its write-ahead log; 0 for a missing file. Blocks."""
    return StoreSizes(*size_bytes(path))


def _create_tables(connection: apsw.Connection, identity: BuildIdentity, after_revision: int) -> None:
    with transaction(connection):
        schema.create(connection, identity, after_revision)


def set_aside(path: Path, reason: str) -> Degradation:
    """Rename a damaged index; return the degradation with the `reason` and the new name."""
    aside = move_aside(path, time.time())
    return impaired(path, aside, f"{reason}; the damaged file was set aside as {aside}")


def _open_or_create(path: Path, identity: BuildIdentity, journal: JournalMode, after_revision: int) -> OpenedIndex:
    connection = open_writer(path, journal)
    try:
        if schema.is_empty(connection):
            _create_tables(connection, identity, after_revision)
        version = schema.user_version(connection)
        refuse_newer(path, version)
        if version == schema.SCHEMA_VERSION or schema.upgrade(connection):
            discard_outdated(connection)
            return OpenedIndex(connection, IndexFacts.of(connection, identity))
    except BaseException:
        connection.close()
        raise
    connection.close()
    remove_database(path)
    reason = f"the index was created by an older memoryd (schema {version}) and is being rebuilt from the Markdown"
    return _created(path, identity, journal, after_revision, impaired(path, path, reason))


def usable_path(wanted: Path) -> tuple[Path, Degradation | None]:
    """Return the wanted path, or a sibling if another program's database is at the wanted path.

    Raises:
        IndexUnavailable: another program's database is at the sibling's path too.
    """
    if not _is_foreign(wanted):
        return wanted, None
    sibling = wanted.with_name(f"{wanted.stem}.memoryd.sqlite")
    if _is_foreign(sibling):
        raise IndexUnavailable(
            f"{wanted} and {sibling} are databases of other programs; configure another path for the index"
        )
    return sibling, impaired(wanted, sibling, f"{wanted} is another program's database and was not changed")


def former_index(wanted: Path) -> Path | None:
    """Return the path of an index that memoryd 0.1.0 has left for `wanted`; None if there is none."""
    former = relocation.former_path(wanted)
    if former is None or wanted.exists() or ready_path(wanted).exists():
        return None
    return former if _is_own(former) or _is_own(ready_path(former)) else None


def move_former(wanted: Path, journal: JournalMode) -> None:
    """Move the index of memoryd 0.1.0, if there is one, to the wanted path.

    Raises:
        IndexBusy: another process holds the index.
        apsw.Error: the log of a database that is not damaged cannot be applied; nothing was moved.
        OSError: a file cannot be moved.
    """
    former = former_index(wanted)
    if former is not None:
        recover(former)
        relocation.move_former(wanted, former, journal)


def refuse_newer(path: Path, version: int) -> None:
    """Raise IndexTooNew if the schema version is one of a newer memoryd."""
    if version > schema.SCHEMA_VERSION:
        raise IndexTooNew(
            f"the index {path} has schema version {version}, but this memoryd supports at most "
            f"{schema.SCHEMA_VERSION}; upgrade memoryd, or delete the file to have it rebuilt from the Markdown"
        )


def _header(path: Path) -> bytes:
    """Return the file's header, read without SQLite, which could write files next to it; empty if it is no database."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return b""
    return header if len(header) == _HEADER_BYTES and header.startswith(_MAGIC) else b""


def header_version(path: Path) -> int:
    """Return the schema version in the file's header; 0 if it is no database. The log may hold a later version."""
    return int.from_bytes(_header(path)[60:64], "big")


def _is_foreign(path: Path) -> bool:
    """Return whether another program's SQLite database is at `path`. A damaged file does not count as foreign."""
    return bool(_header(path)) and not _is_own(path)


def _is_own(path: Path) -> bool:
    return int.from_bytes(_header(path)[68:72], "big") == APPLICATION_ID


@contextmanager
def read_only_translated(folder: Path) -> Iterator[None]:
    """Translate the errors of a folder that cannot be written.

    Raises:
        IndexReadOnly: the folder is read-only.
    """
    try:
        yield
    except (apsw.ReadOnlyError, apsw.CantOpenError, OSError) as error:
        read_only = error.errno in READ_ONLY if isinstance(error, OSError) else not os.access(folder, os.W_OK | os.X_OK)
        if not read_only:
            raise
        raise IndexReadOnly(
            f"{folder} cannot be written ({error}); make it writable for the daemon's user, or choose another "
            "--state-dir"
        ) from error


def open_read_only(path: Path, readers: int, refusal: MemorydError) -> ReaderPool:
    """Return readers of the index at `path`; `refusal` says why it cannot be written.

    Raises:
        IndexTooNew: the index was written by a newer memoryd.
        MemorydError: the refusal: there is no index, or it must be written before it can be read.
        apsw.Error: the index cannot be read.
    """
    # A rebuild whose swap was interrupted is complete, and newer than the index that it should replace.
    existing = next((each for each in (ready_path(path), path) if each.exists()), None)
    if existing is None:
        raise _extended(refusal, "there is no index yet that could be read")
    pool = ReaderPool(existing, readers, open_reader if _has_journal(existing) else open_unchanging)
    try:
        with pool.connection() as connection:
            _check_version(existing, schema.user_version(connection), refusal)
    except BaseException as error:
        pool.close()
        if is_damage(error):
            raise _extended(refusal, f"the index is damaged ({damage_reason(error)})") from error
        raise
    return pool


def _check_version(path: Path, version: int, refusal: MemorydError) -> None:
    refuse_newer(path, version)
    if version < schema.SCHEMA_VERSION:
        raise _extended(refusal, "the index was created by an older memoryd and has to be upgraded first")


def _extended(refusal: MemorydError, reason: str) -> MemorydError:
    """Return the refusal with the reason why the index cannot be read either."""
    return type(refusal)(f"{refusal.message}; {reason}")


def _has_journal(path: Path) -> bool:
    """Return whether there is a journal next to the file that may hold a transaction of a killed daemon."""
    journals = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    return any(journal.exists() and journal.stat().st_size for journal in journals)


MAX_DAMAGED_FILES = 2
"""How many damaged files are kept for examination, the newest ones."""

_JOURNALS = ("-wal", "-shm", "-journal")


def rebuilding_path(path: Path) -> Path:
    """Return the path that a rebuild writes to."""
    return path.with_name(path.name + ".rebuilding")


def ready_path(path: Path) -> Path:
    """Return the path of a complete rebuild that has not replaced the index yet."""
    return path.with_name(path.name + ".ready")


def commit(path: Path) -> None:
    """Put the complete rebuild in place. Both files must be closed, and stay closed until this returns."""
    rebuilding_path(path).replace(ready_path(path))
    sync_folder(path.parent)
    _finish(path)


def recover(path: Path) -> None:
    """Complete a swap that had begun, and remove the files of an incomplete rebuild."""
    remove_database(rebuilding_path(path))
    if ready_path(path).exists():
        _finish(path)


def discard(path: Path) -> None:
    """Remove the files of a failed rebuild, so that a later start does not take it for newer than the index."""
    remove_database(rebuilding_path(path))
    ready_path(path).unlink(missing_ok=True)


def move_aside(path: Path, unix_seconds: float) -> Path:
    """Rename a damaged database to a name with the time, remove its journals, and return the new path.

    Older damaged files beyond `MAX_DAMAGED_FILES` are removed.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_seconds))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    path.replace(aside)
    remove_journals(path)
    for old in sorted(path.parent.glob(f"{glob.escape(path.name)}.damaged-*"))[:-MAX_DAMAGED_FILES]:
        old.unlink(missing_ok=True)
    sync_folder(path.parent)
    return aside


def remove_database(path: Path) -> None:
    """Remove a database file with its journals; missing files are ignored."""
    path.unlink(missing_ok=True)
    remove_journals(path)


def remove_journals(path: Path) -> None:
    """Remove the journals of a database that is gone or was set aside."""
    for suffix in _JOURNALS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _finish(path: Path) -> None:
    remove_journals(path)
    sync_folder(path.parent)
    ready_path(path).replace(path)
    sync_folder(path.parent)
