"""What an index holds of files, counted table by table."""

import json
from collections.abc import Sequence
from typing import Any

import apsw

from memoryd_server.index.connection import scalar
from memoryd_server.store.rows import Holdings


def holdings(connection: apsw.Connection, file_ids: Sequence[int]) -> Holdings:
    """What is held of these files."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, content_hash FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(file_ids)),),
    ).fetchall()
    ids = (json.dumps([row[0] for row in rows]),)
    # A table without contents keeps a row for each entry here.
    entries = "SELECT count(*) FROM keyword_docsize WHERE id IN (SELECT value FROM json_each(?))"
    vectors = "SELECT count(*) FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))"
    return Holdings(tuple(row[1] for row in rows), scalar(connection, entries, ids), scalar(connection, vectors, ids))


def hashes_of_chunks_with(connection: apsw.Connection, text: str) -> set[bytes]:
    """The content hashes of the chunks that hold `text` word for word."""
    query = "SELECT DISTINCT content_hash FROM chunks WHERE instr(text, ?) > 0"
    rows: list[tuple[Any, ...]] = connection.execute(query, (text,)).fetchall()
    return {row[0] for row in rows}
