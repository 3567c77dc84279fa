"""What the keyword leg holds of a chunk: the tokens of its text, and those of what stands around it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import apsw

from memoryd_server.model import Source
from memoryd_server.text import Analyzer

# Each chunk of a file is found by its title, so that a long one would be indexed thousands of times over.
MOST_TITLE_CHARS = 200


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


def keyword_tokens(analyzer: Analyzer, text: str, breadcrumb: str, name: str, language: str) -> tuple[str, str]:
    """Returns the tokens of the two columns, body and context; `name` is what `file_name` says of the chunk's file."""
    return analyzer.index_tokens(text, language), analyzer.index_tokens(f"{name} {breadcrumb}", language)


def _name(source: Source, path: str, metadata: str | None) -> str:
    # A transcript's name tells nothing, and changes when it is rotated.
    return "" if source is Source.SESSIONS else file_name(path, json.loads(metadata or "{}"))


def file_name(path: str, metadata: Mapping[str, object]) -> str:
    """Returns what a file is called: its name without folder and ending, and its title, cut where it is long."""
    stem, title = PurePosixPath(path).stem, metadata.get("title")
    return f"{stem} {title[:MOST_TITLE_CHARS]}" if isinstance(title, str) else stem


def language_of(analyzer: Analyzer, texts: Sequence[str]) -> str:
    """Returns the language of a file that has these chunks: told from them, so that it can be told again later."""
    if not texts:
        return ""
    return analyzer.language_of(texts[0] if len(texts) == 1 else f"{texts[0]}\n{texts[len(texts) // 2]}")
