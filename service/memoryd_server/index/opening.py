"""Opens the file of an index for writing: creates, recovers, upgrades it, or sets it aside where it is damaged."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import apsw

from memoryd_server.errors import IndexTooNew, IndexUnavailable
from memoryd_server.index import migrate, refresh, schema, swap
from memoryd_server.index.condition import impaired, size_bytes
from memoryd_server.index.connection import (
    APPLICATION_ID,
    Journal,
    damage_words,
    is_damage,
    open_writer,
    transaction,
    translated,
)
from memoryd_server.model import Degradation
from memoryd_server.store.identity import BuildIdentity, Difference
from memoryd_server.store.protocol import StoreSizes

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
            refresh.keyword_outdated(connection),
            schema.get_meta(connection, "last_sync_ms") is not None,
        )


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An open index. `mishap` says what was found in its place, and where that is now; None when nothing was."""

    connection: apsw.Connection
    facts: IndexFacts
    mishap: Degradation | None = None


def open_index(path: Path, identity: BuildIdentity, journal: Journal, after_revision: int) -> IndexFile:
    """The index at `path`; one that has to be begun has a revision above `after_revision`.

    Raises:
        IndexTooNew: a newer memoryd wrote it; nothing has been touched.
        apsw.Error, OSError: it can neither be opened nor made.
    """
    refuse_newer(path, header_version(path))
    swap.recover(path)
    try:
        return _open_or_begin(path, identity, journal, after_revision)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        mishap = set_aside(path, f"the index is damaged ({damage_words(error)}) and is built anew from the Markdown")
        return _begun(path, identity, journal, after_revision, mishap)


def _begun(
    path: Path, identity: BuildIdentity, journal: Journal, after_revision: int, mishap: Degradation | None = None
) -> IndexFile:
    connection = begin(path, identity, journal, after_revision)
    return IndexFile(connection, IndexFacts.of(connection, identity), mishap)


def begin(path: Path, identity: BuildIdentity, journal: Journal, after_revision: int) -> apsw.Connection:
    """An empty index where no file is, or one without tables."""
    connection = open_writer(path, journal)
    try:
        _make_tables(connection, identity, after_revision)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def begun(path: Path, identity: BuildIdentity, journal: Journal, after_revision: int) -> Iterator[apsw.Connection]:
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
    aside = swap.set_aside(path, time.time())
    return impaired(path, aside, f"{why}; the damaged file was set aside as {aside}")


def _open_or_begin(path: Path, identity: BuildIdentity, journal: Journal, after_revision: int) -> IndexFile:
    connection = open_writer(path, journal)
    try:
        if schema.is_empty(connection):
            _make_tables(connection, identity, after_revision)
        version = schema.user_version(connection)
        refuse_newer(path, version)
        if version == schema.SCHEMA_VERSION or migrate.upgrade(connection):
            return IndexFile(connection, IndexFacts.of(connection, identity))
    except BaseException:
        connection.close()
        raise
    connection.close()
    swap.remove_database(path)
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
