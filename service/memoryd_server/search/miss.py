"""Why a search does not find a file, a line or a chunk: the step that left it out, read from the trace of the search.

Pure.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from memoryd_server.search.cutoff import Cutoff
from memoryd_server.search.query import (
    DroppedCandidate,
    EmptyReason,
    Hit,
    Miss,
    MissReason,
    SearchAnswer,
    SearchMode,
    SearchQuery,
    clamp,
)
from memoryd_server.search.trace import (
    MOST_DROPPED,
    MOST_RANKED,
    CandidateTrace,
    RetrieverPlace,
    SearchTrace,
    TargetTrace,
    TracedChunk,
)
from memoryd_server.store import ChunkRow


def explain_miss(trace: TargetTrace, answer: SearchAnswer, query: SearchQuery) -> Miss | None:
    """Return the step that left out the target of `trace`; None if the index has no text of it.

    `answer` is the answer that the caller gets, which may have entries among the results of the traced search.
    """
    is_in, chunk = trace.target.is_in, trace.chunk
    rank = _rank_among(answer.hits, is_in)
    if rank is not None:
        hit = answer.hits[rank - 1]
        lines = f"lines {hit.start_line}-{hit.end_line}"
        return Miss(MissReason.FOUND, f"the search finds it: {lines} are result {rank}", rank, query.max_results)
    withheld = _withheld(trace, is_in, answer, query)
    if withheld is not None:
        return withheld
    if trace.is_gone:
        return Miss(MissReason.NOT_ON_DISK, "the file has been deleted or moved since it was indexed")
    if trace.excluded_by:
        rule = "; ".join(trace.excluded_by)
        return Miss(MissReason.FILTERED, f"the filter of the search excludes the file: {rule}", rule=rule)
    if chunk is None:
        return None
    return _step_of(trace, chunk, query) if chunk.is_candidate else _not_retrieved(trace, chunk, query)


def dropped_candidates(trace: CandidateTrace, answer: SearchAnswer, query: SearchQuery) -> tuple[DroppedCandidate, ...]:
    """Return the best candidates that are not in `answer`, at most `MOST_DROPPED`, best first.

    A chunk whose lines are within those of a result, such as one that was merged into it, is not returned. `answer` is
    that of the traced search.
    """
    return tuple(islice(_dropped(trace, answer, query), MOST_DROPPED))


def _dropped(trace: CandidateTrace, answer: SearchAnswer, query: SearchQuery) -> Iterator[DroppedCandidate]:
    for chunk in trace.chunks:
        row, score = chunk.row, clamp(chunk.candidate.score)
        is_in = partial(_contains, row)
        if not any(map(is_in, answer.hits)):
            miss = _withheld(trace, is_in, answer, query) or _step_of(trace, chunk, query)
            yield DroppedCandidate(row.path, row.source, row.start_line, row.end_line, score, miss)


def displaced(rank: int, query: SearchQuery) -> Miss:
    """Return that entries take the place of a result of the files, which has this rank."""
    words = "entries, which alternate with files, take its place"
    return Miss(MissReason.RESERVED, f"it is result {rank} of the files, but {words}", rank, query.max_results)


def _contains(row: ChunkRow, hit: Hit) -> bool:
    """Return whether all lines of the chunk are in the hit."""
    same = (hit.source, hit.path) == (row.source, row.path)
    return same and hit.start_line <= row.start_line and row.end_line <= hit.end_line


def _step_of(trace: SearchTrace, chunk: TracedChunk, query: SearchQuery) -> Miss:
    """Return the step that left out a candidate that is not a result."""
    if chunk.passed is None:
        return _cut_off(trace.cutoff, chunk, query)
    return _outranked(trace, chunk, chunk.merged_rank or chunk.passed, query)


def _rank_among(hits: Sequence[Hit], is_in: Callable[[Hit], bool]) -> int | None:
    return next((rank for rank, hit in enumerate(hits, 1) if is_in(hit)), None)


def _withheld(
    trace: SearchTrace, is_in: Callable[[Hit], bool], answer: SearchAnswer, query: SearchQuery
) -> Miss | None:
    """Return why a result of the search is not in the answer; None if `is_in` is true of no result."""
    searched, rank = trace.answer, _rank_among(trace.hits, is_in)
    if searched is None or rank is None:
        return None
    if searched.empty_reason is EmptyReason.ABSTAINED:
        confidence, least = searched.confidence or 0.0, trace.least_confidence
        words = f"the answer is withheld, because its confidence of {confidence:.3f} is below {least:.3f}"
        return Miss(MissReason.ABSTAINED, f"it is result {rank}, but {words}", rank, value=confidence, limit=least)
    if _rank_among(searched.hits, is_in) is not None and any(hit.source is None for hit in answer.hits):
        return displaced(rank, query)
    words = f"the snippets of the results before it use all of max_total_chars ({query.max_total_chars})"
    return Miss(MissReason.TEXT_LIMIT, f"it is result {rank}, but {words}", rank, len(answer.hits))


def _not_retrieved(trace: TargetTrace, chunk: TracedChunk, query: SearchQuery) -> Miss:
    if not chunk.places:
        return Miss(MissReason.NO_MATCH, f"{_lines(chunk)} {_mismatch(trace, query)}")
    closest = min(chunk.places, key=lambda place: (place.rank or math.inf) / place.limit)
    if closest.rank is not None and closest.rank <= closest.limit:
        words = "have only words of the query that are too common to retrieve chunks"
        return Miss(MissReason.NOT_RETRIEVED, f"{_lines(chunk)} {words}", max_rank=closest.limit)
    words = " and ".join(map(_words_of, chunk.places))
    return Miss(
        MissReason.NOT_RETRIEVED, f"{_lines(chunk)} are not among the candidates: {words}", closest.rank, closest.limit
    )


def _words_of(place: RetrieverPlace) -> str:
    rank = f"above {MOST_RANKED:,}" if place.rank is None else str(place.rank)
    return f"their rank in {place.retriever} search is {rank}, and it returns {place.limit} candidates"


def _mismatch(trace: TargetTrace, query: SearchQuery) -> str:
    words = () if trace.hit is None else trace.hit.words
    without = "they have no vector" if _used_vectors(trace) else "vector search did not run"
    if trace.no_vector:
        without += f" ({trace.no_vector})"
    if query.mode is SearchMode.VECTOR:
        return f"cannot be found by vector search: {without}"
    if words:
        common = ", ".join(words)
        return f"have only words of the query that were not searched, because others are rarer: {common}; {without}"
    return f"have none of the query's words, and {without}"


def _used_vectors(trace: SearchTrace) -> bool:
    return trace.answer is not None and trace.answer.served_mode is not SearchMode.KEYWORD


def _cut_off(cutoff: Cutoff | None, chunk: TracedChunk, query: SearchQuery) -> Miss:
    """Return why a candidate did not pass the cutoff."""
    score, cosine, lines = chunk.candidate.score, chunk.candidate.vector_score, _lines(chunk)
    if query.min_score is not None:
        origin = "of the request" if query.min_score_is_requested else "of the settings"
        words = f"the score {score:.3f} of {lines} is below the minimum score {origin}, {query.min_score:.3f}"
        return Miss(MissReason.BELOW_MIN_SCORE, words, value=score, limit=query.min_score)
    least = None if cutoff is None else cutoff.least_cosine
    if cutoff is not None and cutoff.scale is not None and least is not None and math.isinf(least):
        least = cutoff.scale.least
        words = f"no chunk reaches {least:.3f}, the least cosine of an answer with this model"
        return Miss(
            MissReason.BELOW_CUTOFF, f"{lines} have the cosine {_shown(cosine)}, and {words}", value=cosine, limit=least
        )
    words = (
        f"keyword search did not return {lines}, and their cosine {_shown(cosine)} is below {_shown(least)}, the least "
        "cosine of a result with this model"
    )
    return Miss(MissReason.BELOW_CUTOFF, words, value=cosine, limit=least)


def _outranked(trace: SearchTrace, chunk: TracedChunk, rank: int, query: SearchQuery) -> Miss:
    """Return why a chunk that passed the cutoff is not a result. `rank` is its rank without a limit of results."""
    most, lines = query.max_results, _lines(chunk)
    last = trace.hits[-1].score if trace.hits else None
    if _is_within(chunk.selected, most):
        reason, words = MissReason.RERANKED, f"{lines} were result {chunk.selected}, and the reranker moved them down"
    elif rank <= most:
        reason, words = MissReason.RESERVED, f"{lines} have rank {rank}, but places are reserved for other sources"
    elif _is_within(chunk.placed, most):
        reason = MissReason.RESERVED
        words = f"{lines} have rank {rank}, because a third of the places is reserved for the best cosines"
    elif _is_within(chunk.passed, most):
        reason, penalty = MissReason.ADJACENT, f"by {chunk.candidate.adjacent:.2f}"
        words = f"{lines} have rank {rank}: they count {penalty} less, because they are adjacent to better results"
    elif trace.is_diversified and _is_within(chunk.by_score, most):
        reason = MissReason.DIVERSITY
        words = f"{lines} are similar to better results, so MMR moves them from rank {chunk.by_score} to {rank}"
    else:
        reason = MissReason.BELOW_MAX_RESULTS
        words = f"{lines} have rank {rank}, and the search returns {most} results, the last with score {_shown(last)}"
    return Miss(reason, words, rank, most, clamp(chunk.candidate.score), last)


def _is_within(rank: int | None, most: int) -> bool:
    return rank is not None and rank <= most


def _lines(chunk: TracedChunk) -> str:
    return f"lines {chunk.row.start_line}-{chunk.row.end_line}"


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
