"""The tables of an index file: creation, metadata, upgrades of older schemas, and a probe of SQLite's features.

An upgrade changes the file in place, in one transaction. If there is no upgrade from a schema, the index is rebuilt
from the Markdown.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import apsw

from memoryd_server.errors import IndexDamaged
from memoryd_server.sqlite import front_matter
from memoryd_server.sqlite.connection import scalar, transaction
from memoryd_server.store import TOKENIZER, BuildIdentity, Difference, file_date, parse_metadata
from memoryd_server.text import ANALYZER_VERSION

SCHEMA_VERSION = 7

# How far each transcript was read, in bytes and lines, and by which version of the reader.
TRANSCRIPTS = """CREATE TABLE transcripts(
        file_id INTEGER PRIMARY KEY REFERENCES files(id),
        version TEXT NOT NULL,
        read_bytes INTEGER NOT NULL,
        read_lines INTEGER NOT NULL)"""

VECTORS_BY_CHUNK = "CREATE INDEX vectors_by_chunk ON vectors(chunk_id)"

# The notes and chunks of a range of days. Most chunks have no day of their own.
FILES_BY_DAY = "CREATE INDEX files_by_day ON files(day) WHERE day IS NOT NULL"
CHUNKS_BY_DAY = "CREATE INDEX chunks_by_day ON chunks(day) WHERE day IS NOT NULL"

# The chunks that a filter leaves are found in these indexes alone. The id is named, so that a file's chunks are in its
# order.
CHUNKS_BY_FILE = "CREATE INDEX chunks_by_file ON chunks(file_id, id, origin)"
FILES_BY_DATE = "CREATE INDEX files_by_date ON files(date, mtime_ns, source, path)"

# `day` is the date of a note, which ranks its chunks. `date`, by which filters select, is also that in the name of a
# transcript; NULL if only the time of the last modification is known.
# bm25() of a contentless table needs detail=full; with less it answers 0.0 for every row.
_TABLES = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    """CREATE TABLE files(
        id INTEGER PRIMARY KEY,
        source TEXT NOT NULL,
        path TEXT NOT NULL,
        hash BLOB NOT NULL,
        size_bytes INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        ctime_ns INTEGER NOT NULL,
        device INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        chunk_count INTEGER NOT NULL,
        metadata TEXT,
        language TEXT NOT NULL DEFAULT '',
        error TEXT,
        day TEXT,
        rows_version INTEGER NOT NULL DEFAULT 0,
        skipped INTEGER NOT NULL DEFAULT 0,
        date TEXT,
        UNIQUE(source, path))""",
    """CREATE TABLE chunks(
        id INTEGER PRIMARY KEY,
        file_id INTEGER NOT NULL REFERENCES files(id),
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        content_hash BLOB NOT NULL,
        breadcrumb TEXT NOT NULL,
        text TEXT NOT NULL,
        line_numbers TEXT,
        line_origins TEXT,
        origin TEXT,
        day TEXT,
        importance INTEGER,
        triggers TEXT,
        projects TEXT)""",
    CHUNKS_BY_FILE,
    FILES_BY_DAY,
    CHUNKS_BY_DAY,
    FILES_BY_DATE,
    front_matter.FRONT_MATTER,
    front_matter.FRONT_MATTER_BY_FILE,
    "CREATE TABLE vectors(chunk_id INTEGER PRIMARY KEY, embedding BLOB NOT NULL)",
    # Counting would otherwise read the blobs.
    VECTORS_BY_CHUNK,
    # The chunks without a vector. Finding them would otherwise scan all chunks.
    "CREATE TABLE unembedded(chunk_id INTEGER PRIMARY KEY)",
    TRANSCRIPTS,
    f"""CREATE VIRTUAL TABLE keyword USING fts5(
        body, context, content='', contentless_delete=1, detail=full, tokenize="{TOKENIZER}")""",
)

VECTOR_IDENTITY = "vector_identity"
STAGED_IDENTITY = "staged_identity"
# The revision of the chunks that the staged vectors belong to: the index revision, unless an older memoryd, which does
# not know them, has changed the index.
_STAGED_REVISION = "staged_revision"
_MIXED_CHUNKING = "mixed_chunking"
# Set when a chunk with an importance or projects is written. It stays set when the last one is removed.
ANNOTATED = "annotated"
_DELETED_WORDS = "deleted_words"
# The number of times that file times changed and the revision did not. Filters by date depend on both.
TOUCHES = "touches"

# Unix milliseconds. A new revision is never below the current time, so that it rises even if the file with the earlier
# revisions is lost.
_NOW_MS = "CAST(unixepoch('subsec') * 1000 AS INTEGER)"


def create(connection: apsw.Connection, identity: BuildIdentity, after_revision: int) -> None:
    """Create the tables in an empty file, within the caller's transaction; its revision is above `after_revision`."""
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    for statement in _TABLES:
        connection.execute(statement)
    set_meta(connection, "identity", identity.to_json())
    set_meta(connection, "analyzer_version", ANALYZER_VERSION)
    set_meta(connection, "revision", after_revision)
    raise_revision(connection)


