"""SearchEngine: answers queries from one index."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.search.coverage import (
    empty_reason,
    hybrid_confidence,
    keyword_confidence,
    known_names,
    nearness,
    weights,
)
from memoryd_server.search.cutoff import CosineScale, Cutoff, apply_cutoff, scale_of
from memoryd_server.search.dates import dates_in
from memoryd_server.search.diversity import diversified
from memoryd_server.search.keyword import KeywordAnswer
from memoryd_server.search.miss import dropped_candidates
from memoryd_server.search.neighbours import KEYWORD_PENALTY, VECTOR_PENALTY, spread
from memoryd_server.search.query import (
    Hit,
    RankingConfig,
    RetrieverReport,
    SearchAnswer,
    SearchMode,
    SearchQuery,
    clamp,
)
from memoryd_server.search.ranking import NO_ADJUSTMENTS, Adjustments, Ranked, adjustments, rank
from memoryd_server.search.reranking import reranked_order
from memoryd_server.search.results import (
    FileCheck,
    HitRenderer,
    LazyRows,
    RowCache,
    SelectedRows,
    best_rows,
    hits,
    select,
    within_budget,
)
from memoryd_server.search.retrieval import (
    AnalyzedQuery,
    EarlyKeywordHits,
    RetrievalResult,
    SourceGroups,
    keyword_answer,
    retrieve,
    runs_early,
)
from memoryd_server.search.trace import CandidateTrace, RankedOrders, SearchTrace
from memoryd_server.search.windows import LineMatcher, window_scores
from memoryd_server.store import ChunkFilter, IndexCounts, Snapshots, VectorIdentity
from memoryd_server.text import Analyzer

# The vectors can be replaced after the query's vector was made and before the search begins.
_VECTORS_REPLACED = "another provider or model has just replaced the index's vectors; search again"

# The order is decided for twice the number of results and these: some are merged, and some have lost their files.
_MORE_PLACES = 8


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A search whose results are ranked and not rendered yet. `trace` is filled in by `SearchEngine.finish`."""

    analyzed: AnalyzedQuery
    counts: IndexCounts
    retrieved: RetrievalResult
    ranked: Ranked
    cutoff: Cutoff
    selected: SelectedRows
    matcher: LineMatcher
    scale: CosineScale | None
    trace: SearchTrace | None = None

    @property
    def passages(self) -> tuple[str, ...]:
        """The texts of the results for a reranker, best first, each after its headings."""
        return tuple(f"{row.breadcrumb}\n{row.text}".strip() for _, row in self.selected.rows)


