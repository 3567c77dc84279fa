"""A search of qmd as an answer: how it came about, and why it is empty where it is. Pure."""

from collections.abc import Mapping, Sequence

from memoryd_server.backend.qmd.client import Found
from memoryd_server.backend.qmd.commands import Verb
from memoryd_server.backend.qmd.hits import Ranked
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.search.query import EmptyReason, Hit, LegReport, SearchAnswer, SearchMode, SearchQuery

NAME = "qmd"
SERVED: Mapping[Verb, SearchMode] = {
    Verb.SEARCH: SearchMode.KEYWORD,
    Verb.VSEARCH: SearchMode.VECTOR,
    Verb.QUERY: SearchMode.HYBRID,
}
_ALL_WORDS = "no file of the collections holds all the words; ask with fewer, or set memory.qmd.searchMode to query"
_NOTHING = "qmd found nothing in the collections that were searched"


def answer_of(
    found: Found,
    ranked: Ranked,
    hits: Sequence[Hit],
    query: SearchQuery,
    *,
    verb: Verb,
    revision: int,
    documents: int,
    stale: bool,
    missing: Sequence[Source],
    elapsed_seconds: float,
) -> SearchAnswer:
    """The answer. `documents` is how many files qmd holds, `missing` are the sources asked for and not collected."""
    reason, words = _emptiness(ranked, query, verb, documents) if not hits else (None, "")
    candidates = len(found.rows)
    return SearchAnswer(
        hits=tuple(hits),
        served_mode=SERVED[verb],
        revision=revision,
        indexed_files=documents,
        keyword_candidates=candidates if verb is Verb.SEARCH else 0,
        vector_candidates=candidates if verb is Verb.VSEARCH else 0,
        dropped_by_min_score=ranked.dropped,
        stale=stale or ranked.moved,
        degradations=tuple(_degradations(found, query, verb, missing)),
        legs=(
            LegReport(
                SERVED[verb], ran=True, candidates=candidates, elapsed_seconds=elapsed_seconds, note=f"qmd {verb}"
            ),
        ),
        empty_reason=reason,
        empty_explanation=words,
        backend=NAME,
    )


def denied(query: SearchQuery) -> SearchAnswer:
    """The answer to a session that may not search."""
    return SearchAnswer(
        hits=(),
        served_mode=query.mode,
        revision=0,
        indexed_files=0,
        keyword_candidates=0,
        dropped_by_min_score=0,
        stale=False,
        empty_reason=EmptyReason.SCOPE_DENIED,
        empty_explanation="memory.qmd.scope does not let this session search; give session_key, or change the rules",
        backend=NAME,
    )


def _emptiness(ranked: Ranked, query: SearchQuery, verb: Verb, documents: int) -> tuple[EmptyReason, str]:
    if ranked.gone:
        return EmptyReason.FILES_GONE, f"{ranked.gone} hits were in files that have since been removed or rewritten"
    if ranked.dropped:
        dropped = f"{ranked.dropped} hits score below min_score {query.min_score or 0:g}"
        return EmptyReason.FILTERED_BY_SCORE, f"{dropped}; lower it to see them"
    if not documents:
        return EmptyReason.EMPTY_INDEX, "qmd has indexed no file for this agent; look at Status"
    return EmptyReason.NO_MATCH, _ALL_WORDS if verb is Verb.SEARCH else _NOTHING


def _degradations(found: Found, query: SearchQuery, verb: Verb, missing: Sequence[Source]) -> list[Degradation]:
    degradations = [
        Degradation(DegradationKind.SOURCE_SKIPPED, source, "", f"no collection of qmd holds {source}")
        for source in missing
    ]
    if query.mode is SearchMode.HYBRID and verb is not Verb.QUERY:
        reason = f"memory.qmd.searchMode is {verb}"
        degradations.append(Degradation(DegradationKind.VECTOR_LEG_SKIPPED, "HYBRID", SERVED[verb], reason))
    if found.pending and verb is not Verb.SEARCH:
        reason = f"{found.pending} of qmd's documents have no vector yet"
        degradations.append(Degradation(DegradationKind.VECTORS_PENDING, "a vector for each document", "", reason))
    return degradations