def get_meta(connection: apsw.Connection, key: str) -> str | int | None:
    """Return a value of the meta table; None if it is not set."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(connection: apsw.Connection, key: str, value: str | int) -> None:
    """Set a value of the meta table."""
    connection.execute("INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", (key, value))


def record_chunking(connection: apsw.Connection, identity_json: str) -> None:
    """Record, within the caller's transaction, that the index mixes two chunkings, if `identity_json` is a new one."""
    if get_meta(connection, "identity") != identity_json:
        set_meta(connection, _MIXED_CHUNKING, 1)


def record_deleted_words(connection: apsw.Connection) -> None:
    """Record, within the caller's transaction, that a purge is due."""
    set_meta(connection, _DELETED_WORDS, 1)


def has_deleted_words(connection: apsw.Connection) -> bool:
    """Return whether words of deleted chunks may still be on the disk."""
    return bool(get_meta(connection, _DELETED_WORDS))


def clear_deleted_words(connection: apsw.Connection) -> None:
    """Record that no purge is due."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_DELETED_WORDS,))


def build_differences(connection: apsw.Connection, wanted: BuildIdentity) -> tuple[Difference, ...]:
    """Return how the build identity of an index differs from the wanted one; empty if no rebuild is due."""
    stored = BuildIdentity.from_json(str(get_meta(connection, "identity")))
    if stored is None:
        return (("build", "unknown", wanted.to_json()),)
    differences = stored.differences(wanted)
    if not differences and get_meta(connection, _MIXED_CHUNKING):
        return (("chunking", "mixed", "uniform"),)
    return differences


def raise_revision(connection: apsw.Connection) -> int:
    """Raise the index revision, within the caller's transaction; return it."""
    row: tuple[Any, ...] | None = connection.execute(
        f"UPDATE meta SET value = max(value + 1, {_NOW_MS}) WHERE key = 'revision' RETURNING value"  # noqa: S608 -- a constant
    ).fetchone()
    if row is None:
        raise IndexDamaged("the index is damaged: its meta table has no revision; it is rebuilt from the Markdown")
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", (row[0], _STAGED_REVISION))
    return int(row[0])


def count_touch(connection: apsw.Connection) -> None:
    """Record, within the caller's transaction, that the times of files changed without a new revision."""
    set_meta(connection, TOUCHES, int(get_meta(connection, TOUCHES) or 0) + 1)


def revision(connection: apsw.Connection) -> int:
    """Return the index revision."""
    return int(get_meta(connection, "revision") or 0)


def begin_staging(connection: apsw.Connection, identity_json: str) -> None:
    """Record, within the caller's transaction, that the index has a staged set of vectors, and its identity."""
    set_meta(connection, STAGED_IDENTITY, identity_json)
    set_meta(connection, _STAGED_REVISION, revision(connection))


def is_staging(connection: apsw.Connection) -> bool:
    """Return whether the index has a staged set of vectors."""
    return get_meta(connection, STAGED_IDENTITY) is not None


def is_staged_revision(connection: apsw.Connection) -> bool:
    """Return whether the staged set of vectors belongs to the chunks of the index."""
    return get_meta(connection, _STAGED_REVISION) == revision(connection)


def end_staging(connection: apsw.Connection) -> None:
    """Record, within the caller's transaction, that the index has no staged set of vectors."""
    connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (STAGED_IDENTITY, _STAGED_REVISION))


def user_version(connection: apsw.Connection) -> int:
    """Return the schema version that the file was created with."""
    return int(scalar(connection, "PRAGMA user_version"))


def is_empty(connection: apsw.Connection) -> bool:
    """Return whether the file has no table yet."""
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def upgrade(connection: apsw.Connection) -> bool:
    """Upgrade to the current schema, completely or not at all; return False if the file's schema cannot be upgraded."""
    first = user_version(connection)
    if any(version not in _STEPS for version in range(first, SCHEMA_VERSION)):
        return False
    with transaction(connection):
        for version in range(first, SCHEMA_VERSION):
            _STEPS[version](connection)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    return True


