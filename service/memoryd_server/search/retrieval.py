"""Both retrievers of a search over one snapshot, and the fusion of their hits.

A chunk that only one retriever returned gets its score of the other one as well, if it has any. Chunks of notes that
are dated within a range of days that the query names are candidates even if no retriever returned them: "what did we
do on May 8" may share no word with the note of that day.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from memoryd_server.search import keyword
from memoryd_server.search.dates import MOST_DAYS_RETRIEVED, DateRange
from memoryd_server.search.keyword import KeywordAnswer
from memoryd_server.search.query import Candidate, RankingConfig, RetrieverReport, SearchMode, SearchQuery
from memoryd_server.search.ranking import fuse, vector_share
from memoryd_server.store import ChunkFilter, Reader, VectorHit
from memoryd_server.text import QueryTerm

# The least number of candidates of each retriever before fusion. More cost time and do not improve the results. A chunk
# further down the vector ranking is shown only for its words, and the keyword retriever finds it.
KEYWORD_CANDIDATES = 50
VECTOR_CANDIDATES = 24
# The most chunks that are candidates only because of their day, and the most of a day range that are compared for it.
DATED_CANDIDATES = 50
_MOST_DATED_CHUNKS = 2_000
_MOST_RANGES = 8

_NO_KEYWORD_SEARCH = KeywordAnswer((), ())

# Sources are searched in groups, each with candidates of its own. All groups have the query's other conditions.
SourceGroups = Sequence[ChunkFilter]


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A query, its terms in the index's languages, the sources to search, and the query's vector.

    `chunk_count` is the number of chunks in the index, `no_vector` the reason why there is no vector. `dates` are the
    ranges of days that the query names, `now` is the caller's time.
    """

    query: SearchQuery
    terms: tuple[QueryTerm, ...]
    languages: tuple[str, ...]
    groups: SourceGroups
    chunk_count: int
    now: datetime
    dates: tuple[DateRange, ...]
    vector: NDArray[np.float32] | None = None
    no_vector: str = ""


