"""The keyword index: one row for each term of a chunk, and BM25 in SQL with FTS5's constants.

Scores are those of SQLite's bm25() with the weights 1.0 and 0.5 of body and context, up to rounding.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.filters import chunk_condition
from memoryd_server.postgres.scope import OWN, AgentScope, Columns
from memoryd_server.store import ChunkFilter, KeywordHit
from memoryd_server.text import QueryTerm

MAX_TERM_CHARS: Final = 256
"""Longer terms are cut, in the index and in queries: a row of an index has at most 2,700 bytes."""

# FTS5's constants (fts5_aux.c), and the weight of the context column.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6
_CONTEXT_WEIGHT = 0.5

_MAX_FREQUENCIES = 20_000

BY_CHUNK: Final = "chunk_id > 0"
"""The condition of the index of postings by chunk, which statements that use it repeat."""

# store.TOKENIZER: FTS5 splits at each ASCII character that is no letter, digit or "_", and ignores the case of ASCII.
_TERM = re.compile(r"[0-9A-Za-z_\u0080-\U0010ffff]+")
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_NAME = re.compile("[_0-9]")

# Above every term that begins with the prefix before it: the last code point is no character.
_LAST = "\U0010ffff"

# Each term is looked up on its own: OFFSET 0 keeps the planner from reading all terms of the agent, which it prefers as
# long as the server has no statistics of a new table. A prefix counts the occurrences of all its words as one term. The
# order of the sum makes the scores of equal chunks equal.
_OCCURRENCES = f"""SELECT chunk_id, number, idf, tf, chunk_tokens
    FROM unnest(%(terms)s::text[], %(idfs)s::float8[]) WITH ORDINALITY AS t(word, idf, number),
        LATERAL (SELECT chunk_id, in_body + {_CONTEXT_WEIGHT}::float8 * in_context AS tf, chunk_tokens
            FROM postings WHERE {OWN} AND term = word{{among}} OFFSET 0) AS p"""  # noqa: S608 -- constants
_PREFIX_OCCURRENCES = f""" UNION ALL SELECT chunk_id, -number, idf, tf, chunk_tokens
    FROM unnest(%(lows)s::text[], %(highs)s::text[], %(prefix_idfs)s::float8[]) WITH ORDINALITY
            AS t(low, high, idf, number),
        LATERAL (SELECT chunk_id, sum(in_body + {_CONTEXT_WEIGHT}::float8 * in_context) AS tf,
                max(chunk_tokens) AS chunk_tokens
            FROM postings WHERE {OWN} AND term >= low AND term < high{{among}} GROUP BY chunk_id OFFSET 0) AS p"""  # noqa: S608 -- constants
_SCORES = f"""SELECT chunk_id, -sum(idf * tf * {_K1 + 1}::float8
        / (tf + {_K1}::float8 * ({1 - _B}::float8 + {_B}::float8 * chunk_tokens / %(mean)s::float8))
        ORDER BY number) AS score
    FROM ({{occurrences}}) AS occurrences GROUP BY chunk_id"""  # noqa: S608 -- constants

_FREQUENCIES = f"""SELECT word, (SELECT count(*) FROM postings WHERE {OWN} AND term = word)
    FROM unnest(%(terms)s::text[]) AS t(word)"""  # noqa: S608 -- constants
_PREFIX_FREQUENCIES = f"""SELECT low, (SELECT count(DISTINCT chunk_id) FROM postings
        WHERE {OWN} AND term >= low AND term < high)
    FROM unnest(%(lows)s::text[], %(highs)s::text[]) AS t(low, high)"""  # noqa: S608 -- constants

_POSTINGS = Columns(
    "postings",
    (
        ("term", "text"),
        ("chunk_id", "bigint"),
        ("in_body", "integer"),
        ("in_context", "integer"),
        ("chunk_tokens", "integer"),
    ),
)
_NAMES = Columns("names", (("term", "text"),), " ON CONFLICT DO NOTHING")


@dataclass(slots=True)
class TermFrequencies:
    """The frequencies looked up at one revision. The key of a prefix is its text followed by "*"."""

    revision: int
    by_term: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class FrequencyCache:
    """The frequencies shared by all readers of one index. A reader replaces them if they are outdated."""

    current: TermFrequencies | None = None

    def at(self, revision: int) -> dict[str, int]:
        """Return the known frequencies of a revision."""
        known = self.current
        if known is None or known.revision != revision or len(known.by_term) > _MAX_FREQUENCIES:
            known = self.current = TermFrequencies(revision)
        return known.by_term


class KeywordIndex:
    """The keyword index of one snapshot."""

    def __init__(self, scope: AgentScope, cache: FrequencyCache) -> None:
        self._scope = scope
        self._known = cache.at(scope.state.revision)

    def frequencies(self, terms: Sequence[QueryTerm]) -> dict[QueryTerm, int]:
        """Return how many chunks hold each term, or a word that begins with it if it is a prefix."""
        unknown = [term for term in terms if _key(term) not in self._known]
        words = {_cut(term.text) for term in unknown if not term.prefix}
        lows = {_cut(term.text) for term in unknown if term.prefix}
        found: dict[str, int] = {}
        if words:
            found |= dict(self._scope.all(_FREQUENCIES, terms=[*words]))
        if lows:
            rows = self._scope.all(_PREFIX_FREQUENCIES, lows=[*lows], highs=[low + _LAST for low in lows])
            found |= {f"{low}*": count for low, count in rows}
        self._known.update({_key(term): found.get(_key(term), 0) for term in unknown})
        return {term: self._known[_key(term)] for term in terms}

    def hits(self, terms: Sequence[QueryTerm], among: ChunkFilter, limit: int) -> list[KeywordHit]:
        """Return the best chunks that hold any of `terms`, best first, the smaller id first among equals."""
        condition, values = chunk_condition(among, "chunk_id")
        found = self._scores(terms, condition)
        if found is None:
            return []
        query, parameters = found
        ordered = f"{query} ORDER BY score, chunk_id LIMIT %(limit)s"
        return [KeywordHit(*row) for row in self._scope.all(ordered, **parameters, **values, limit=limit)]

    def scores(self, terms: Sequence[QueryTerm], ids: Sequence[int]) -> dict[int, float]:
        """Return the BM25 of each of these chunks for `terms`; 0 for one that holds none of them."""
        found = self._scores(terms, " AND chunk_id = ANY(%(ids)s)")
        rows = [] if found is None else self._scope.all(found[0], **found[1], ids=list(ids))
        scored: Mapping[int, float] = {row[0]: row[1] for row in rows}
        return {chunk_id: scored.get(chunk_id, 0.0) for chunk_id in ids}

    def _scores(self, terms: Sequence[QueryTerm], condition: str) -> tuple[str, dict[str, object]] | None:
        """Return a query of chunk ids and scores with its values; None if no chunk holds any of the terms."""
        state, frequencies = self._scope.state, self.frequencies(terms)
        held = [(term, _idf(frequencies[term], state.chunk_count)) for term in terms if frequencies[term]]
        if not held:
            return None
        words = [(_cut(term.text), idf) for term, idf in held if not term.prefix]
        prefixes = [(_cut(term.text), idf) for term, idf in held if term.prefix]
        occurrences = (_OCCURRENCES + (_PREFIX_OCCURRENCES if prefixes else "")).format(among=condition)
        return _SCORES.format(occurrences=occurrences), {
            "terms": [word for word, _ in words],
            "idfs": [idf for _, idf in words],
            "lows": [low for low, _ in prefixes],
            "highs": [low + _LAST for low, _ in prefixes],
            "prefix_idfs": [idf for _, idf in prefixes],
            "mean": state.token_count / state.chunk_count,
        }

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names that contain `piece`, the shortest first."""
        query = (
            f"SELECT term FROM names WHERE {OWN} AND position(%(piece)s IN term) > 0"  # noqa: S608 -- a constant
            " ORDER BY length(term), term LIMIT %(limit)s"
        )
        return [row[0] for row in self._scope.all(query, piece=storable(piece), limit=limit)]


