"""Who made a vector, as the embedding cache tells makers apart."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Who makes the vectors. `provider_key` stands for the endpoint and what else changes them; no secret is in it."""

    provider: str
    model: str
    provider_key: str