@dataclass(frozen=True, slots=True)
class EarlyKeywordHits:
    """The keyword hits of one snapshot, found while the provider makes the query's vector."""

    revision: int
    languages: tuple[str, ...]
    answer: KeywordAnswer
    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Fused candidates, best first, and the hits of each retriever. `served` is the mode of the retrievers that ran.

    `vector_share` is the vector retriever's share of the fused scores. `nothing_selected` is whether there are no
    candidates because the query's filter leaves no chunk.
    """

    candidates: list[Candidate]
    keyword: KeywordAnswer
    vector_hits: Sequence[VectorHit]
    served: SearchMode
    reports: tuple[RetrieverReport, RetrieverReport]
    vector_share: float
    nothing_selected: bool = False


def retrieve(
    reader: Reader, analyzed: AnalyzedQuery, ranking: RankingConfig, early: EarlyKeywordHits | None = None
) -> RetrievalResult:
    """Run the retrievers that the query's mode selects, and fuse their hits.

    `early` replaces the keyword search; it must come from a snapshot of the same revision and languages.
    """
    began = time.monotonic() - (early.elapsed_seconds if early else 0.0)
    answer = early.answer if early else None
    if answer is None and not _vector_alone(analyzed, ranking):
        answer = keyword_answer(reader, analyzed, ranking)
    keyword_ended = time.monotonic()
    hits = _vector_hits(reader, analyzed, ranking)
    ended = time.monotonic()
    reports = (
        RetrieverReport(
            SearchMode.KEYWORD,
            answer is not None,
            len(answer.hits) if answer else 0,
            keyword_ended - began,
            answer.terms if answer else (),
            "" if answer else "vector search alone answers this query",
        ),
        RetrieverReport(
            SearchMode.VECTOR, bool(hits), len(hits), ended - keyword_ended, note="" if hits else analyzed.no_vector
        ),
    )
    weights = (ranking.vector_weight, ranking.text_weight)
    share = vector_share(*weights, has_keyword=bool(answer and answer.hits), has_vector=bool(hits))
    candidates = _fused(reader, analyzed, ranking, answer, hits)
    nothing_selected = not candidates and not any(map(reader.has_chunks, analyzed.groups))
    return RetrievalResult(
        candidates, answer or _NO_KEYWORD_SEARCH, hits, _served(answer, hits), reports, share, nothing_selected
    )


def runs_early(query: SearchQuery, ranking: RankingConfig) -> bool:
    """Return whether the keyword retriever runs for a query whose vector is not known yet."""
    return query.mode is not SearchMode.VECTOR and ranking.hybrid


def keyword_answer(reader: Reader, analyzed: AnalyzedQuery, ranking: RankingConfig) -> KeywordAnswer:
    """Run the keyword retriever on each group of sources."""
    answers = (
        keyword.search(
            reader,
            analyzed.terms,
            among,
            enough=analyzed.query.max_results,
            limit=candidate_limit(analyzed, ranking, KEYWORD_CANDIDATES),
            chunk_count=analyzed.chunk_count,
        )
        for among in analyzed.groups
    )
    return reduce(KeywordAnswer.combine, answers)


def _vector_alone(analyzed: AnalyzedQuery, ranking: RankingConfig) -> bool:
    """Return whether the vector retriever runs alone: in mode VECTOR, or if `hybrid.enabled` is false."""
    mode = analyzed.query.mode
    has_vector = analyzed.vector is not None
    return mode is SearchMode.VECTOR or (not ranking.hybrid and has_vector and mode is not SearchMode.KEYWORD)


def _vector_hits(reader: Reader, analyzed: AnalyzedQuery, ranking: RankingConfig) -> Sequence[VectorHit]:
    if analyzed.vector is None:
        return ()
    limit = candidate_limit(analyzed, ranking, VECTOR_CANDIDATES)
    hits = [reader.vector_hits(analyzed.vector, limit, among) for among in analyzed.groups]
    return hits[0] if len(hits) == 1 else sorted(itertools.chain(*hits), key=lambda hit: -hit.cosine)


def candidate_limit(analyzed: AnalyzedQuery, ranking: RankingConfig, least: int) -> int:
    """Return how many chunks of each group a retriever returns, which is `least` or more."""
    return max(least, ranking.candidate_multiplier * analyzed.query.max_results)


def _fused(
    reader: Reader,
    analyzed: AnalyzedQuery,
    ranking: RankingConfig,
    answer: KeywordAnswer | None,
    hits: Sequence[VectorHit],
) -> list[Candidate]:
    if answer is None:
        return fuse(None, hits or None)
    keyword_ids = {hit.chunk_id for hit in answer.hits}
    vector_ids = {hit.chunk_id for hit in hits}
    dated = _dated(reader, analyzed)
    unscored = sorted(vector_ids.union(dated) - keyword_ids)
    # If the limit was not reached, no other chunk contains a term.
    bm25 = reader.keyword_scores(answer.searched, unscored) if answer.is_full and unscored else {}
    found = keyword_ids | vector_ids
    others = [chunk_id for chunk_id in dated if chunk_id not in found]
    others = sorted(others, key=lambda chunk_id: bm25.get(chunk_id, 0.0))[:DATED_CANDIDATES]
    cosines: Mapping[int, float] = {}
    if hits and analyzed.vector is not None:
        cosines = reader.cosines(sorted((keyword_ids | set(others)) - vector_ids), analyzed.vector)
    return fuse(
        answer.hits,
        hits or None,
        vector_weight=ranking.vector_weight,
        text_weight=ranking.text_weight,
        true_cosine=cosines,
        true_bm25=bm25,
        others=others,
    )


def uncounted(
    reader: Reader, analyzed: AnalyzedQuery, ranking: RankingConfig, retrieved: RetrievalResult, ids: Sequence[int]
) -> list[Candidate]:
    """Return chunks that are not among the candidates with the scores that `retrieve` would give them, best first."""
    answer, hits, wanted = retrieved.keyword, retrieved.vector_hits, set(ids)
    cosines = reader.cosines(ids, analyzed.vector) if hits and analyzed.vector is not None else {}
    bm25 = reader.keyword_scores(answer.searched, ids) if answer.searched else {}
    fused = fuse(
        answer.hits,
        hits or None,
        vector_weight=ranking.vector_weight,
        text_weight=ranking.text_weight,
        true_cosine=cosines,
        true_bm25=bm25,
        others=ids,
    )
    return [candidate for candidate in fused if candidate.chunk_id in wanted]


def _dated(reader: Reader, analyzed: AnalyzedQuery) -> list[int]:
    """Return the chunks dated within the ranges of days that the query names, those of the shortest range first.

    Long ranges are left out, and so are the longest of many.
    """
    ranges = sorted((named for named in analyzed.dates if named.days <= MOST_DAYS_RETRIEVED), key=lambda r: r.days)
    ids = (
        reader.dated_chunks(named.first, named.last, among, _MOST_DATED_CHUNKS)
        for named in ranges[:_MOST_RANGES]
        for among in analyzed.groups
    )
    return list(dict.fromkeys(itertools.chain.from_iterable(ids)))


def _served(answer: KeywordAnswer | None, hits: Sequence[VectorHit]) -> SearchMode:
    if not hits:
        return SearchMode.KEYWORD if answer is not None else SearchMode.VECTOR
    return SearchMode.VECTOR if answer is None else SearchMode.HYBRID
