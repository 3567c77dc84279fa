"""How near an entry is to a text, 0..1. Pure."""


def of_distance(distance: float) -> float:
    """The score of a squared Euclidean distance of two vectors of length one, as the reference has it."""
    return 1.0 / (1.0 + max(0.0, distance))


def of_bm25(value: float) -> float:
    """The score of a BM25 value, which tells the order and nothing more."""
    return max(0.0, value) / (1.0 + max(0.0, value))
