"""The order of the results that a reranker scored. Pure.

The value of a result is `weight` x its score by the reranker + (1 - `weight`) x its own score / the best own score. The
reranker reads query and text together, and is right more often than the retrievers; the own score keeps what it cannot
see: exact identifiers that few texts contain, dates, annotations and age. Both parts are within 0..1, so the weight
means the same for every query. The scores themselves do not change.
"""

from collections.abc import Sequence


def reranked_order(own: Sequence[float], scores: Sequence[float | None], weight: float) -> list[int]:
    """Return the places of the results in their new order. `own` are their scores, in the order without a reranker.

    `scores` are those of the reranker, 0..1, None for a result without one; missing ones at the end count as None.
    Results without a score follow the others, in their order. Equal values keep their order. A weight of 0 changes
    nothing.
    """
    places = range(len(own))
    if weight <= 0:
        return list(places)
    best = max(own, default=0.0)
    found = dict(zip(places, scores, strict=False))

    def value(place: int) -> float:
        score = found.get(place)
        if score is None:
            return -1.0
        return weight * score + (1 - weight) * (own[place] / best if best > 0 else 0.0)

    return sorted(places, key=lambda place: -value(place))
