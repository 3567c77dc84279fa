"""The values of a file's front matter that filters compare, and the date of a file.

Left out are keys of more than `MAX_KEY_CHARS` characters, values of more than `MAX_VALUE_CHARS`, and those after the
first `MAX_VALUES` of a file.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from memoryd_server.foreign_text import parse_json
from memoryd_server.sources import note_day
from memoryd_server.store.filters import front_matter_value

MAX_KEY_CHARS: Final = 128
MAX_VALUE_CHARS: Final = 256
MAX_VALUES: Final = 256


def front_matter_values(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
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


def file_date(path: str, metadata: Mapping[str, Any]) -> str | None:
    """Return the date of a file as an index stores it; None if neither its name nor its front matter has one."""
    day = note_day(path, metadata)
    return None if day is None else day.isoformat()


def parse_metadata(stored: str | None) -> Mapping[str, Any]:
    """Return the front matter that is stored as JSON; empty if there is none or it is damaged."""
    try:
        metadata = parse_json(stored) if stored else {}
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}
