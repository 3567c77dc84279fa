"""The values of the files' front matter, which filters compare: one row for each key, value and file.

Left out are keys of more than `MAX_KEY_CHARS` characters, values of more than `MAX_VALUE_CHARS`, and those after the
first `MAX_VALUES` of a file.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import apsw

from memoryd_server.foreign_text import parse_json
from memoryd_server.sources import note_day
from memoryd_server.store import front_matter_value

MAX_KEY_CHARS: Final = 128
MAX_VALUE_CHARS: Final = 256
MAX_VALUES: Final = 256

# In this order, a condition is one range of the primary key.
FRONT_MATTER = """CREATE TABLE front_matter(
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        file_id INTEGER NOT NULL REFERENCES files(id),
        PRIMARY KEY(key, value, file_id)) WITHOUT ROWID"""
FRONT_MATTER_BY_FILE = "CREATE INDEX front_matter_by_file ON front_matter(file_id)"


def values_of(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each key with each of its values, as filters compare them, without duplicates."""
    return list(itertools.islice(dict.fromkeys(_values(metadata)), MAX_VALUES))


def _values(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, stored in metadata.items():
        if len(key) > MAX_KEY_CHARS:
            continue
        elements = stored if isinstance(stored, list) else [stored]
        if key == "tags" and isinstance(stored, str):
            elements = [tag for tag in stored.split(",") if tag.strip()]
        for element in elements:
            value = front_matter_value(element) if isinstance(element, str) else None
            if value is not None and len(value) <= MAX_VALUE_CHARS:
                yield key, value


def date_of(path: str, metadata: Mapping[str, Any]) -> str | None:
    """Return the date of a file as the index stores it; None if neither its name nor its front matter has one."""
    day = note_day(path, metadata)
    return None if day is None else day.isoformat()


def insert(connection: apsw.Connection, file_id: int, metadata: Mapping[str, Any]) -> None:
    """Store the values of a file that has none stored, within the caller's transaction."""
    connection.executemany(
        "INSERT INTO front_matter(key, value, file_id) VALUES(?, ?, ?)",
        [(key, value, file_id) for key, value in values_of(metadata)],
    )


def delete(connection: apsw.Connection, file_id: int) -> None:
    """Delete the values of a file, within the caller's transaction."""
    connection.execute("DELETE FROM front_matter WHERE file_id = ?", (file_id,))


def parse_metadata(stored: str | None) -> Mapping[str, Any]:
    """Return the front matter that a row of `files` stores as JSON; empty if there is none or it is damaged."""
    try:
        metadata = parse_json(stored) if stored else {}
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}
