"""Identities: what the rows and the vectors of an index were built with.

A query vector is never compared with vectors of another identity.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any, Self

from memoryd_server.foreign_text import parse_json
from memoryd_server.model import EmbeddingSpec
from memoryd_server.store.rows import CacheKey

TOKENIZER = "ascii tokenchars '_'"
"""The FTS5 tokenizer that splits the analyzer's output into terms."""

# A field, its value in the index, and the wanted value.
Difference = tuple[str, str, str]


class JsonRecord:
    """A base for dataclasses of plain fields that are stored as one line of JSON."""

    __slots__ = ()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Return the record that `to_json` wrote; None for any other text."""
        try:
            return cls(**parse_json(text))
        except (TypeError, ValueError):
            return None

    def to_json(self) -> str:
        """Return one line of JSON; two lines are equal if and only if the values are."""
        return json.dumps(self.fields(), sort_keys=True)

    def fields(self) -> dict[str, Any]:
        """Return each field's value by its name."""
        # Not `asdict`, which copies the values: every search calls this.
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]  # a dataclass


@dataclass(frozen=True, slots=True)
class BuildIdentity(JsonRecord):
    """What the rows of an index were built with; a difference requires a rebuild.

    The analyzer's version is stored separately: another version requires only the keyword index to be rebuilt.
    """

    chunker_version: str
    chunk_tokens: int
    chunk_overlap: int

    def differences(self, other: Self) -> tuple[Difference, ...]:
        """Return (field, this value, the other's value) for each field that differs."""
        mine, theirs = self.fields(), other.fields()
        return tuple((name, str(mine[name]), str(theirs[name])) for name in mine if mine[name] != theirs[name])


@dataclass(frozen=True, slots=True)
class VectorIdentity(JsonRecord):
    """What vectors were built with.

    `dimensions` is 0 until the first vector shows the number. `piece_chars` is 0 if texts were embedded whole, as by
    versions of memoryd that did not store it.
    """

    provider: str
    model: str
    endpoint: str
    dimensions: int
    query_prefix: str
    document_prefix: str
    piece_chars: int = 0

    @classmethod
    def of(cls, spec: EmbeddingSpec, dimensions: int = 0) -> Self:
        """Return the identity of a provider's vectors, of `dimensions` if the spec leaves them open."""
        return cls(
            spec.provider,
            spec.model,
            spec.endpoint,
            spec.dimensions or dimensions,
            spec.query_prefix,
            spec.document_prefix,
            spec.piece_chars,
        )

    def to_json(self) -> str:
        """Return one line of JSON; two lines are equal if and only if the values are.

        `piece_chars` is left out if it is 0, so that earlier versions of memoryd can read the identity.
        """
        stored = self.fields()
        if not self.piece_chars:
            del stored["piece_chars"]
        return json.dumps(stored, sort_keys=True)

    def spec(self) -> EmbeddingSpec:
        """Return the spec of the model that made the vectors; its input limit is not known."""
        dimensions = self.dimensions or None
        prefixes = (self.query_prefix, self.document_prefix)
        return EmbeddingSpec(self.provider, self.model, self.endpoint, dimensions, 0, *prefixes, self.piece_chars)

    def differences(self, other: Self) -> tuple[Difference, ...]:
        """Return (field, this value, the other's value) for each field that differs.

        Unknown dimensions (0) count as equal to any number.
        """
        if self == other:
            return ()
        mine, theirs = self.fields(), other.fields()
        unknown = 0 in (self.dimensions, other.dimensions)
        return tuple(
            (name, str(mine[name]), str(theirs[name]))
            for name in mine
            if mine[name] != theirs[name] and not (name == "dimensions" and unknown)
        )

    def matches(self, stored: Self | None) -> bool:
        """Return whether vectors built with `stored` have this identity; False for None, which means no vectors."""
        return stored is not None and not stored.differences(self)

    def cache_key(self) -> CacheKey:
        """Return the cache key of this identity. The query prefix is left out: it does not change document vectors."""
        # A local model's dimensions come from its file and are unknown until the file exists.
        dimensions = 0 if self.provider == "local" else self.dimensions
        # Texts embedded whole keep the key that they had before there were pieces.
        pieces = [self.piece_chars] if self.piece_chars else []
        around = json.dumps([self.endpoint, self.document_prefix, dimensions, *pieces])
        return CacheKey(self.provider, self.model, hashlib.sha256(around.encode()).hexdigest())
