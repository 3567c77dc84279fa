"""Why an answer is empty, in a word and in a sentence with what to do about it. Pure."""

from memoryd_server.index.keyword import KeywordAnswer
from memoryd_server.search.cosine_scale import CosineScale
from memoryd_server.search.query import EmptyReason, SearchAnswer, SearchQuery
from memoryd_server.store.rows import IndexCounts


def empty_reason(
    answer: SearchAnswer,
    counts: IndexCounts,
    found: KeywordAnswer,
    query: SearchQuery,
    *,
    gone: int,
    abstained: bool,
    scale: CosineScale | None = None,
) -> tuple[EmptyReason, str]:
    """Return why an answer is empty, and the explanation. `scale` is the default cut's; None if it used none."""
    if counts.chunks == 0:
        return EmptyReason.EMPTY_INDEX, "nothing is indexed for this agent yet; call Sync, or look at Status"
    if abstained:
        share = f"{answer.coverage or 0:.2f}"
        return EmptyReason.ABSTAINED, f"the best hit covers {share} of the question, less than memoryd.abstainBelow"
    if gone:
        return EmptyReason.FILES_GONE, f"{gone} hits were in files that have since been removed or replaced"
    if answer.dropped_by_min_score:
        return EmptyReason.FILTERED_BY_SCORE, _dropped(answer.dropped_by_min_score, query.min_score, scale)
    if not found.terms:
        return EmptyReason.NO_MATCH, f"no word of the query stands in the {counts.files} indexed files"
    return EmptyReason.NO_MATCH, f"none of {', '.join(found.terms)} stands in the sources that were searched"


def _dropped(hits: int, min_score: float | None, scale: CosineScale | None) -> str:
    if min_score is not None:
        return f"{hits} hits score below min_score {min_score:g}; lower it to see them"
    least = "the default least score" if scale is None else f"{scale.least:.2f}, the least cosine by default"
    return f"none of {hits} hits reaches {least}; set min_score, for example to 0, to see them"
