"""SearchTrace: the path of some chunks through one search. The engine fills it in if a caller passes one.

`TargetTrace` follows the chunks of one file, `CandidateTrace` the best candidates. A trace repeats no step of the
search. It looks the chunks up in the candidates of each step, and reads scores that the search did not need: those of
chunks that are not candidates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from memoryd_server.model import Source
from memoryd_server.search.cutoff import Cutoff
from memoryd_server.search.neighbours import RankedRow
from memoryd_server.search.query import Candidate, Hit, RankingConfig, SearchAnswer, SearchQuery
from memoryd_server.search.results import FileCheck, LazyRows, RowCache, select
from memoryd_server.search.retrieval import (
    KEYWORD_CANDIDATES,
    VECTOR_CANDIDATES,
    AnalyzedQuery,
    RetrievalResult,
    candidate_limit,
    uncounted,
)
from memoryd_server.store import ALL_FILES, ChunkFilter, ChunkRow, FileFilter, Reader

MOST_CHUNKS = 5_000
"""The most chunks of a file that are followed. If a file has more, the first ones are followed."""
MOST_RANKED = 1_000
"""The highest rank in a retriever that is determined for a chunk that the retriever did not return."""
MOST_DROPPED = 20
"""The most candidates that are followed and are not in the answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A file, or one line of it if `line` is not None."""

    source: Source
    path: str
    line: int | None = None

    def is_in(self, hit: Hit) -> bool:
        """Return whether the hit is in the file, and includes the line."""
        same = (hit.source, hit.path) == (self.source, self.path)
        return same and (self.line is None or hit.start_line <= self.line <= hit.end_line)

    def includes(self, row: ChunkRow) -> bool:
        """Return whether a chunk of the file has the line; messages of a transcript have lines between them."""
        return self.line is None or not row.line_numbers or self.line in row.line_numbers


@dataclass(frozen=True, slots=True)
class RankedOrders:
    """The candidates after each step of a search, best first.

    `by_score` are all candidates, `passed` those that passed the cutoff, after MMR if it is enabled. `placed` are in
    the order after adjacent chunks were moved down, `final` after places were reserved for vector search. `selected`
    are the rows of the answer, before a reranker orders them.
    """

    by_score: Sequence[Candidate]
    passed: Cutoff
    placed: Sequence[Candidate]
    final: Sequence[Candidate]
    selected: Sequence[RankedRow]


@dataclass(frozen=True, slots=True)
class RetrieverPlace:
    """The rank of a chunk in a retriever that did not return it, None above `MOST_RANKED`.

    `limit` is the number of chunks that the retriever returns at most.
    """

    retriever: str
    rank: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class TracedChunk:
    """A chunk that is followed; of the chunks of a target, the one that came furthest.

    `is_candidate` is whether a retriever returned it, and `places` its ranks in them if none did. `passed`, `placed`
    and `final` are its ranks in the `RankedOrders`, None if it is not among them, and `by_score` that by score among
    those that passed the cutoff. `merged_rank` is its rank among all results that there would be without a limit.
    `selected` is its rank among the rows of the answer.
    """

    candidate: Candidate
    row: ChunkRow
    is_candidate: bool
    places: tuple[RetrieverPlace, ...] = ()
    by_score: int | None = None
    passed: int | None = None
    placed: int | None = None
    final: int | None = None
    merged_rank: int | None = None
    selected: int | None = None


class SearchTrace(ABC):
    """Follows chunks through one search. Filled in on the thread of the search, and read afterwards.

    `cutoff` is the cutoff that was applied, and `is_diversified` whether MMR was. `hits` are the results before the
    answer was withheld or shortened, and `least_confidence` is the confidence below which it is withheld. `no_vector`
    is the reason why there is no vector of the query.
    """

    def __init__(self) -> None:
        self.cutoff: Cutoff | None = None
        self.hits: Sequence[Hit] = ()
        self.answer: SearchAnswer | None = None
        self.least_confidence = 0.0
        self.is_diversified = False
        self.no_vector = ""

    def record_ranking(
        self,
        reader: Reader,
        ranking: RankingConfig,
        found: tuple[AnalyzedQuery, RetrievalResult],
        orders: RankedOrders,
        check: FileCheck,
    ) -> None:
        """Follow the chunks through the steps of a search, whose snapshot is open."""
        self.cutoff, self.is_diversified = orders.passed, ranking.mmr
        self.no_vector = found[0].no_vector
        self._follow(reader, ranking, found, orders, check)

    @abstractmethod
    def _follow(
        self,
        reader: Reader,
        ranking: RankingConfig,
        found: tuple[AnalyzedQuery, RetrievalResult],
        orders: RankedOrders,
        check: FileCheck,
    ) -> None:
        """Find the chunks in the orders. Called again if the search is repeated."""

    def record_answer(self, hits: Sequence[Hit], answer: SearchAnswer, least_confidence: float) -> None:
        """Record the results of the search, and the answer that was made of them."""
        self.hits, self.answer, self.least_confidence = hits, answer, least_confidence

    @abstractmethod
    def render(self, render: Callable[[Candidate, ChunkRow], Hit]) -> None:
        """Render the chunks that are shown as results."""


class TargetTrace(SearchTrace):
    """Follows the chunks of one file, or of one line of it.

    `is_gone` is whether the index has the target, and its file has been deleted. `excluded_by` are the conditions of
    the filter that exclude the file, if it is indexed. `chunk` is the chunk that came furthest, and `hit` this chunk as
    a result; None if the index has no text of the target.
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.is_gone = False
        self.excluded_by: tuple[str, ...] = ()
        self.chunk: TracedChunk | None = None
        self.hit: Hit | None = None

    def _follow(
        self,
        reader: Reader,
        ranking: RankingConfig,
        found: tuple[AnalyzedQuery, RetrievalResult],
        orders: RankedOrders,
        check: FileCheck,
    ) -> None:
        target, (analyzed, retrieved) = self.target, found
        self.hit = self.chunk = None
        ids = reader.chunks_of((target.source, target.path), target.line, MOST_CHUNKS)
        if target.line is not None:
            ids = [row.id for row in reader.chunks(ids).values() if target.includes(row)]
        # The text of a deleted file is not shown.
        self.is_gone = any(not exists for exists, _ in check(list(reader.chunks(ids[:1]).values())))
        self.excluded_by = tuple(_excluding(reader, analyzed.query, target)) if ids else ()
        if not ids or self.is_gone or self.excluded_by:
            return
        best = _furthest(ids, orders)
        if best is None:
            self.chunk = _unretrieved(reader, ranking, analyzed, retrieved, ids)
        else:
            rows = LazyRows(RowCache(reader), [candidate.chunk_id for candidate in orders.final], check)
            ranks = _Ranks(orders, rows, ranking.merged_chars)
            self.chunk = ranks.traced(best, reader.chunks([best.chunk_id])[best.chunk_id])

    def render(self, render: Callable[[Candidate, ChunkRow], Hit]) -> None:
        """Render the chunk that came furthest as a result."""
        if self.chunk is not None:
            self.hit = render(self.chunk.candidate, self.chunk.row)


