"""Builds the keyword leg anew from the stored text, when the analyzer gives other tokens than it was built with.

No file is read and no vector touched. All of it is one transaction: searches go on with the old words until its end,
and a crash in between leaves them as they were.
"""

import itertools
from collections.abc import Callable

import apsw

from memoryd_server.errors import SyncCancelled
from memoryd_server.index import schema
from memoryd_server.index.connection import transaction
from memoryd_server.index.purge import note_deleted_words
from memoryd_server.index.words import chunk_words
from memoryd_server.model import Source
from memoryd_server.store.rows import language_of
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
