"""TextEmbedder: vectors of texts, from the cache or from the provider, except texts that the provider has refused.

If the model embeds texts in pieces, the provider gets the pieces, and the text's vector is their mean (decision 34).
A vector of another length than the index's has one of two causes: the text, or another model on the server. A text that
every model embeds decides which.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from memoryd_server.embedding.pieces import PieceKey, calls, whole_texts
from memoryd_server.errors import EmbeddingUnavailable, MemorydError, SyncCancelled
from memoryd_server.providers import PLAIN_TEXT, EmbeddingFailure, EmbeddingProvider, EmbeddingSpec
from memoryd_server.store import CacheKey, VectorCache, VectorIdentity
from memoryd_server.vectors import FLOAT_BYTES, to_blob

_Key = TypeVar("_Key")


class DimensionsChanged(Exception):
    """The provider returns vectors of another length than the index's: its server runs another model now."""


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """Vectors by content hash, all of one length.

    `refused` has the reason for each text, by content hash, that will get no vector; `failure` is the reason why the
    other texts got none now.
    """

    vectors: Mapping[bytes, bytes] = field(default_factory=dict)
    refused: Mapping[bytes, str] = field(default_factory=dict)
    failure: str = ""


class TextEmbedder:
    """Embeds texts with one provider and one cache. `cache` returns None while there is none; then nothing is cached.

    `dimensions` is the length of the provider's last vector, 0 before the first one. `piece_chars` replaces the model's
    own: the vectors of queries, which are embedded whole, fit those of an earlier version that split texts differently.

    `embed` and `probe` block and belong to the writer thread; the other methods may be called on any thread.
    """

    def __init__(
        self, provider: EmbeddingProvider, cache: Callable[[], VectorCache | None], *, piece_chars: int | None = None
    ) -> None:
        self.provider = provider
        self._cache = cache
        self._piece_chars = piece_chars
        self.dimensions = 0
        """The length of the last vector that the provider returned; 0 before the first."""

    @property
    def spec(self) -> EmbeddingSpec:
        """The spec of the provider's model, with the length of pieces that is used."""
        spec = self.provider.spec
        return spec if self._piece_chars is None else replace(spec, piece_chars=self._piece_chars)

    @property
    def identity(self) -> VectorIdentity:
        """The identity of the vectors. If the settings name no dimensions, those of the last vector."""
        return VectorIdentity.of(self.spec, self.dimensions)

    def cached(self, hashes: Sequence[bytes], dimensions: int) -> dict[bytes, bytes]:
        """Return the cached vectors of this length, by content hash; `dimensions` 0 means the most common length."""
        cache = self._cache()
        vectors = {} if cache is None else cache.get(self._cache_key, hashes)
        return _of_length(vectors, dimensions or most_common_dimensions(vectors.values()))

    def refusals(self) -> dict[bytes, str]:
        """Return the provider's reasons for refusing texts within the last day, by content hash."""
        cache = self._cache()
        return {} if cache is None else cache.refusals(self._cache_key)

    def fits_cache(self, texts: int) -> bool:
        """Return whether the cache has room for the vectors of this number of texts."""
        cache = self._cache()
        return cache is not None and cache.max_entries >= texts

    def clear_refusals(self) -> None:
        """Delete every refusal, so that the texts are sent to the provider again."""
        cache = self._cache()
        if cache is not None:
            cache.clear_refusals()

    def probe(self, should_stop: Callable[[], bool]) -> None:
        """Request one vector, to learn the length of the provider's vectors.

        Raises:
            EmbeddingUnavailable, EmbeddingQuotaExceeded: the provider returns none.
        """
        (answer,) = self.provider.embed_documents([PLAIN_TEXT], should_stop)
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        self.dimensions = answer.size

    def probe_fault(self, should_stop: Callable[[], bool]) -> str:
        """Request one vector; return why the provider returned none, empty if it did.

        Raises:
            SyncCancelled: `should_stop` returned true.
        """
        try:
            self.probe(should_stop)
        except MemorydError as error:
            if should_stop():
                # The cause of the error is the stop, which is no failure to log.
                raise SyncCancelled("the sync run was cancelled; the vectors have not changed") from None
            return error.message
        return ""

    def embed(self, texts: Mapping[bytes, str], dimensions: int, should_stop: Callable[[], bool]) -> EmbedResult:
        """Embed these texts with the provider. `dimensions` is the length of the index's vectors, 0 if it has none.

        Vectors are put into the cache, and permanent refusals too. A text whose pieces were not all answered gets
        neither now.

        Raises:
            DimensionsChanged: the provider returns vectors of another length now.
            EmbeddingUnavailable, EmbeddingQuotaExceeded: the provider returned no vector.
        """
        vectors: dict[bytes, bytes] = {}
        refused: dict[bytes, str] = {}
        for pieces in calls(texts, self.spec.piece_chars):
            try:
                result = self._embed(pieces, dimensions, should_stop)
            except MemorydError as error:
                if not vectors and not refused:
                    raise
                return EmbedResult(vectors, refused, error.message)
            vectors.update(result.vectors)
            refused.update(result.refused)
            if result.failure:
                return EmbedResult(vectors, refused, result.failure)
            dimensions = dimensions or most_common_dimensions(vectors.values())
        return EmbedResult(vectors, refused)

    def _embed(self, pieces: Mapping[PieceKey, str], dimensions: int, should_stop: Callable[[], bool]) -> EmbedResult:
        """Embed these pieces by one call of the provider; return the vectors of their texts."""
        answers = dict(zip(pieces, self.provider.embed_documents(list(pieces.values()), should_stop), strict=True))
        vectors = {key: to_blob(answer) for key, answer in answers.items() if not isinstance(answer, EmbeddingFailure)}
        failures = {key: answer for key, answer in answers.items() if isinstance(answer, EmbeddingFailure)}
        refused = {key: answer.reason for key, answer in failures.items() if not answer.transient}
        failure = next((answer.reason for answer in failures.values() if answer.transient), "")
        wanted = dimensions or most_common_dimensions(vectors.values())
        fitting = _of_length(vectors, wanted)
        if len(fitting) == len(vectors):
            self.dimensions = wanted if vectors else self.dimensions
        else:
            self._put(whole_texts(pieces, fitting, refused)[0])
            try:
                refused |= self._refuse_other_lengths(vectors, wanted, should_stop)
            except DimensionsChanged:
                self._put(whole_texts(pieces, _of_length(vectors, self.dimensions), refused)[0])
                raise
            except MemorydError as error:
                failure = error.message
        found, without = whole_texts(pieces, fitting, refused)
        self._put(found)
        self._put_refusals(without)
        return EmbedResult(found, without, failure)

    def _refuse_other_lengths(
        self, vectors: Mapping[PieceKey, bytes], wanted: int, should_stop: Callable[[], bool]
    ) -> dict[PieceKey, str]:
        """Return a reason for each piece whose vector has another length than `wanted`.

        Raises:
            DimensionsChanged: the provider now returns other lengths for every text.
        """
        self.probe(should_stop)
        if self.dimensions != wanted:
            raise DimensionsChanged
        sizes = {key: len(blob) // FLOAT_BYTES for key, blob in vectors.items()}
        return {
            key: f"its vector has {size} dimensions instead of {wanted}"
            for key, size in sizes.items()
            if size != wanted
        }

    def _put(self, vectors: Mapping[bytes, bytes]) -> None:
        cache = self._cache()
        if cache is not None and vectors:
            cache.put(self._cache_key, vectors)

    def _put_refusals(self, refused: Mapping[bytes, str]) -> None:
        cache = self._cache()
        if cache is not None and refused:
            cache.add_refusals(self._cache_key, refused)

    @property
    def _cache_key(self) -> CacheKey:
        # From the settings' dimensions, so that the key is the same before and after the first vector.
        return VectorIdentity.of(self.spec).cache_key()


def most_common_dimensions(vectors: Iterable[bytes]) -> int:
    """Return the length that most of these vectors have; 0 if there are none."""
    counted = Counter(map(len, vectors))
    return counted.most_common(1)[0][0] // FLOAT_BYTES if counted else 0


def _of_length(vectors: Mapping[_Key, bytes], dimensions: int) -> dict[_Key, bytes]:
    return {key: blob for key, blob in vectors.items() if len(blob) == FLOAT_BYTES * dimensions}
