"""What the vectors of an index were built with. No query ever compares vectors of two identities."""

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from memoryd_server.embed import EmbeddingSpec
from memoryd_server.index.cache_key import CacheKey
from memoryd_server.index.json_value import JsonValue


@dataclass(frozen=True, slots=True)
class VectorIdentity(JsonValue):
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

    def differences(self, other: Self) -> tuple[tuple[str, str, str], ...]:
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

    def made(self, stored: str) -> bool:
        """Whether an index's vectors, of which it tells `stored` (see `to_json`), are of this identity."""
        if stored == self.to_json():
            return True
        other = VectorIdentity.from_json(stored)
        return other is not None and not other.differences(self)

    def cache_key(self) -> CacheKey:
        """Where the cache keeps vectors of this identity; the query's prefix does not change a document's vector."""
        # A local model's dimensions are its file's, and become known only once the file is there.
        dimensions = 0 if self.provider == "local" else self.dimensions
        around = json.dumps([self.endpoint, self.document_prefix, dimensions])
        return CacheKey(self.provider, self.model, hashlib.sha256(around.encode()).hexdigest())