class SearchEngine:
    """Searches one index, which contains `sources`, in snapshots of `store`. Thread-safe.

    `check` checks the files of hits, so that deleted text is not returned.
    """

    def __init__(
        self,
        store: Snapshots,
        analyzer: Analyzer,
        check: FileCheck,
        *,
        sources: Sequence[Source],
        ranking: RankingConfig | None = None,
    ) -> None:
        self._sources = frozenset(sources)
        self._store = store
        self._analyzer = analyzer
        self._check = check
        self._ranking = ranking or RankingConfig()

    def set_ranking(self, ranking: RankingConfig) -> None:
        """Use `ranking` from the next search on."""
        self._ranking = ranking

    def over(self, store: Snapshots, check: FileCheck) -> "SearchEngine":
        """Return an engine with the same settings that searches a copy of the index."""
        return SearchEngine(store, self._analyzer, check, sources=tuple(self._sources), ranking=self._ranking)

    def is_current(self, prepared: PreparedSearch) -> bool:
        """Return whether the index has not changed since a search was prepared. Blocks. Raises as `prepare`."""
        with self._store.read(prepared.analyzed.query.deadline) as reader:
            return reader.revision == prepared.counts.revision

    def search_keywords(self, query: SearchQuery) -> EarlyKeywordHits | None:
        """Run the keyword retriever alone, before the query's vector is known; None if it is not sure to be needed.

        Raises:
            DeadlineTooShort, IndexUnavailable: as in `search`.
        """
        ranking = self._ranking
        if not runs_early(query, ranking):
            return None
        with self._store.read(query.deadline) as reader:
            counts = reader.counts()
            analyzed = self._analyze(query, counts)
            began = time.monotonic()
            answer = keyword_answer(reader, analyzed, ranking)
            elapsed = time.monotonic() - began
        return EarlyKeywordHits(counts.revision, counts.languages, answer, elapsed)

    def search(
        self,
        query: SearchQuery,
        vector: NDArray[np.float32] | None = None,
        no_vector: str = "",
        early: EarlyKeywordHits | None = None,
        identity: VectorIdentity | None = None,
        *,
        trace: SearchTrace | None = None,
    ) -> SearchAnswer:
        """Answer `query` from the last committed state of the index, without a reranker: `prepare`, then `finish`."""
        return self.finish(self.prepare(query, vector, no_vector, early, identity, trace=trace))

    def prepare(
        self,
        query: SearchQuery,
        vector: NDArray[np.float32] | None = None,
        no_vector: str = "",
        early: EarlyKeywordHits | None = None,
        identity: VectorIdentity | None = None,
        *,
        candidates: int = 0,
        trace: SearchTrace | None = None,
    ) -> PreparedSearch:
        """Find and rank the chunks that answer `query`. Blocks; takes milliseconds. The snapshot is closed afterwards.

        `vector` is the query's vector, made by the provider and model of `identity`; it is ignored if the index's
        vectors have another identity. `no_vector` is the reason why there is none. `early` is used if the index has not
        changed since. `candidates` is the number of results for a reranker, if that is more than the query's. `trace`
        is filled in, if there is one. Otherwise, if the query is to be explained, the candidates are followed.

        Raises:
            DeadlineTooShort: `query.deadline` passed.
            EmbeddingUnavailable: the query's mode is VECTOR, and the index's vectors were just replaced by vectors of
                another identity.
            IndexUnavailable: the index cannot be read.
        """
        ranking = self._ranking
        if trace is None and query.explain:
            trace = CandidateTrace()
        with self._store.read(query.deadline) as reader:
            counts = reader.counts()
            # The identities are nearly always equal, and `matches` takes longer to find that out.
            if (
                identity is not None
                and identity != (stored := reader.vector_identity())
                and not identity.matches(stored)
            ):
                vector, no_vector = None, _VECTORS_REPLACED
                if query.mode is SearchMode.VECTOR:
                    raise EmbeddingUnavailable(_VECTORS_REPLACED, retry_after_seconds=1.0)
            analyzed = replace(self._analyze(query, counts), vector=vector, no_vector=no_vector)
            if early is not None and (early.revision, early.languages) != (counts.revision, counts.languages):
                early = None
            retrieved = retrieve(reader, analyzed, ranking, early)
            heads = cache(partial(reader.heads, [candidate.chunk_id for candidate in retrieved.candidates]))
            rows, matcher = RowCache(reader), self._matcher(analyzed, retrieved.keyword)
            adjusted = NO_ADJUSTMENTS
            if counts.annotated or ranking.decay or analyzed.dates:
                adjusted = adjustments(heads(), analyzed.dates, analyzed.now, ranking, query.active_projects)
            by_score = self._rank(retrieved, adjusted, rows, matcher)
            ranked = self._diversified(by_score, rows) if ranking.mmr else by_score
            scale = None
            if vector is not None and retrieved.vector_hits:
                scale = scale_of(reader, vector, identity)
            wanted = max(candidates, query.max_results)
            passed = cutoff = apply_cutoff(ranked.candidates, query, scale)
            if not ranking.mmr:
                places = 2 * wanted + _MORE_PLACES
                best = rows.get([candidate.chunk_id for candidate in cutoff.candidates[:places]])
                by_id = {row.id: row for row in best}
                penalty = KEYWORD_PENALTY if scale is None else VECTOR_PENALTY
                cutoff = cutoff._replace(
                    candidates=spread(cutoff.candidates, by_id, penalty, places, ranking.merged_chars)
                )
            placed, cutoff = cutoff.candidates, cutoff.with_nearest(query.max_results)
            checked = LazyRows(rows, [candidate.chunk_id for candidate in cutoff.candidates], self._check)
            by_source = heads() if len(analyzed.groups) > 1 else None
            selected = select(cutoff.candidates, checked, wanted, ranking.merged_chars, by_source)
            if trace is not None:
                orders = RankedOrders(by_score.candidates, passed, placed, cutoff.candidates, selected.rows)
                trace.record_ranking(reader, ranking, (analyzed, retrieved), orders, self._check)
        return PreparedSearch(analyzed, counts, retrieved, ranked, cutoff, selected, matcher, scale, trace)

    def finish(self, prepared: PreparedSearch, scores: Sequence[float | None] | None = None) -> SearchAnswer:
        """Return the answer of a prepared search, with snippets. Does not read the index.

        `scores` are those of a reranker for the passages, in their order; None for a passage that it did not score, and
        None instead of all of them if the results keep their order.
        """
        analyzed, rows, trace = prepared.analyzed, prepared.selected.rows, prepared.trace
        rerank: dict[int, float | None] = {}
        if scores is not None:
            rerank = {candidate.chunk_id: score for (candidate, _), score in zip(rows, scores, strict=False)}
            own = [candidate.score - candidate.adjacent for candidate, _ in rows]
            rows = [rows[place] for place in reranked_order(own, scores, self._ranking.rerank_weight)]
        rows = best_rows(rows, analyzed.query.max_results, share=len(analyzed.groups) > 1)
        renderer = HitRenderer(analyzed, prepared.retrieved.keyword, prepared.matcher)
        found = hits(rows, renderer, prepared.ranked, rerank, explain=trace is not None)
        answer = self._answer(prepared, found)
        if trace is None:
            return answer
        trace.record_answer(found, answer, self._least_confidence(prepared))
        trace.render(lambda *row: hits([row], renderer, prepared.ranked, rerank, explain=True)[0])
        if isinstance(trace, CandidateTrace):
            answer = replace(answer, dropped=dropped_candidates(trace, answer, analyzed.query))
        return answer

    def _rank(self, retrieved: RetrievalResult, adjusted: Adjustments, rows: RowCache, matcher: LineMatcher) -> Ranked:
        known = _known_weights(retrieved.keyword)

        def windows_of(ids: Sequence[int]) -> Mapping[int, float]:
            return window_scores(rows.get(ids), matcher, known)

        return rank(retrieved.candidates, adjusted, windows_of, retrieved.vector_share)

    def _analyze(self, query: SearchQuery, counts: IndexCounts) -> AnalyzedQuery:
        terms = self._analyzer.query_terms(query.text, counts.languages)
        now = query.now or datetime.now(UTC)
        groups = self._groups(query, counts.sources)
        return AnalyzedQuery(query, terms, counts.languages, groups, counts.chunks, now, dates_in(query.text, now))

    def _matcher(self, analyzed: AnalyzedQuery, keyword: KeywordAnswer) -> LineMatcher:
        terms = dict.fromkeys((*analyzed.terms, *keyword.searched))
        return LineMatcher(self._analyzer, [t.text for t in terms], [t.text for t in terms if t.prefix])

    def _groups(self, query: SearchQuery, indexed: Sequence[Source]) -> SourceGroups:
        """Return the sources to search, each in a separate group if there are several, with the query's filters.

        One group without a condition means the whole index, for which no filter is resolved.
        """
        wanted = tuple(source for source in indexed if source in query.sources or not query.sources)
        if len(wanted) > 1:
            return tuple(ChunkFilter(query.files, (source,), query.origins) for source in wanted)
        sources = () if self._sources <= set(query.sources) else query.sources
        return (ChunkFilter(query.files, sources, query.origins),)

    def _diversified(self, ranked: Ranked, rows: RowCache) -> Ranked:
        """Return the ranking in MMR order."""
        candidates, trade_off = ranked.candidates, self._ranking.mmr_lambda
        texts = {row.id: row.text for row in rows.get([candidate.chunk_id for candidate in candidates])}
        # Relevance is relative to the best score. A date adds so much that the others would seem equally irrelevant.
        known = [c._replace(score=clamp(c.score)) for c in candidates if c.chunk_id in texts]
        order = diversified(known, texts, trade_off, lambda text: self._analyzer.index_tokens(text).split())
        return replace(ranked, candidates=order)

    def _answer(self, prepared: PreparedSearch, found: Sequence[Hit]) -> SearchAnswer:
        analyzed, counts, retrieved = prepared.analyzed, prepared.counts, prepared.retrieved
        query, cutoff = analyzed.query, prepared.cutoff
        coverage = max((hit.coverage or 0.0 for hit in found), default=0.0)
        confidence = self._confidence(prepared, coverage)
        abstained = bool(found) and confidence is not None and confidence < self._least_confidence(prepared)
        answer = SearchAnswer(
            hits=() if abstained else within_budget(found, query.max_total_chars),
            served_mode=retrieved.served,
            revision=counts.revision,
            indexed_files=counts.files,
            keyword_candidates=len(retrieved.keyword.hits),
            vector_candidates=len(retrieved.vector_hits),
            coverage=coverage if retrieved.keyword.frequencies else None,
            confidence=confidence,
            nearness=_nearness(prepared),
            dropped_by_min_score=cutoff.dropped,
            stale=prepared.selected.stale,
            degradations=self._degradations(analyzed, retrieved),
            retrievers=_with_scale(retrieved.reports, cutoff.scale),
        )
        if answer.hits:
            return answer
        gone = prepared.selected.gone
        reason, explanation = empty_reason(
            answer, counts, retrieved, query, gone=gone, abstained=abstained, scale=cutoff.scale
        )
        return replace(answer, empty_reason=reason, empty_explanation=explanation)

    def _confidence(self, prepared: PreparedSearch, coverage: float) -> float | None:
        """Return how likely the answer is one; None if keyword search did not take part or the query has no words."""
        analyzed, retrieved = prepared.analyzed, prepared.retrieved
        frequencies = retrieved.keyword.frequencies
        if not frequencies:
            return None

        def terms_of(name: str) -> list[str]:
            return [term.text for term in self._analyzer.query_terms(name, analyzed.languages)]

        keyword = keyword_confidence(coverage, known_names(analyzed.query.text, terms_of, frequencies))
        if prepared.scale is None:
            return keyword
        return hybrid_confidence(keyword, max(hit.cosine for hit in retrieved.vector_hits), prepared.scale)

    def _least_confidence(self, prepared: PreparedSearch) -> float:
        requested = prepared.analyzed.query.abstain_below
        if requested is not None:
            return requested
        # The settings' bound is for keyword search. Vector hits need not contain any word.
        return self._ranking.abstain_below if prepared.retrieved.served is SearchMode.KEYWORD else 0.0

    def _degradations(self, analyzed: AnalyzedQuery, retrieved: RetrievalResult) -> tuple[Degradation, ...]:
        query, reason = analyzed.query, analyzed.no_vector
        degradations = [
            Degradation(
                DegradationKind.SOURCE_SKIPPED, source, "", f"{source} is not among the agent's indexed sources"
            )
            for source in query.sources
            if source not in self._sources
        ]
        if query.mode is SearchMode.HYBRID and retrieved.served is SearchMode.KEYWORD and reason:
            degradations.append(Degradation(DegradationKind.VECTOR_LEG_SKIPPED, "HYBRID", "KEYWORD", reason))
        return tuple(degradations)


def _nearness(prepared: PreparedSearch) -> float | None:
    hits, scale = prepared.retrieved.vector_hits, prepared.scale
    return None if scale is None else nearness(max(hit.cosine for hit in hits), scale)


def _known_weights(keyword: KeywordAnswer) -> dict[str, float]:
    """Return the inverse document frequency of each term that the index contains."""
    known = {term: frequency for term, frequency in keyword.frequencies.items() if frequency}
    return weights(known, max(keyword.chunk_count, 1))


def _with_scale(
    reports: tuple[RetrieverReport, RetrieverReport], scale: CosineScale | None
) -> tuple[RetrieverReport, RetrieverReport]:
    """Return the reports with the least cosine of `scale` in that of the vector retriever."""
    keyword, vector = reports
    return reports if scale is None else (keyword, replace(vector, note=f"least cosine {scale.least:.3f}"))
