"""The cost of embedding in tokens, and the limit above which it needs the operator's confirmation."""

from dataclasses import dataclass

# A rough estimate, usually too high: providers count about four bytes of prose per token.
BYTES_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class EmbeddingCost:
    """The chunks to send to the provider, and the approximate number of their tokens."""

    chunks: int = 0
    tokens: int = 0

    def __add__(self, other: "EmbeddingCost") -> "EmbeddingCost":
        return EmbeddingCost(self.chunks + other.chunks, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class CostLimit:
    """The number of tokens above which a remote provider needs confirmation; 0 means never."""

    confirm_above_tokens: int
    remote: bool

    def refuses(self, tokens: int) -> bool:
        """Return whether this number of tokens needs confirmation."""
        return self.remote and 0 < self.confirm_above_tokens < tokens
