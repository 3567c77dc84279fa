"""TextEmbedder: vectors of texts, from the cache or from the provider, except texts that the provider has refused.

A vector of another length than the index's has one of two causes: the text, or another model on the server. A text that
every model embeds decides which.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memoryd_server.errors import EmbeddingUnavailable, MemorydError, SyncCancelled
from memoryd_server.providers import PLAIN_TEXT, EmbeddingFailure, EmbeddingProvider
from memoryd_server.store import CacheKey, VectorCache, VectorIdentity
from memoryd_server.vectors import FLOAT_BYTES, to_blob


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

    `dimensions` is the length of the provider's last vector, 0 before the first one.

    `embed` and `probe` block and belong to the writer thread; the other methods may be called on any thread.
    """

    def __init__(self, provider: EmbeddingProvider, cache: Callable[[], VectorCache | None]) -> None:
        self.provider = provider
        self._cache = cache
        self.dimensions = 0
        """The length of the last vector that the provider returned; 0 before the first."""

    @property
    def identity(self) -> VectorIdentity:
        """The identity of the vectors. If the settings name no dimensions, those of the last vector."""
        return VectorIdentity.of(self.provider.spec, self.dimensions)

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

        Vectors are put into the cache, and permanent refusals too.

        Raises:
            DimensionsChanged: the provider returns vectors of another length now.
            EmbeddingUnavailable, EmbeddingQuotaExceeded: the provider returned no vector.
        """
        if not texts:
            return EmbedResult()
        answers = dict(zip(texts, self.provider.embed_documents(list(texts.values()), should_stop), strict=True))
        vectors = {key: to_blob(answer) for key, answer in answers.items() if not isinstance(answer, EmbeddingFailure)}
        failures = {key: answer for key, answer in answers.items() if isinstance(answer, EmbeddingFailure)}
        refused = {key: answer.reason for key, answer in failures.items() if not answer.transient}
        failure = next((answer.reason for answer in failures.values() if answer.transient), "")
        wanted = dimensions or most_common_dimensions(vectors.values())
        fitting = _of_length(vectors, wanted)
        self._put(fitting)
        if len(fitting) == len(vectors):
            self.dimensions = wanted if vectors else self.dimensions
        else:
            try:
                refused |= self._refuse_other_lengths(vectors, wanted, should_stop)
            except MemorydError as error:
                failure = error.message
        self._put_refusals(refused)
        return EmbedResult(fitting, refused, failure)

    def _refuse_other_lengths(
        self, vectors: Mapping[bytes, bytes], wanted: int, should_stop: Callable[[], bool]
    ) -> dict[bytes, str]:
        """Return a reason for each text whose vector has another length than `wanted`.

        Raises:
            DimensionsChanged: the provider now returns other lengths for every text.
        """
        self.probe(should_stop)
        if self.dimensions != wanted:
            self._put(_of_length(vectors, self.dimensions))
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
        return VectorIdentity.of(self.provider.spec).cache_key()


def most_common_dimensions(vectors: Iterable[bytes]) -> int:
    """Return the length that most of these vectors have; 0 if there are none."""
    counted = Counter(map(len, vectors))
    return counted.most_common(1)[0][0] // FLOAT_BYTES if counted else 0


def _of_length(vectors: Mapping[bytes, bytes], dimensions: int) -> dict[bytes, bytes]:
    return {key: blob for key, blob in vectors.items() if len(blob) == FLOAT_BYTES * dimensions}
