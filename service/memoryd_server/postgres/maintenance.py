"""Rebuild the keyword index from the stored text. No file is read and no vector is changed."""

import itertools

from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Source
from memoryd_server.postgres import keyword
from memoryd_server.postgres.scope import OWN, AgentScope, Row
from memoryd_server.store import StopSign, file_name, keyword_tokens, language_of, parse_metadata
from memoryd_server.text import ANALYZER_VERSION, Analyzer

_CHUNK_BATCH = 500

_OF_FILES = """FROM chunks AS c JOIN files AS f
    ON f.agent_id = c.agent_id AND f.generation = c.generation AND f.id = c.file_id
    WHERE c.agent_id = %(agent)s AND c.generation = %(generation)s"""


def refresh_keyword(scope: AgentScope, analyzer: Analyzer, should_stop: StopSign) -> int:
    """Analyze every chunk again and replace the keyword index, in one transaction; return the new revision.

    Raises:
        SyncCancelled: `should_stop` returned true.
    """
    _detect_languages(scope, analyzer)
    keyword.clear(scope)
    tokens, after = 0, 0
    while rows := _texts_after(scope, after):
        if should_stop():
            raise SyncCancelled("the sync run was cancelled; the old keyword index stays in use")
        after = rows[-1][0]
        terms = [(row[0], keyword.chunk_terms(*_tokens(analyzer, row))) for row in rows]
        keyword.insert_terms(scope, terms)
        lengths = [{"id": chunk_id, "length": each.length} for chunk_id, each in terms]
        scope.run_many(f"UPDATE chunks SET token_count = %(length)s WHERE {OWN} AND id = %(id)s", lengths)  # noqa: S608 -- a constant
        tokens += sum(each.length for _, each in terms)
    scope.run(
        f"""UPDATE generations SET analyzer_version = %(version)s, token_count = %(tokens)s, has_deleted_text = true
            WHERE {OWN}""",  # noqa: S608 -- a constant
        version=ANALYZER_VERSION,
        tokens=tokens,
    )
    return scope.raise_revision()


def _detect_languages(scope: AgentScope, analyzer: Analyzer) -> None:
    """Detect the language of each file again, from its chunks."""
    rows = scope.all(f"SELECT f.id, source, text {_OF_FILES} ORDER BY f.id, c.id")
    languages = [
        {"file": file_id, "language": _language(analyzer, Source(source), [text for *_, text in texts])}
        for (file_id, source), texts in itertools.groupby(rows, key=lambda row: (row[0], row[1]))
    ]
    scope.run_many(f"UPDATE files SET language = %(language)s WHERE {OWN} AND id = %(file)s", languages)  # noqa: S608 -- a constant


def _language(analyzer: Analyzer, source: Source, texts: list[str]) -> str:
    # A transcript keeps the language of its first chunk when it grows.
    return language_of(analyzer, texts[:1] if source is Source.SESSIONS else texts)


def _texts_after(scope: AgentScope, after: int) -> list[Row]:
    query = f"""SELECT c.id, text, breadcrumb, path, metadata, language, source
        {_OF_FILES} AND c.id > %(after)s ORDER BY c.id LIMIT %(limit)s"""
    return scope.all(query, after=after, limit=_CHUNK_BATCH)


def _tokens(analyzer: Analyzer, row: Row) -> tuple[str, str]:
    _, text, breadcrumb, path, metadata, language, source = row
    # A transcript's name carries no meaning, and changes when the transcript is rotated.
    name = "" if source == Source.SESSIONS else file_name(path, parse_metadata(metadata))
    return keyword_tokens(analyzer, text, breadcrumb, name, language)
