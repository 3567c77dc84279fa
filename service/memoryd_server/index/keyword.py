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
COMMON_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class KeywordAnswer:
    """Candidates, best first, and the terms that were searched."""

    hits: tuple[KeywordHit, ...]
    terms: tuple[str, ...]


def search(
    reader: IndexReader, terms: Sequence[QueryTerm], sources: Sequence[Source], limit: int, chunk_count: int
) -> KeywordAnswer:
    """Finds the chunks that hold any of the terms. The user's text is never FTS5 syntax: each term is quoted."""
    terms = [term for term in terms if not term.prefix or reader.begins_a_term(term.text)]
    frequencies = reader.document_frequencies(term.text for term in terms if not term.prefix)
    chosen = choose_terms(terms, frequencies, chunk_count)
    if not chosen:
        return KeywordAnswer((), ())
    hits = reader.keyword(" OR ".join(map(expression, chosen)), sources, limit)
    return KeywordAnswer(tuple(hits), tuple(term.text for term in chosen))


def choose_terms(terms: Sequence[QueryTerm], frequencies: Mapping[str, int], chunk_count: int) -> tuple[QueryTerm, ...]:
    """The rarest terms that the index holds, in the query's order; prefixes are always kept.

    Terms that stand in more than half of a large index are left out while rarer ones remain.
    """
    present = [term for term in terms if term.prefix or frequencies.get(term.text, 0) > 0]
    large = chunk_count > LARGE_INDEX_CHUNKS
    if large:
        rare = [t for t in present if frequencies.get(t.text, 0) <= COMMON_SHARE * chunk_count]
        present = rare or present
    ranked = sorted(present, key=lambda term: frequencies.get(term.text, 0))
    kept = set(ranked[: MOST_TERMS_IN_A_LARGE_INDEX if large else MOST_TERMS])
    return tuple(term for term in present if term in kept)


def expression(term: QueryTerm) -> str:
    """The term as an FTS5 string, quotes doubled."""
    quoted = '"' + term.text.replace('"', '""') + '"'
    return quoted + "*" if term.prefix else quoted