def _idf(frequency: int, chunk_count: int) -> float:
    return max(math.log((chunk_count - frequency + 0.5) / (frequency + 0.5)), _LEAST_IDF)


def _key(term: QueryTerm) -> str:
    text = _cut(term.text)
    return f"{text}*" if term.prefix else text


def _cut(text: str) -> str:
    return storable(text.translate(_LOWER))[:MAX_TERM_CHARS]


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The terms of a chunk with the numbers of occurrences in body and context, and the length of the chunk."""

    counts: Mapping[str, tuple[int, int]]
    length: int


def chunk_terms(body: str, context: str) -> ChunkTerms:
    """Return the terms of the analyzer's output."""
    columns = [Counter(_terms(body)), Counter(_terms(context))]
    counts = {term: (columns[0][term], columns[1][term]) for term in columns[0] | columns[1]}
    return ChunkTerms(counts, sum(column.total() for column in columns))


def _terms(tokens: str) -> Iterator[str]:
    return (term[:MAX_TERM_CHARS] for term in _TERM.findall(tokens.translate(_LOWER)))


def insert_terms(scope: AgentScope, chunks: Sequence[tuple[int, ChunkTerms]]) -> None:
    """Add chunks, given with their ids, to the keyword index."""
    rows = [
        (term, chunk_id, body, context, terms.length)
        for chunk_id, terms in chunks
        for term, (body, context) in terms.counts.items()
    ]
    scope.insert(_POSTINGS, rows)
    scope.insert(_NAMES, sorted({(row[0],) for row in rows if _NAME.search(row[0])}))


def remove_terms(scope: AgentScope, chunk_ids: Sequence[int]) -> set[str]:
    """Remove chunks from the keyword index; return the names among their terms, for `remove_unused_names`."""
    # One chunk a time, for the reason of _OCCURRENCES.
    query = f"""SELECT DISTINCT term FROM unnest(%(ids)s::bigint[]) AS t(id),
            LATERAL (SELECT term FROM postings WHERE {OWN} AND {BY_CHUNK} AND chunk_id = id OFFSET 0) AS p
        WHERE term ~ '[_0-9]'"""  # noqa: S608 -- a constant
    names = {row[0] for row in scope.all(query, ids=list(chunk_ids))}
    removal = f"DELETE FROM postings WHERE {OWN} AND {BY_CHUNK} AND chunk_id = %(id)s"  # noqa: S608 -- a constant
    scope.run_many(removal, [{"id": chunk_id} for chunk_id in chunk_ids])
    return names


def remove_unused_names(scope: AgentScope, names: set[str]) -> None:
    """Remove those of these names that no chunk contains."""
    query = f"""DELETE FROM names WHERE {OWN} AND term = ANY(ARRAY(SELECT name FROM unnest(%(names)s::text[]) AS t(name)
        WHERE (SELECT count(*) FROM (SELECT 1 FROM postings WHERE {OWN} AND term = name LIMIT 1) AS found) = 0))"""  # noqa: S608 -- constants
    if names:
        scope.run(query, names=[*names])


def clear(scope: AgentScope) -> None:
    """Remove every chunk from the keyword index."""
    for table in ("postings", "names"):
        scope.run(f"DELETE FROM {table} WHERE {OWN}")  # noqa: S608 -- constants
