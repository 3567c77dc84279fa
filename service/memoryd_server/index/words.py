"""What the keyword leg holds of a chunk: the tokens of its text, and those of what stands around it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from memoryd_server.model import Source
from memoryd_server.store.rows import file_name, keyword_tokens
from memoryd_server.text import Analyzer


@dataclass(frozen=True, slots=True)
class ChunkWords:
    """A stored chunk with all that its tokens are made of."""

    id: int
    text: str
    breadcrumb: str
    name: str
    language: str

    def tokens(self, analyzer: Analyzer) -> tuple[str, str]:
        """The tokens of the two columns, body and context."""
        return keyword_tokens(analyzer, self.text, self.breadcrumb, self.name, self.language)


def chunk_words(connection: apsw.Connection, ids: Sequence[int]) -> list[ChunkWords]:
    """Reads the chunks of these ids; unknown ids are left out."""
    rows = connection.execute(
        "SELECT chunks.id, text, breadcrumb, path, metadata, language, source"  # noqa: S608 -- marks
        " FROM chunks JOIN files ON files.id = file_id"
        f" WHERE chunks.id IN ({','.join('?' * len(ids))})",
        tuple(ids),
    )
    return [
        ChunkWords(chunk_id, text, breadcrumb, _name(Source(source), path, metadata), language)
        for chunk_id, text, breadcrumb, path, metadata, language, source in rows
    ]


def _name(source: Source, path: str, metadata: str | None) -> str:
    # A transcript's name tells nothing, and changes when it is rotated.
    return "" if source is Source.SESSIONS else file_name(path, json.loads(metadata or "{}"))
