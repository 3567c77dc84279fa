"""Brings an index of an older schema up to date in place, in one transaction.

A schema that no step leads from is no loss: the index is derived, and a sync builds it anew.
"""

import json
from collections.abc import Callable, Mapping

import apsw

from memoryd_server.index import schema
from memoryd_server.index.connection import transaction


def upgrade(connection: apsw.Connection) -> bool:
    """Takes every step to the present schema, or none; false where there is no way from the file's schema."""
    first = schema.user_version(connection)
    if any(version not in _STEPS for version in range(first, schema.SCHEMA_VERSION)):
        return False
    with transaction(connection):
        for version in range(first, schema.SCHEMA_VERSION):
            _STEPS[version](connection)
        connection.execute(f"PRAGMA user_version={schema.SCHEMA_VERSION}")
    return True


def _make_room_for_vectors_and_languages(connection: apsw.Connection) -> None:
    """From 1 to 2. What language a file is in is found out by the refresh of the keyword leg that is due."""
    connection.execute("ALTER TABLE files ADD COLUMN language TEXT NOT NULL DEFAULT ''")
    connection.execute("CREATE TABLE vectors(chunk_id INTEGER PRIMARY KEY, embedding BLOB NOT NULL)")
    connection.execute("CREATE INDEX vectors_by_chunk ON vectors(chunk_id)")
    # The analyzer's version was part of the identity then, and would ask for a rebuild.
    identity = json.loads(str(schema.get_meta(connection, "identity")))
    identity.pop("analyzer_version", None)
    schema.set_meta(connection, "identity", json.dumps(identity, sort_keys=True))


def _list_chunks_without_vector(connection: apsw.Connection) -> None:
    """From 2 to 3."""
    connection.execute("CREATE TABLE unembedded(chunk_id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO unembedded SELECT id FROM chunks WHERE id NOT IN (SELECT chunk_id FROM vectors)")


def _make_room_for_transcripts(connection: apsw.Connection) -> None:
    """From 3 to 4."""
    connection.execute("ALTER TABLE chunks ADD COLUMN line_numbers TEXT")
    connection.execute(schema.TRANSCRIPTS)


_STEPS: Mapping[int, Callable[[apsw.Connection], None]] = {
    1: _make_room_for_vectors_and_languages,
    2: _list_chunks_without_vector,
    3: _make_room_for_transcripts,
}