class CandidateTrace(SearchTrace):
    """Follows the best candidates.

    `chunks` are candidates whose files exist, best first: those that passed the cutoff in their final order, then the
    others by score. They include at most `MOST_DROPPED` that are not among the rows of the answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.chunks: tuple[TracedChunk, ...] = ()

    def _follow(
        self,
        reader: Reader,
        ranking: RankingConfig,
        _found: tuple[AnalyzedQuery, RetrievalResult],
        orders: RankedOrders,
        check: FileCheck,
    ) -> None:
        passed = {candidate.chunk_id for candidate in orders.final}
        ordered = [*orders.final, *(each for each in orders.by_score if each.chunk_id not in passed)]
        rows = LazyRows(RowCache(reader), [candidate.chunk_id for candidate in ordered], check)
        ranks = _Ranks(orders, rows, ranking.merged_chars)
        self.chunks = tuple(_best(ordered, rows, ranks))

    def render(self, render: Callable[[Candidate, ChunkRow], Hit]) -> None:
        """Do nothing: the text of these chunks is not shown."""


def _best(ordered: Sequence[Candidate], rows: LazyRows, ranks: "_Ranks") -> Iterator[TracedChunk]:
    dropped = 0
    for candidate in ordered:
        checked = rows.get(candidate.chunk_id)
        if checked is None or not checked.exists:
            continue
        chunk = ranks.traced(candidate, checked.row)
        yield chunk
        dropped += chunk.selected is None
        if dropped == MOST_DROPPED:
            break


def _excluding(reader: Reader, query: SearchQuery, target: Target) -> Iterator[str]:
    """Yield the conditions of a query's filter that exclude the file of the target, as text."""
    if query.files == ALL_FILES:
        return
    for words, condition in _conditions(query.files):
        # Only this file has to be compared.
        paths = condition.path_prefixes or (target.path,)
        among = ChunkFilter(replace(condition, path_prefixes=paths), (target.source,))
        if (target.source, target.path) not in reader.matching_files(among):
            yield words


