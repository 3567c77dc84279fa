"""The keyword leg: plain words into a bounded OR query, ranked by BM25."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memoryd_server.index.reader import IndexReader
from memoryd_server.index.rows import KeywordHit
from memoryd_server.model import Source
from memoryd_server.text import QueryTerm

# Bounds that cost no recall and keep a long question fast; measured in the design of the keyword leg.
MOST_TERMS = 8
MOST_TERMS_IN_A_LARGE_INDEX = 6
LARGE_INDEX_CHUNKS = 50_000


@dataclass(frozen=True, slots=True)
class KeywordAnswer:
    """Candidates, best first, and the terms that were searched."""

    hits: tuple[KeywordHit, ...]
    terms: tuple[str, ...]


def search(
    reader: IndexReader,
    terms: Sequence[QueryTerm],
    sources: Sequence[Source],
    *,
    enough: int,
    limit: int,
    chunk_count: int,
) -> KeywordAnswer:
    """At most `limit` chunks that hold any of the terms. The user's text is never FTS5 syntax: each term is quoted.

    Terms of more than half the chunks are searched only when the others find fewer than `enough`: SQLite gives such a
    term an inverse document frequency of 1e-6, so it ranks nothing, and it costs the most.
    """
    terms = [term for term in terms if not term.prefix or reader.begins_a_term(term.text)]
    frequencies = reader.document_frequencies(term.text for term in terms if not term.prefix)
    chosen = choose_terms(terms, frequencies, chunk_count)
    telling = [term for term in chosen if 2 * frequencies.get(term.text, 0) < chunk_count]
    hits = _hits(reader, telling, sources, limit)
    if len(hits) < enough and len(telling) < len(chosen):
        hits = _hits(reader, chosen, sources, limit)
    return KeywordAnswer(tuple(hits), tuple(term.text for term in chosen))


def _hits(
    reader: IndexReader, terms: Sequence[QueryTerm], sources: Sequence[Source], limit: int
) -> Sequence[KeywordHit]:
    return reader.keyword(" OR ".join(map(expression, terms)), sources, limit) if terms else ()


def choose_terms(terms: Sequence[QueryTerm], frequencies: Mapping[str, int], chunk_count: int) -> tuple[QueryTerm, ...]:
    """The rarest terms that the index holds, in the query's order; prefixes are always kept."""
    present = [term for term in terms if term.prefix or frequencies.get(term.text, 0) > 0]
    ranked = sorted(present, key=lambda term: frequencies.get(term.text, 0))
    kept = set(ranked[: MOST_TERMS_IN_A_LARGE_INDEX if chunk_count > LARGE_INDEX_CHUNKS else MOST_TERMS])
    return tuple(term for term in present if term in kept)


def expression(term: QueryTerm) -> str:
    """The term as an FTS5 string, quotes doubled."""
    quoted = '"' + term.text.replace('"', '""') + '"'
    return quoted + "*" if term.prefix else quoted
