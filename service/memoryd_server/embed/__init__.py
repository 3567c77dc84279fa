"""Text into vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    provider: str
    model: str
    endpoint: str
    dimensions: int | None
    max_input_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


@dataclass(frozen=True, slots=True)
class EmbeddingFailure:
    reason: str


class EmbeddingProvider(Protocol):
    @property
    def spec(self) -> EmbeddingSpec: ...
    def embed_query(self, text: str, deadline: float) -> NDArray[np.float32]: ...
    def embed_documents(
        self, texts: Sequence[str], should_stop: Callable[[], bool]
    ) -> list[NDArray[np.float32] | EmbeddingFailure]: ...


def to_blob(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()
