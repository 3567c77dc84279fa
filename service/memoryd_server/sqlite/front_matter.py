"""The table of the values of front matter, which filters compare: one row for each key, value and file."""

from collections.abc import Mapping
from typing import Any

import apsw

from memoryd_server.store import front_matter_values

# In this order, a condition is one range of the primary key.
FRONT_MATTER = """CREATE TABLE front_matter(
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        file_id INTEGER NOT NULL REFERENCES files(id),
        PRIMARY KEY(key, value, file_id)) WITHOUT ROWID"""
FRONT_MATTER_BY_FILE = "CREATE INDEX front_matter_by_file ON front_matter(file_id)"


def insert(connection: apsw.Connection, file_id: int, metadata: Mapping[str, Any]) -> None:
    """Store the values of a file that has none stored, within the caller's transaction."""
    connection.executemany(
        "INSERT INTO front_matter(key, value, file_id) VALUES(?, ?, ?)",
        [(key, value, file_id) for key, value in front_matter_values(metadata)],
    )


def delete(connection: apsw.Connection, file_id: int) -> None:
    """Delete the values of a file, within the caller's transaction."""
    connection.execute("DELETE FROM front_matter WHERE file_id = ?", (file_id,))
