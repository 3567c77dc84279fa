"""Runs the legs of one search against one snapshot, and lets each say what it thinks of the other's finds."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import Source
from memoryd_server.search import keyword
from memoryd_server.search.keyword import KeywordAnswer
from memoryd_server.search.query import Candidate, RankingConfig, RetrieverReport, SearchMode, SearchQuery
from memoryd_server.search.ranking import fuse
from memoryd_server.store import Reader, VectorHit
from memoryd_server.text import Analyzer, QueryTerm

# Candidates of each leg before fusion, at least; more cost time and find nothing. A chunk that is further down by
# meaning is shown only for its words, and those bring it in.
WORD_CANDIDATES = 50
MEANING_CANDIDATES = 24

_NOTHING = KeywordAnswer((), ())

# Sources that are searched each by itself, so that each has candidates of its own; an empty group means all.
Groups = Sequence[tuple[Source, ...]]


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A query with its words in the index's languages and, where there is one, its vector.

    `no_vector` says why there is none.
    """

    query: SearchQuery
    terms: tuple[QueryTerm, ...]
    languages: tuple[str, ...]
    vector: NDArray[np.float32] | None
    no_vector: str


@dataclass(frozen=True, slots=True)
class EarlyKeywordHits:
    """What the keyword leg alone found in one snapshot, for whoever has to wait for the vector meanwhile."""

    revision: int
    languages: tuple[str, ...]
    found: KeywordAnswer
    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Candidates, best first, and what each leg did. `served` names the legs that ran."""

    candidates: list[Candidate]
    found: KeywordAnswer
    vector_hits: Sequence[VectorHit]
    served: SearchMode
    reports: tuple[RetrieverReport, RetrieverReport]


class Retrievers:
    """Both legs of one index."""

    def __init__(self, analyzer: Analyzer, ranking: RankingConfig) -> None:
        self._analyzer = analyzer
        self._ranking = ranking

    def words(
        self, reader: Reader, question: AnalyzedQuery, groups: Groups, chunk_count: int
    ) -> tuple[KeywordAnswer, float] | None:
        """What the keyword leg finds, and the seconds it took; None where a vector would stand in its place."""
        if question.query.mode is SearchMode.VECTOR or not self._ranking.hybrid:
            return None
        began = time.monotonic()
        found = self._search(reader, question, groups, chunk_count)
        return found, time.monotonic() - began

    def run(
        self,
        reader: Reader,
        question: AnalyzedQuery,
        groups: Groups,
        chunk_count: int,
        words: EarlyKeywordHits | None = None,
    ) -> RetrievalResult:
        """Candidates of the legs that the question asks for and that can run.

        `words` is what the keyword leg found before in a snapshot of the same revision.
        """
        began = time.monotonic() - (words.elapsed_seconds if words is not None else 0.0)
        found = words.found if words is not None else self._keyword(reader, question, groups, chunk_count)
        between = time.monotonic()
        hits = self._vector(reader, question, groups)
        ended = time.monotonic()
        candidates = self._fused(reader, question, found, hits)
        reports = (
            RetrieverReport(
                SearchMode.KEYWORD,
                found is not None,
                len(found.hits) if found else 0,
                between - began,
                found.terms if found else (),
                "" if found else "the vector leg alone was asked for",
            ),
            RetrieverReport(
                SearchMode.VECTOR, bool(hits), len(hits), ended - between, note="" if hits else question.no_vector
            ),
        )
        return RetrievalResult(candidates, found or _NOTHING, hits, _served(found, hits), reports)

    def _keyword(
        self,
        reader: Reader,
        question: AnalyzedQuery,
        groups: Groups,
        chunk_count: int,
    ) -> KeywordAnswer | None:
        """What the keyword leg found; None when the vector leg alone was asked for, or `hybrid.enabled` is false."""
        alone = question.query.mode is SearchMode.VECTOR or (
            not self._ranking.hybrid and question.vector is not None and question.query.mode is not SearchMode.KEYWORD
        )
        return None if alone else self._search(reader, question, groups, chunk_count)

    def _limit(self, question: AnalyzedQuery, least: int) -> int:
        return max(least, self._ranking.candidate_multiplier * question.query.max_results)

    def _search(self, reader: Reader, question: AnalyzedQuery, groups: Groups, chunk_count: int) -> KeywordAnswer:
        limit, enough = self._limit(question, WORD_CANDIDATES), question.query.max_results
        answers = (
            keyword.search(reader, question.terms, sources, enough=enough, limit=limit, chunk_count=chunk_count)
            for sources in groups
        )
        return reduce(KeywordAnswer.and_also, answers)

    def _vector(self, reader: Reader, question: AnalyzedQuery, groups: Groups) -> Sequence[VectorHit]:
        if question.vector is None:
            return ()
        limit = self._limit(question, MEANING_CANDIDATES)
        found = [reader.vector_hits(question.vector, limit, sources) for sources in groups]
        return found[0] if len(found) == 1 else sorted(itertools.chain(*found), key=lambda hit: -hit.cosine)

    def _fused(
        self,
        reader: Reader,
        question: AnalyzedQuery,
        found: KeywordAnswer | None,
        hits: Sequence[VectorHit],
    ) -> list[Candidate]:
        if not hits or found is None or question.vector is None:
            return fuse(None if found is None else found.hits, hits or None)
        by_words = {hit.chunk_id for hit in found.hits}
        by_meaning = {hit.chunk_id for hit in hits}
        cosines = reader.cosines(sorted(by_words - by_meaning), question.vector)
        others = sorted(by_meaning - by_words)
        return fuse(
            found.hits,
            hits,
            vector_weight=self._ranking.vector_weight,
            text_weight=self._ranking.text_weight,
            true_cosine=cosines,
            true_bm25=reader.keyword_scores(found.searched, others) if found.is_full else {},
        )


def _served(found: KeywordAnswer | None, hits: Sequence[VectorHit]) -> SearchMode:
    if not hits:
        return SearchMode.KEYWORD if found is not None else SearchMode.VECTOR
    return SearchMode.VECTOR if found is None else SearchMode.HYBRID
