"""A question into hits: runs the legs under the deadline, fuses and reorders, cuts, and shows the part that answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.search.coverage import abstains, empty_reason, known_names
from memoryd_server.search.cutoff import UNCALIBRATED, CosineScale, cut, default_cut, derived_scale, known_scale
from memoryd_server.search.query import (
    Candidate,
    Hit,
    RankingConfig,
    RetrieverReport,
    SearchAnswer,
    SearchMode,
    SearchQuery,
)
from memoryd_server.search.ranking import Reranked, reorder
from memoryd_server.search.results import (
    FileCheck,
    HitRenderer,
    LazyRows,
    RenderedHit,
    citation,
    cited,
    merged,
    shared,
    within_budget,
)
from memoryd_server.search.retrieval import AnalyzedQuery, EarlyKeywordHits, Groups, RetrievalResult, Retrievers
from memoryd_server.store import ChunkHead, ChunkRow, Reader, Store, VectorIdentity
from memoryd_server.text import Analyzer

# It can happen between the making of a question's vector and the search.
_REPLACED = "the index's vectors have just been replaced by those of another provider or model; ask again"


@dataclass(frozen=True, slots=True)
class _Present:
    """The hits whose files are still there, whether any file has changed, and how many are gone."""

    hits: list[tuple[Candidate, ChunkRow]]
    stale: bool
    gone: int


class SearchEngine:
    """Searches one index, which holds `sources`.

    `check` looks at the files of hits, so that no answer shows what has been deleted.
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
        self.rank_by(ranking or RankingConfig())

    def rank_by(self, ranking: RankingConfig) -> None:
        """Ranks by these figures from the next search on."""
        self._ranking = ranking
        self._legs = Retrievers(self._analyzer, ranking)

    def words(self, query: SearchQuery) -> EarlyKeywordHits | None:
        """The keyword leg's part of a search, for while the question's vector is being made; None where it has none.

        Raises:
            DeadlineTooShort, IndexUnavailable: as `search`.
        """
        with self._store.read(query.deadline) as reader:
            counts = reader.counts()
            languages = counts.languages
            terms = self._analyzer.query_terms(query.text, languages)
            question = AnalyzedQuery(query, terms, languages, None, "")
            done = self._legs.words(reader, question, self._groups(query, counts.sources), counts.chunks)
        return None if done is None else EarlyKeywordHits(counts.revision, languages, *done)

    def search(
        self,
        query: SearchQuery,
        vector: NDArray[np.float32] | None = None,
        no_vector: str = "",
        words: EarlyKeywordHits | None = None,
        made_by: VectorIdentity | None = None,
    ) -> SearchAnswer:
        """Answers `query` from the last committed state of the index. Blocks; costs milliseconds.

        `vector` is the question's, made by the provider that made the index's; `no_vector` says why there is none.
        `words` is what the keyword leg has found already; it counts where the index has not changed since. `made_by`
        is the identity of `vector`, which meets no vectors of another one.

        Raises:
            DeadlineTooShort: `query.deadline` passed.
            EmbeddingUnavailable: the vector leg alone was asked for, and the index has just got vectors of another
                identity.
            IndexUnavailable: the index cannot be read.
        """
        with self._store.read(query.deadline) as reader:
            counts = reader.counts()
            languages = counts.languages
            terms = self._analyzer.query_terms(query.text, languages)
            if made_by is not None and not made_by.matches(reader.vector_identity()):
                vector, no_vector = None, _REPLACED
                if query.mode is SearchMode.VECTOR:
                    raise EmbeddingUnavailable(_REPLACED, retry_after_seconds=1.0)
            question = AnalyzedQuery(query, terms, languages, vector, no_vector)
            if words is not None and (words.revision, words.languages) != (counts.revision, languages):
                words = None
            groups = self._groups(query, counts.sources)
            legs = self._legs.run(reader, question, groups, counts.chunks, words)
            heads = cache(partial(reader.heads, [candidate.chunk_id for candidate in legs.candidates]))
            now = query.now or datetime.now(UTC)
            ordered = reorder(
                legs.candidates,
                heads,
                query=query.text,
                now=now,
                ranking=self._ranking,
                texts_of=lambda ids: {row.id: row.text for row in reader.chunks(ids).values()},
                words_of=self._words_of,
            )
            scale = self._scale(reader, question, legs, made_by)
            ranked, dropped = _cut(ordered.candidates, query, scale)
            rows = LazyRows(reader, [candidate.chunk_id for candidate in ranked], self._check)
            present = (
                self._shared(ranked, heads(), rows, query.max_results)
                if len(groups) > 1
                else self._present(ranked, rows, query.max_results)
            )
        shower = HitRenderer(self._analyzer, question, legs.found)
        hits = [_hit(candidate, row, shower.show(row), query, ordered) for candidate, row in present.hits]
        best = max((hit.coverage or 0.0 for hit in hits), default=0.0)
        abstained = bool(hits) and self._abstains(question, legs, best)
        answer = SearchAnswer(
            hits=() if abstained else within_budget(hits, query.max_total_chars),
            served_mode=legs.served,
            revision=counts.revision,
            indexed_files=counts.files,
            keyword_candidates=len(legs.found.hits),
            vector_candidates=len(legs.vector_hits),
            coverage=best if legs.found.frequencies else None,
            dropped_by_min_score=dropped,
            stale=present.stale,
            degradations=self._degradations(query, legs, no_vector),
            legs=_with_scale(legs.reports, scale),
        )
        if answer.hits:
            return answer
        reason, explanation = empty_reason(
            answer, counts, legs.found, query, gone=present.gone, abstained=abstained, scale=scale
        )
        return replace(answer, empty_reason=reason, empty_explanation=explanation)

    def _scale(
        self, reader: Reader, question: AnalyzedQuery, legs: RetrievalResult, made_by: VectorIdentity | None
    ) -> CosineScale | None:
        """Return the scale of the question's cosines; None if no least cosine applies."""
        if question.query.min_score is not None or question.vector is None or not legs.vector_hits:
            return None
        known = None if made_by is None else known_scale(made_by.model)
        if known is not None:
            return known
        centre = reader.vector_centre(len(question.vector))
        return UNCALIBRATED if centre is None else derived_scale(question.vector, centre)

    def _present(self, ranked: Sequence[Candidate], rows: LazyRows, most: int) -> _Present:
        """The best `most` whose files are still there; a file that is gone takes nobody's place.

        More are looked at than are shown, because neighbours are shown as one.
        """
        present: list[tuple[Candidate, ChunkRow]] = []
        stale, gone = False, 0
        for candidate in ranked:
            seen = rows.get(candidate.chunk_id)
            if seen is None:
                continue
            stale = stale or not seen.unchanged
            gone += not seen.there
            if seen.there:
                present = merged([*present, (candidate, seen.row)], self._ranking.merged_chars)
            if len(present) > most:
                break
        return _Present(present[:most], stale, gone)

    def _shared(
        self, ranked: Sequence[Candidate], heads: Mapping[int, ChunkHead], rows: LazyRows, most: int
    ) -> _Present:
        """The best `most` of all sources, none of which crowds another out."""
        place = {candidate.chunk_id: number for number, candidate in enumerate(ranked)}
        held = [candidate for candidate in ranked if candidate.chunk_id in heads]
        of_source = {source: [c for c in held if heads[c.chunk_id].source is source] for source in Source}
        found = {source: self._present(candidates, rows, most) for source, candidates in of_source.items()}
        placed = {source: [(place[hit[0].chunk_id], hit) for hit in each.hits] for source, each in found.items()}
        stale, gone = any(each.stale for each in found.values()), sum(each.gone for each in found.values())
        return _Present(shared(placed, most), stale, gone)

    def _abstains(self, question: AnalyzedQuery, legs: RetrievalResult, best: float) -> bool:
        """Only where keywords alone answered: what is found by meaning covers no word."""
        if self._ranking.abstain_below <= 0 or legs.served is not SearchMode.KEYWORD or not legs.found.frequencies:
            return False

        def terms_of(name: str) -> list[str]:
            return [term.text for term in self._analyzer.query_terms(name, question.languages)]

        names = known_names(question.query.text, terms_of, legs.found.frequencies)
        return abstains(best, names, self._ranking.abstain_below)

    def _words_of(self, text: str) -> Sequence[str]:
        return self._analyzer.index_tokens(text).split()

    def _groups(self, query: SearchQuery, held: Sequence[Source]) -> Groups:
        """The sources to search, each by itself where there are several.

        One group that is empty where they are all there are, which costs a join less.
        """
        wanted = tuple(source for source in held if source in query.sources or not query.sources)
        if len(wanted) > 1:
            return tuple((source,) for source in wanted)
        return ((),) if self._sources <= set(query.sources) else (query.sources,)

    def _degradations(self, query: SearchQuery, legs: RetrievalResult, no_vector: str) -> tuple[Degradation, ...]:
        found = [
            Degradation(
                DegradationKind.SOURCE_SKIPPED, source, "", f"{source} is not among the agent's indexed sources"
            )
            for source in query.sources
            if source not in self._sources
        ]
        if query.mode is SearchMode.HYBRID and legs.served is SearchMode.KEYWORD and no_vector:
            found.append(Degradation(DegradationKind.VECTOR_LEG_SKIPPED, "HYBRID", "KEYWORD", no_vector))
        return tuple(found)


