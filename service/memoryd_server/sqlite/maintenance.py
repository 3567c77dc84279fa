"""Rebuild keyword entries; overwrite deleted words.

Builds the keyword leg anew from the stored text, when the analyzer gives other tokens than it was built with.

No file is read and no vector touched. All of it is one transaction: searches go on with the old words until its end,
and a crash in between leaves them as they were.

Makes deleted words vanish from the disk.

A row deleted from the keyword table is only marked so; its words stay in the table's segments until these are merged.
What is merged away is overwritten (`PRAGMA secure_delete`), but the write-ahead log still holds it until a checkpoint
truncates the log.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apsw

from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Source
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.connection import transaction
from memoryd_server.store import file_name, keyword_tokens, language_of
from memoryd_server.text import ANALYZER_VERSION, Analyzer

_CHUNKS_AT_ONCE = 500


def keyword_outdated(connection: apsw.Connection) -> bool:
    """Whether the tokens of the keyword leg were made by another version of the analyzer."""
    return schema.get_meta(connection, "analyzer_version") != ANALYZER_VERSION


def refresh_keyword(connection: apsw.Connection, analyzer: Analyzer, should_stop: Callable[[], bool]) -> int:
    """Analyzes every chunk again and replaces the keyword leg; returns the new revision. Some 2 s for 15,000 chunks.

    Raises:
        SyncCancelled: `should_stop` said so; nothing has changed.
    """
    with transaction(connection):
        _tell_languages(connection, analyzer)
        connection.execute("INSERT INTO keyword(keyword) VALUES('delete-all')")
        ids = [row[0] for row in connection.execute("SELECT id FROM chunks ORDER BY id")]
        for start in range(0, len(ids), _CHUNKS_AT_ONCE):
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; the old keyword index stays in use")
            connection.executemany(
                "INSERT INTO keyword(rowid, body, context) VALUES(?,?,?)",
                [
                    (chunk.id, *chunk.tokens(analyzer))
                    for chunk in chunk_words(connection, ids[start : start + _CHUNKS_AT_ONCE])
                ],
            )
        schema.set_meta(connection, "analyzer_version", ANALYZER_VERSION)
        note_deleted_words(connection)
        return schema.raise_revision(connection)


def _tell_languages(connection: apsw.Connection, analyzer: Analyzer) -> None:
    """Finds out again what language each file is written in, from its chunks."""
    rows = connection.execute(
        "SELECT file_id, source, text FROM chunks JOIN files ON files.id = file_id ORDER BY file_id, chunks.id"
    )
    languages = [
        (_language(analyzer, Source(source), [text for *_, text in texts]), file_id)
        for (file_id, source), texts in itertools.groupby(rows, key=lambda row: (row[0], row[1]))
    ]
    connection.executemany("UPDATE files SET language = ? WHERE id = ?", languages)


def _language(analyzer: Analyzer, source: Source, texts: list[str]) -> str:
    # A transcript keeps the language of its first chunk, whatever it grows by.
    return language_of(analyzer, texts[:1] if source is Source.SESSIONS else texts)


# About so many pages a step, some tens of milliseconds, so that a step keeps nobody waiting.
_PAGES_A_STEP = 500

# SQLite counts the command itself.
_CHANGES_OF_AN_IDLE_MERGE = 1

_DELETED_WORDS = "deleted_words"


def note_deleted_words(connection: apsw.Connection) -> None:
    """Remembers, within the caller's transaction, that there is something to purge."""
    schema.set_meta(connection, _DELETED_WORDS, 1)


def has_deleted_words(connection: apsw.Connection) -> bool:
    """Whether words of deleted chunks may still be on the disk."""
    return bool(schema.get_meta(connection, _DELETED_WORDS))


def purge(connection: apsw.Connection, should_stop: Callable[[], bool]) -> bool:
    """Merges the keyword table's segments into one and truncates the write-ahead log; true when all of it was done.

    False when `should_stop` said so between two steps, or when a reader kept the log from being truncated for longer
    than the connection's busy timeout; what was done until then stays done, and the next purge goes on from there.
    Costs about .2 s of work for 15,000 chunks and 1 s for 100,000.
    """
    # A negative number begins a merge of everything, and positive ones carry it on.
    pages = -_PAGES_A_STEP
    while not should_stop():
        before = connection.total_changes()
        connection.execute("INSERT INTO keyword(keyword, rank) VALUES('merge', ?)", (pages,))
        if pages > 0 and connection.total_changes() - before <= _CHANGES_OF_AN_IDLE_MERGE:
            break
        pages = _PAGES_A_STEP
    else:
        return False
    return _truncate_log(connection)


def _truncate_log(connection: apsw.Connection) -> bool:
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (1, 0, 0)
    if busy:
        return False
    # After the checkpoint, since it must not be forgotten before; it writes nothing but the mark to the log.
    connection.execute("DELETE FROM meta WHERE key = ?", (_DELETED_WORDS,))
    return True


@dataclass(frozen=True, slots=True)
class StoredChunkText:
    """A stored chunk with all that its tokens are made of."""

    id: int
    text: str
    breadcrumb: str
    name: str
    language: str

    def tokens(self, analyzer: Analyzer) -> tuple[str, str]:
        """The tokens of the two columns, body and context."""
        return keyword_tokens(analyzer, self.text, self.breadcrumb, self.name, self.language)


def chunk_words(connection: apsw.Connection, ids: Sequence[int]) -> list[StoredChunkText]:
    """Reads the chunks of these ids; unknown ids are left out."""
    rows = connection.execute(
        "SELECT chunks.id, text, breadcrumb, path, metadata, language, source"  # noqa: S608 -- marks
        " FROM chunks JOIN files ON files.id = file_id"
        f" WHERE chunks.id IN ({','.join('?' * len(ids))})",
        tuple(ids),
    )
    return [
        StoredChunkText(chunk_id, text, breadcrumb, _name(Source(source), path, metadata), language)
        for chunk_id, text, breadcrumb, path, metadata, language, source in rows
    ]


def _name(source: Source, path: str, metadata: str | None) -> str:
    # A transcript's name tells nothing, and changes when it is rotated.
    return "" if source is Source.SESSIONS else file_name(path, json.loads(metadata or "{}"))
