"""A question into hits: runs the legs under the deadline, fuses them, cuts, and shows the part that answers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from memoryd_server.errors import EmbeddingNotConfigured
from memoryd_server.index import keyword
from memoryd_server.index.keyword import KeywordAnswer
from memoryd_server.index.reader import IndexReader
from memoryd_server.index.rows import ChunkRow, IndexCounts
from memoryd_server.index.store import IndexStore
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.search.budget import within_budget
from memoryd_server.search.citation import citation, cited
from memoryd_server.search.fusion import Candidate, cut, fuse
from memoryd_server.search.query import EmptyReason, Hit, LegReport, SearchAnswer, SearchMode, SearchQuery
from memoryd_server.search.snippet import best_snippet
from memoryd_server.text import Analyzer, QueryTerm

# Candidates of a leg before fusion; more cost time and find nothing that the first fifty do not.
CANDIDATES = 50

# Whether a chunk's file is still there, and as it was when it was indexed: (there, unchanged).
FileCheck = Callable[[ChunkRow], tuple[bool, bool]]


class SearchEngine:
    """Searches one index, which holds `sources`. `no_vector_reason` says why the vector leg cannot run.

    `check` looks at the file of each hit, so that no answer shows what has been deleted.
    """

    def __init__(
        self,
        store: IndexStore,
        analyzer: Analyzer,
        check: FileCheck,
        *,
        sources: Sequence[Source],
        no_vector_reason: str,
    ) -> None:
        self._sources = frozenset(sources)
        self._store = store
        self._analyzer = analyzer
        self._check = check
        self._no_vector_reason = no_vector_reason

    def search(self, query: SearchQuery) -> SearchAnswer:
        """Answers `query` from the last committed state of the index. Blocks; costs milliseconds.

        Raises:
            EmbeddingNotConfigured: the vector leg alone was asked for.
            DeadlineTooShort: `query.deadline` passed.
            IndexUnavailable: the index cannot be read.
        """
        if query.mode is SearchMode.VECTOR:
            raise EmbeddingNotConfigured(
                f"vector search was asked for and cannot run: {self._no_vector_reason}; ask for KEYWORD or HYBRID"
            )
        began = time.monotonic()
        terms = self._analyzer.query_terms(query.text)
        with self._store.read(query.deadline) as reader:
            counts = reader.counts()
            found = keyword.search(
                reader,
                terms,
                self._filter(query),
                enough=query.max_results,
                limit=max(CANDIDATES, query.max_results),
                chunk_count=counts.chunks,
            )
            report = LegReport(SearchMode.KEYWORD, True, len(found.hits), time.monotonic() - began, found.terms)
            candidates = fuse(found.hits)
            ranked, dropped = cut(candidates, query.min_score, len(candidates), strict=query.min_score_is_strict)
            present, stale, gone = self._present(ranked, reader, query.max_results)
        hits = [self._hit(candidate, row, query, terms) for candidate, row in present]
        answer = SearchAnswer(
            hits=within_budget(hits, query.max_total_chars),
            served_mode=SearchMode.KEYWORD,
            revision=counts.revision,
            indexed_files=counts.files,
            keyword_candidates=len(found.hits),
            dropped_by_min_score=dropped,
            stale=stale,
            degradations=self._degradations(query),
            legs=(report, LegReport(SearchMode.VECTOR, False, 0, 0.0, note=self._no_vector_reason)),
        )
        return answer if answer.hits else _explained(answer, counts, found, query, gone=gone)

    def _present(
        self, ranked: Sequence[Candidate], reader: IndexReader, most: int
    ) -> tuple[list[tuple[Candidate, ChunkRow]], bool, int]:
        """The best `most` whose files are still there, whether any file has changed, and how many are gone.

        Looks further only when a file is gone, so that it takes nobody's place.
        """
        present: list[tuple[Candidate, ChunkRow]] = []
        stale, gone = False, 0
        for start in range(0, len(ranked), most):
            batch = ranked[start : start + most]
            rows = reader.chunks([candidate.chunk_id for candidate in batch])
            for candidate in batch:
                there, unchanged = self._check(rows[candidate.chunk_id])
                stale = stale or not unchanged
                gone += not there
                if there:
                    present.append((candidate, rows[candidate.chunk_id]))
            if len(present) >= most:
                break
        return present[:most], stale, gone

    def _hit(self, candidate: Candidate, row: ChunkRow, query: SearchQuery, terms: Sequence[QueryTerm]) -> Hit:
        words = [term.text for term in terms]
        snippet = best_snippet(row.text, row.start_line, words, self._words_of, query.max_snippet_chars)
        name = citation(row.path, row.start_line, row.end_line)
        return Hit(
            path=row.path,
            source=row.source,
            start_line=row.start_line,
            end_line=row.end_line,
            score=candidate.score,
            snippet=cited(snippet.text, name) if query.citations else snippet.text,
            snippet_start_line=snippet.start_line,
            snippet_end_line=snippet.end_line,
            mtime_ns=row.mtime_ns,
            text_score=candidate.text_score,
            keyword_rank=candidate.keyword_rank,
        )

    def _words_of(self, line: str) -> Sequence[str]:
        return self._analyzer.index_tokens(line).split()

    def _filter(self, query: SearchQuery) -> tuple[Source, ...]:
        """The sources to search; empty where that is all there are, which costs a join less."""
        return () if self._sources <= set(query.sources) else query.sources

    def _degradations(self, query: SearchQuery) -> tuple[Degradation, ...]:
        found = [
            Degradation(
                DegradationKind.SOURCE_SKIPPED, source, "", f"{source} is not among the agent's indexed sources"
            )
            for source in query.sources
            if source not in self._sources
        ]
        if query.mode is SearchMode.HYBRID:
            reason = self._no_vector_reason
            found.append(Degradation(DegradationKind.VECTOR_LEG_SKIPPED, "HYBRID", "KEYWORD", reason))
        return tuple(found)


def _explained(
    answer: SearchAnswer, counts: IndexCounts, found: KeywordAnswer, query: SearchQuery, *, gone: int
) -> SearchAnswer:
    """The empty answer with why it is empty and what to do about it."""
    if counts.chunks == 0:
        reason, words = EmptyReason.EMPTY_INDEX, "nothing is indexed for this agent yet; call Sync, or look at Status"
    elif gone:
        reason, words = EmptyReason.FILES_GONE, f"{gone} hits were in files that have since been removed or replaced"
    elif answer.dropped_by_min_score:
        reason = EmptyReason.FILTERED_BY_SCORE
        words = f"{answer.dropped_by_min_score} hits score below min_score {query.min_score:g}; lower it to see them"
    elif not found.terms:
        reason, words = EmptyReason.NO_MATCH, f"no word of the query stands in the {counts.files} indexed files"
    else:
        reason = EmptyReason.NO_MATCH
        words = f"none of {', '.join(found.terms)} stands in the sources that were searched"
    return replace(answer, empty_reason=reason, empty_explanation=words)
