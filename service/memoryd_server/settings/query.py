"""`memorySearch.query`: how the two legs of a search are joined and cut."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from .block import Block
from .rules import Real, Whole

VECTOR_WEIGHT = 0.7
TEXT_WEIGHT = 0.3


class MmrSettings(Block):
    """Maximal marginal relevance: hits that repeat better ones move down."""

    enabled: bool = False
    """Whether hits are reordered for variety. true or false; default false."""
    lambda_: Annotated[float, Real(0, 1)] = Field(0.7, alias="lambda")
    """1 ranks by score alone, 0 by variety alone. Share, 0..1; default 0.7."""


class TemporalDecaySettings(Block):
    """Older notes count less."""

    enabled: bool = False
    """Whether scores fade with age. true or false; default false."""
    half_life_days: Annotated[int, Whole(1)] = 30
    """Age at which a score has halved. Days, at least 1; default 30."""


class HybridSettings(Block):
    """The fusion of keyword leg and vector leg. The weights are divided by their sum."""

    enabled: bool = True
    """Whether the keyword leg is used beside the vector leg. true or false; default true."""
    vector_weight: Annotated[float, Real(0, 1)] = VECTOR_WEIGHT
    """What the vector leg counts. Share, 0..1; default 0.7."""
    text_weight: Annotated[float, Real(0, 1)] = TEXT_WEIGHT
    """What the keyword leg counts. Share, 0..1; default 0.3."""
    candidate_multiplier: Annotated[int, Whole(1, 20)] = 4
    """Candidates that each leg hands in, for one result. Factor, 1..20; default 4."""
    mmr: MmrSettings = MmrSettings()
    """Variety."""
    temporal_decay: TemporalDecaySettings = TemporalDecaySettings()
    """Age."""

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> Self:
        total = self.vector_weight + self.text_weight
        weights = (self.vector_weight / total, self.text_weight / total) if total else (VECTOR_WEIGHT, TEXT_WEIGHT)
        # The block is frozen to others; it is not made yet.
        object.__setattr__(self, "vector_weight", weights[0])
        object.__setattr__(self, "text_weight", weights[1])
        return self


class QuerySettings(Block):
    """What a search returns."""

    max_results: Annotated[int, Whole(1, 50)] = 6
    """Results, when the request names no number. Results, 1..50; default 6."""
    min_score: Annotated[float, Real(0, 1)] = 0.35
    """The least score of a result, when the request names none. If this is not set either, the default applies to
    results that share words with the question, and results found by meaning alone pass by their cosine on the model's
    own scale. Score, 0..1; default 0.35."""
    hybrid: HybridSettings = HybridSettings()
    """Fusion."""
