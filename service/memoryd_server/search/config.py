"""How legs are fused and hits are reordered; the composition root fills it from the settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankingConfig:
    """Weights are shares of one. `hybrid` off means that the vector leg answers alone where it can.

    `decay_floor` is the least share of a score that decay leaves; `abstain_below` is the coverage under which a search
    returns nothing, 0 for never. Neighbouring chunks are shown as one hit of at most `merged_chars` code points.
    """

    hybrid: bool = True
    vector_weight: float = 0.7
    text_weight: float = 0.3
    candidate_multiplier: int = 4
    mmr: bool = False
    mmr_lambda: float = 0.7
    decay: bool = False
    half_life_days: float = 30.0
    decay_floor: float = 0.5
    abstain_below: float = 0.0
    merged_chars: int = 1_600