def _add_vectors_and_languages(connection: apsw.Connection) -> None:
    """Upgrade from 1 to 2. The rebuild of the keyword index, which is due after it, detects the languages."""
    connection.execute("ALTER TABLE files ADD COLUMN language TEXT NOT NULL DEFAULT ''")
    connection.execute("CREATE TABLE vectors(chunk_id INTEGER PRIMARY KEY, embedding BLOB NOT NULL)")
    connection.execute(VECTORS_BY_CHUNK)
    # In schema 1 the analyzer's version was part of the identity, and would require a rebuild.
    identity = json.loads(str(get_meta(connection, "identity")))
    identity.pop("analyzer_version", None)
    set_meta(connection, "identity", json.dumps(identity, sort_keys=True))


def _add_pending_chunks(connection: apsw.Connection) -> None:
    """Upgrade from 2 to 3."""
    connection.execute("CREATE TABLE unembedded(chunk_id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO unembedded SELECT id FROM chunks WHERE id NOT IN (SELECT chunk_id FROM vectors)")


def _add_transcripts(connection: apsw.Connection) -> None:
    """Upgrade from 3 to 4."""
    connection.execute("ALTER TABLE chunks ADD COLUMN line_numbers TEXT")
    connection.execute(TRANSCRIPTS)


def _add_annotations(connection: apsw.Connection) -> None:
    """Upgrade from 4 to 5, without reading a row. Syncs fill the columns of files whose `rows_version` is 0."""
    connection.execute("ALTER TABLE files ADD COLUMN day TEXT")
    connection.execute("ALTER TABLE files ADD COLUMN rows_version INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE files ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0")
    for name in ("line_origins", "origin", "day", "triggers", "projects"):
        connection.execute(f"ALTER TABLE chunks ADD COLUMN {name} TEXT")
    connection.execute("ALTER TABLE chunks ADD COLUMN importance INTEGER")


def _add_day_indexes(connection: apsw.Connection) -> None:
    """Upgrade from 5 to 6."""
    connection.execute(FILES_BY_DAY)
    connection.execute(CHUNKS_BY_DAY)


def _add_filters(connection: apsw.Connection) -> None:
    """Upgrade from 6 to 7: fill the dates and the front matter from the rows of the files, without reading a file.

    Damaged front matter counts as none. The rows of chunks stay as they are: those of schema 4 and older have no origin
    until the next sync.
    """
    connection.execute("ALTER TABLE files ADD COLUMN date TEXT")
    connection.execute("DROP INDEX chunks_by_file")
    for statement in (CHUNKS_BY_FILE, front_matter.FRONT_MATTER, front_matter.FRONT_MATTER_BY_FILE):
        connection.execute(statement)
    rows: list[tuple[Any, ...]] = connection.execute("SELECT id, path, metadata FROM files").fetchall()
    for file_id, path, stored in rows:
        metadata = parse_metadata(stored)
        front_matter.insert(connection, file_id, metadata)
        connection.execute("UPDATE files SET date = ? WHERE id = ?", (file_date(path, metadata), file_id))
    connection.execute(FILES_BY_DATE)


_STEPS: Mapping[int, Callable[[apsw.Connection], None]] = {
    1: _add_vectors_and_languages,
    2: _add_pending_chunks,
    3: _add_transcripts,
    4: _add_annotations,
    5: _add_day_indexes,
    6: _add_filters,
}


def sqlite_version() -> str:
    """Return the version of the SQLite library in use."""
    return str(apsw.sqlite_lib_version())


def sqlite_options() -> tuple[str, ...]:
    """Return SQLite's compile-time options, such as "ENABLE_FTS5"."""
    return tuple(apsw.compile_options)


def probe_keyword_engine() -> None:
    """Create a keyword table in memory, insert a row and find it again.

    Raises:
        apsw.Error: SQLite lacks a feature.
        LookupError: the row was not found, or has no rank.
    """
    connection = apsw.Connection(":memory:")
    table = f"CREATE VIRTUAL TABLE t USING fts5(body, content='', contentless_delete=1, tokenize=\"{TOKENIZER}\")"
    connection.execute(table)
    connection.execute("INSERT INTO t(rowid, body) VALUES(1, 'harbour light')")
    rank = scalar(connection, "SELECT bm25(t) FROM t WHERE t MATCH 'harbour'")
    connection.close()
    if rank is None or rank >= 0:
        raise LookupError("this SQLite's FTS5 does not rank rows of contentless tables")
