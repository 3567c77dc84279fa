"""What an index and its vectors were built with.

What an index and its vectors were built with.

A query vector is never compared with vectors of another identity.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any, Self

from memoryd_server.foreign_text import parse_json
from memoryd_server.providers import EmbeddingSpec
from memoryd_server.store.rows import CacheKey

TOKENIZER = "ascii tokenchars '_'"
"""How a keyword index splits the analyzer's output into terms again, as SQLite says it."""

# A field, its value in the index, and the wanted one.
Difference = tuple[str, str, str]


class JsonRecord:
    """Gives a dataclass of plain fields its line, and makes it again from one."""

    __slots__ = ()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """What `to_json` wrote; None for anything else."""
        try:
            return cls(**parse_json(text))
        except (TypeError, ValueError):
            return None

    def to_json(self) -> str:
        """One line that equals another exactly when the values do."""
        return json.dumps(self.fields(), sort_keys=True)

    def fields(self) -> dict[str, Any]:
        """Each field's value by its name."""
        # Not `asdict`, which copies the values: searches ask for this.
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]  # a dataclass


@dataclass(frozen=True, slots=True)
class BuildIdentity(JsonRecord):
    """What the rows of an index were built with; a difference asks for a rebuild.

    The analyzer's version stands apart: another one asks for the keyword leg alone to be built anew.
    """

    chunker_version: str
    chunk_tokens: int
    chunk_overlap: int

    def differences(self, other: Self) -> tuple[Difference, ...]:
        """(field, this value, the other's) of each field that differs."""
        mine, theirs = self.fields(), other.fields()
        return tuple((name, str(mine[name]), str(theirs[name])) for name in mine if mine[name] != theirs[name])


@dataclass(frozen=True, slots=True)
class VectorIdentity(JsonRecord):
    """Provider, model, endpoint and prefixes; `dimensions` is 0 while the first vector has not told them."""

    provider: str
    model: str
    endpoint: str
    dimensions: int
    query_prefix: str
    document_prefix: str

    @classmethod
    def of(cls, spec: EmbeddingSpec) -> Self:
        """The identity of what a provider makes."""
        return cls(
            spec.provider, spec.model, spec.endpoint, spec.dimensions or 0, spec.query_prefix, spec.document_prefix
        )

    def differences(self, other: Self) -> tuple[Difference, ...]:
        """(field, this value, the other's) of each field that differs; unknown dimensions differ from none."""
        if self == other:
            return ()
        mine, theirs = self.fields(), other.fields()
        unknown = 0 in (self.dimensions, other.dimensions)
        return tuple(
            (name, str(mine[name]), str(theirs[name]))
            for name in mine
            if mine[name] != theirs[name] and not (name == "dimensions" and unknown)
        )

    def made(self, stored: Self | None) -> bool:
        """Whether vectors that were built with `stored` are of this identity; None, for no vectors, is not."""
        return stored is not None and not stored.differences(self)

    def cache_key(self) -> CacheKey:
        """Where the cache keeps vectors of this identity; the query's prefix does not change a document's vector."""
        # A local model's dimensions are its file's, and become known only once the file is there.
        dimensions = 0 if self.provider == "local" else self.dimensions
        around = json.dumps([self.endpoint, self.document_prefix, dimensions])
        return CacheKey(self.provider, self.model, hashlib.sha256(around.encode()).hexdigest())
