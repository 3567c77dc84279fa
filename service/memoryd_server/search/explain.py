"""Why an answer is empty, in a word and in a sentence with what to do about it. Pure."""

from dataclasses import replace

from memoryd_server.index.keyword import KeywordAnswer
from memoryd_server.index.rows import IndexCounts
from memoryd_server.search.query import EmptyReason, SearchAnswer, SearchQuery


def explained(
    answer: SearchAnswer, counts: IndexCounts, found: KeywordAnswer, query: SearchQuery, *, gone: int, abstained: bool
) -> SearchAnswer:
    """The empty answer with its reason."""
    reason, words = _reason(answer, counts, found, query, gone=gone, abstained=abstained)
    return replace(answer, empty_reason=reason, empty_explanation=words)


def _reason(
    answer: SearchAnswer, counts: IndexCounts, found: KeywordAnswer, query: SearchQuery, *, gone: int, abstained: bool
) -> tuple[EmptyReason, str]:
    if counts.chunks == 0:
        return EmptyReason.EMPTY_INDEX, "nothing is indexed for this agent yet; call Sync, or look at Status"
    if abstained:
        share = f"{answer.coverage or 0:.2f}"
        return EmptyReason.ABSTAINED, f"the best hit covers {share} of the question, less than memoryd.abstainBelow"
    if gone:
        return EmptyReason.FILES_GONE, f"{gone} hits were in files that have since been removed or replaced"
    if answer.dropped_by_min_score:
        dropped = f"{answer.dropped_by_min_score} hits score below min_score {query.min_score:g}"
        return EmptyReason.FILTERED_BY_SCORE, f"{dropped}; lower it to see them"
    if not found.terms:
        return EmptyReason.NO_MATCH, f"no word of the query stands in the {counts.files} indexed files"
    return EmptyReason.NO_MATCH, f"none of {', '.join(found.terms)} stands in the sources that were searched"
