"""SearchEngine: answers queries from one index."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.search.coverage import abstains, empty_reason, known_names
from memoryd_server.search.cutoff import CosineScale, Cutoff, apply_cutoff, scale_of
from memoryd_server.search.query import Hit, RankingConfig, RetrieverReport, SearchAnswer, SearchMode, SearchQuery
from memoryd_server.search.ranking import Reranked, rank
from memoryd_server.search.reranking import reranked_order
from memoryd_server.search.results import (
    FileCheck,
    HitRenderer,
    LazyRows,
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
from memoryd_server.store import IndexCounts, Reader, Store, VectorIdentity
from memoryd_server.text import Analyzer

# The vectors can be replaced after the query's vector was made and before the search begins.
_VECTORS_REPLACED = "another provider or model has just replaced the index's vectors; search again"


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A search whose results are ranked and not rendered yet."""

    analyzed: AnalyzedQuery
    counts: IndexCounts
    retrieved: RetrievalResult
    ranked: Reranked
    cutoff: Cutoff
    selected: SelectedRows

    @property
    def passages(self) -> tuple[str, ...]:
        """The texts of the results for a reranker, best first, each after its headings."""
        return tuple(f"{row.breadcrumb}\n{row.text}".strip() for _, row in self.selected.rows)


class SearchEngine:
    """Searches one index, which contains `sources`. Thread-safe.

    `check` checks the files of hits, so that deleted text is not returned.
    """

    def __init__(
        self,
        store: Store,
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
    ) -> SearchAnswer:
        """Answer `query` from the last committed state of the index, without a reranker: `prepare`, then `finish`."""
        return self.finish(self.prepare(query, vector, no_vector, early, identity))

    def prepare(
        self,
        query: SearchQuery,
        vector: NDArray[np.float32] | None = None,
        no_vector: str = "",
        early: EarlyKeywordHits | None = None,
        identity: VectorIdentity | None = None,
        *,
        candidates: int = 0,
    ) -> PreparedSearch:
        """Find and rank the chunks that answer `query`. Blocks; takes milliseconds. The snapshot is closed afterwards.

        `vector` is the query's vector, made by the provider and model of `identity`; it is ignored if the index's
        vectors have another identity. `no_vector` is the reason why there is none. `early` is used if the index has not
        changed since. `candidates` is the number of results for a reranker, if that is more than the query's.

        Raises:
            DeadlineTooShort: `query.deadline` passed.
            EmbeddingUnavailable: the query's mode is VECTOR, and the index's vectors were just replaced by vectors of
                another identity.
            IndexUnavailable: the index cannot be read.
        """
        ranking = self._ranking
        with self._store.read(query.deadline) as reader:
            counts = reader.counts()
            if identity is not None and not identity.matches(reader.vector_identity()):
                vector, no_vector = None, _VECTORS_REPLACED
                if query.mode is SearchMode.VECTOR:
                    raise EmbeddingUnavailable(_VECTORS_REPLACED, retry_after_seconds=1.0)
            analyzed = replace(self._analyze(query, counts), vector=vector, no_vector=no_vector)
            if early is not None and (early.revision, early.languages) != (counts.revision, counts.languages):
                early = None
            retrieved = retrieve(reader, analyzed, ranking, early)
            heads = cache(partial(reader.heads, [candidate.chunk_id for candidate in retrieved.candidates]))
            ranked = rank(
                retrieved.candidates,
                heads,
                query=query.text,
                now=query.now or datetime.now(UTC),
                ranking=ranking,
                texts_of=partial(_texts, reader),
                words_of=self._words_of,
                annotated=counts.annotated,
                active_projects=query.active_projects,
            )
            scale = scale_of(reader, query, vector if retrieved.vector_hits else None, identity)
            cutoff = apply_cutoff(ranked.candidates, query, scale)
            rows = LazyRows(reader, [candidate.chunk_id for candidate in cutoff.candidates], self._check)
            selected = select(
                cutoff.candidates,
                rows,
                max(candidates, query.max_results),
                ranking.merged_chars,
                heads() if len(analyzed.groups) > 1 else None,
            )
        return PreparedSearch(analyzed, counts, retrieved, ranked, cutoff, selected)

    def finish(self, prepared: PreparedSearch, scores: Sequence[float | None] | None = None) -> SearchAnswer:
        """Return the answer of a prepared search, with snippets. Does not read the index.

        `scores` are those of a reranker for the passages, in their order; None for a passage that it did not score, and
        None instead of all of them if the results keep their order.
        """
        analyzed, rows = prepared.analyzed, prepared.selected.rows
        rerank: dict[int, float | None] = {}
        if scores is not None:
            rerank = {candidate.chunk_id: score for (candidate, _), score in zip(rows, scores, strict=False)}
            own = [candidate.score for candidate, _ in rows]
            rows = [rows[place] for place in reranked_order(own, scores, self._ranking.rerank_weight)]
        rows = best_rows(rows, analyzed.query.max_results, share=len(analyzed.groups) > 1)
        renderer = HitRenderer(self._analyzer, analyzed, prepared.retrieved.keyword)
        return self._answer(prepared, hits(rows, renderer, prepared.ranked, rerank))

    def _analyze(self, query: SearchQuery, counts: IndexCounts) -> AnalyzedQuery:
        terms = self._analyzer.query_terms(query.text, counts.languages)
        return AnalyzedQuery(query, terms, counts.languages, self._groups(query, counts.sources), counts.chunks)

    def _groups(self, query: SearchQuery, indexed: Sequence[Source]) -> SourceGroups:
        """Return the sources to search, each in a separate group if there are several.

        One empty group means all sources, which saves a join.
        """
        wanted = tuple(source for source in indexed if source in query.sources or not query.sources)
        if len(wanted) > 1:
            return tuple((source,) for source in wanted)
        return ((),) if self._sources <= set(query.sources) else (query.sources,)

    def _words_of(self, text: str) -> Sequence[str]:
        return self._analyzer.index_tokens(text).split()

    def _answer(self, prepared: PreparedSearch, found: Sequence[Hit]) -> SearchAnswer:
        analyzed, counts, retrieved = prepared.analyzed, prepared.counts, prepared.retrieved
        query, cutoff = analyzed.query, prepared.cutoff
        coverage = max((hit.coverage or 0.0 for hit in found), default=0.0)
        abstained = bool(found) and self._abstains(analyzed, retrieved, coverage)
        answer = SearchAnswer(
            hits=() if abstained else within_budget(found, query.max_total_chars),
            served_mode=retrieved.served,
            revision=counts.revision,
            indexed_files=counts.files,
            keyword_candidates=len(retrieved.keyword.hits),
            vector_candidates=len(retrieved.vector_hits),
            coverage=coverage if retrieved.keyword.frequencies else None,
            dropped_by_min_score=cutoff.dropped,
            stale=prepared.selected.stale,
            degradations=self._degradations(analyzed, retrieved),
            retrievers=_with_scale(retrieved.reports, cutoff.scale),
        )
        if answer.hits:
            return answer
        gone = prepared.selected.gone
        reason, explanation = empty_reason(
            answer, counts, retrieved.keyword, query, gone=gone, abstained=abstained, scale=cutoff.scale
        )
        return replace(answer, empty_reason=reason, empty_explanation=explanation)

    def _abstains(self, analyzed: AnalyzedQuery, retrieved: RetrievalResult, coverage: float) -> bool:
        """Return whether a keyword answer covers too little. Vector hits are exempt: they need not contain any word."""
        frequencies = retrieved.keyword.frequencies
        if self._ranking.abstain_below <= 0 or retrieved.served is not SearchMode.KEYWORD or not frequencies:
            return False

        def terms_of(name: str) -> list[str]:
            return [term.text for term in self._analyzer.query_terms(name, analyzed.languages)]

        names = known_names(analyzed.query.text, terms_of, frequencies)
        return abstains(coverage, names, self._ranking.abstain_below)

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


def _texts(reader: Reader, ids: Sequence[int]) -> dict[int, str]:
    return {row.id: row.text for row in reader.chunks(ids).values()}


def _with_scale(
    reports: tuple[RetrieverReport, RetrieverReport], scale: CosineScale | None
) -> tuple[RetrieverReport, RetrieverReport]:
    """Return the reports with the least cosine of `scale` in that of the vector retriever."""
    keyword, vector = reports
    return reports if scale is None else (keyword, replace(vector, note=f"least cosine {scale.least:.3f}"))