def _cut(candidates: list[Candidate], query: SearchQuery, scale: CosineScale | None) -> tuple[list[Candidate], int]:
    most = len(candidates)
    if query.min_score is not None:
        return cut(candidates, query.min_score, most, strict=query.min_score_is_strict)
    return default_cut(candidates, scale or UNCALIBRATED, query.max_results)


def _with_scale(
    reports: tuple[RetrieverReport, RetrieverReport], scale: CosineScale | None
) -> tuple[RetrieverReport, RetrieverReport]:
    """Return the reports of both legs, with the least cosine of `scale` in that of the vector leg."""
    words, meanings = reports
    return reports if scale is None else (words, replace(meanings, note=f"least cosine {scale.least:.3f}"))


def _hit(candidate: Candidate, row: ChunkRow, shown: RenderedHit, query: SearchQuery, ordered: Reranked) -> Hit:
    name = citation(row.path, row.start_line, row.end_line)
    return Hit(
        path=row.path,
        source=row.source,
        start_line=row.start_line,
        end_line=row.end_line,
        score=candidate.score,
        snippet=cited(shown.snippet.text, name) if query.citations else shown.snippet.text,
        snippet_start_line=shown.snippet.start_line,
        snippet_end_line=shown.snippet.end_line,
        mtime_ns=row.mtime_ns,
        text_score=candidate.text_score,
        keyword_rank=candidate.keyword_rank,
        vector_score=candidate.vector_score,
        vector_rank=candidate.vector_rank,
        coverage=shown.coverage,
        decay=ordered.decays.get(candidate.chunk_id),
    )
