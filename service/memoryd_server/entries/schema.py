"""The columns of a dataset, and entries as its rows. The names are the reference's where it has them."""

import hashlib
from collections.abc import Mapping
from typing import Any

from memoryd_server.entries.model import Category, Embedded, Entry

TABLE = "memories"
VECTOR = "vector"

SHOWN = ("id", "text", "importance", "category", "createdAt", "key")
"""The columns that an entry is made of."""

_CATEGORIES = frozenset(Category)

WORDS_INDEX: Mapping[str, Any] = {
    "base_tokenizer": "whitespace",
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}
"""The tokens are memoryd's own already: LanceDB only takes them apart at the spaces."""


def columns() -> Any:
    """The columns of a new dataset. That of the vectors comes with the first one, whose length it has."""
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("importance", pa.float64()),
            pa.field("category", pa.string()),
            pa.field("createdAt", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("hash", pa.string()),
            pa.field("tokens", pa.string()),
            pa.field("embedding", pa.string()),
        ]
    )


def vector_column(dimensions: int) -> Any:
    """The column of vectors of this length."""
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    return pa.field(VECTOR, pa.list_(pa.float32(), dimensions))


def row(entry: Entry, tokens: str, embedded: Embedded | None) -> dict[str, Any]:
    """An entry as a row; without a vector where there is none."""
    found: dict[str, Any] = {
        "id": entry.entry_id,
        "text": entry.text,
        "importance": entry.importance,
        "category": entry.category.value,
        "createdAt": entry.created_ms,
        "key": entry.key,
        "hash": text_hash(entry.text),
        "tokens": tokens,
        "embedding": "",
    }
    return found if embedded is None else {**found, **embedding(embedded)}


def embedding(embedded: Embedded) -> dict[str, Any]:
    """A vector as part of a row."""
    return {"embedding": embedded.identity, VECTOR: embedded.vector}


def entry(found: Mapping[str, Any]) -> Entry:
    """The entry of a row with the columns `SHOWN`. A category that another program wrote is OTHER."""
    return Entry(
        found["id"],
        found["text"] or "",
        found["importance"] or 0.0,
        Category(found["category"]) if found["category"] in _CATEGORIES else Category.OTHER,
        found["createdAt"],
        found["key"] or "",
    )


def text_hash(text: str) -> str:
    """What the very same text has in common with itself."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def quoted(text: str) -> str:
    """A text in a condition."""
    return "'" + text.replace("'", "''") + "'"