def _conditions(files: FileFilter) -> Iterator[tuple[str, FileFilter]]:
    if files.since is not None:
        yield f"since {files.since}", FileFilter(since=files.since)
    if files.until is not None:
        yield f"until {files.until}", FileFilter(until=files.until)
    if files.path_prefixes:
        yield f"path_prefixes {', '.join(files.path_prefixes)}", FileFilter(path_prefixes=files.path_prefixes)
    for condition in files.front_matter:
        yield f"front_matter {condition.key}: {', '.join(condition.values)}", FileFilter(front_matter=(condition,))


def _furthest(ids: Sequence[int], orders: RankedOrders) -> Candidate | None:
    """Return the best of these chunks in the last step that any of them reached; None if none is a candidate."""
    wanted = set(ids)
    for candidates in (orders.final, orders.by_score):
        found = next((candidate for candidate in candidates if candidate.chunk_id in wanted), None)
        if found is not None:
            return found
    return None


class _Ranks:
    """The ranks of candidates in each step of one search, from 1, by chunk. Reads the rows of all that passed."""

    def __init__(self, orders: RankedOrders, rows: LazyRows, merged_chars: int) -> None:
        passed = orders.passed.candidates
        self._passed = _by_chunk(passed)
        self._by_score = _by_chunk(each for each in orders.by_score if each.chunk_id in self._passed)
        self._placed = _by_chunk(orders.placed)
        self._final = _by_chunk(orders.final)
        self._everything = select(orders.final, rows, len(orders.final), merged_chars).rows
        self._selected = orders.selected

    def traced(self, candidate: Candidate, row: ChunkRow) -> TracedChunk:
        """Return a candidate with its ranks."""
        chunk_id = candidate.chunk_id
        return TracedChunk(
            candidate,
            row,
            is_candidate=True,
            by_score=self._by_score.get(chunk_id),
            passed=self._passed.get(chunk_id),
            placed=self._placed.get(chunk_id),
            final=self._final.get(chunk_id),
            merged_rank=_merged_rank(row, self._everything),
            selected=_merged_rank(row, self._selected),
        )


def _by_chunk(candidates: Iterable[Candidate]) -> dict[int, int]:
    return {candidate.chunk_id: rank for rank, candidate in enumerate(candidates, 1)}


def _rank(chunk_id: int, ids: Iterable[int]) -> int | None:
    return next((rank for rank, each in enumerate(ids, 1) if each == chunk_id), None)


def _merged_rank(row: ChunkRow, rows: Sequence[RankedRow]) -> int | None:
    """Return the rank of the row that is this chunk, or else of the first that it was merged into."""
    rank = _rank(row.id, (candidate.chunk_id for candidate, _ in rows))
    if rank is not None:
        return rank
    covering = (
        rank
        for rank, (_, other) in enumerate(rows, 1)
        if (other.source, other.path) == (row.source, row.path)
        and other.start_line <= row.start_line
        and row.end_line <= other.end_line
    )
    return next(covering, None)


def _unretrieved(
    reader: Reader, ranking: RankingConfig, analyzed: AnalyzedQuery, retrieved: RetrievalResult, ids: Sequence[int]
) -> TracedChunk:
    """Return the best of chunks that no retriever returned."""
    best = uncounted(reader, analyzed, ranking, retrieved, ids)[0]
    row = reader.chunks([best.chunk_id])[best.chunk_id]
    places = []
    for among in analyzed.groups:
        if among.sources and row.source not in among.sources:
            continue
        if best.text_score:
            found = reader.keyword_hits(retrieved.keyword.searched, among, MOST_RANKED)
            rank = _rank(best.chunk_id, (hit.chunk_id for hit in found))
            places.append(RetrieverPlace("keyword", rank, candidate_limit(analyzed, ranking, KEYWORD_CANDIDATES)))
        if best.vector_score is not None and analyzed.vector is not None:
            near = reader.vector_hits(analyzed.vector, MOST_RANKED, among)
            rank = _rank(best.chunk_id, (hit.chunk_id for hit in near))
            places.append(RetrieverPlace("vector", rank, candidate_limit(analyzed, ranking, VECTOR_CANDIDATES)))
    return TracedChunk(best, row, is_candidate=False, places=tuple(places))
