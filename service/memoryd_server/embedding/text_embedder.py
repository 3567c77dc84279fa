"""Vectors of texts: from the cache, or from the provider, less the texts that it has refused before.

Everything here is of one index. Whether a vector of another length than the index's is one text's fault or a sign that
the server has another model now shows by a text that every model embeds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memoryd_server.errors import EmbeddingUnavailable, MemorydError
from memoryd_server.providers import PLAIN_TEXT, EmbeddingFailure, EmbeddingProvider
from memoryd_server.store import CacheKey, VectorCache, VectorIdentity
from memoryd_server.vectors import FLOAT_BYTES, to_blob


class DimensionsChanged(Exception):
    """The provider's vectors have another length than those of the index: there is another model behind it now."""


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """Vectors by content hash, of one length.

    `refused` says of texts, by content hash, why they will get none; `failure` why the others got none now.
    """

    vectors: Mapping[bytes, bytes] = field(default_factory=dict)
    refused: Mapping[bytes, str] = field(default_factory=dict)
    failure: str = ""


class TextEmbedder:
    """One provider with one cache. `cache` gives None while there is none; then nothing is remembered.

    `make` and `look_again` block and belong to the writer thread; the rest may be called from any thread.
    """

    def __init__(self, provider: EmbeddingProvider, cache: Callable[[], VectorCache | None]) -> None:
        self.provider = provider
        self._cache = cache
        self._seen = 0

    @property
    def identity(self) -> VectorIdentity:
        """What the vectors are made with; where the settings leave the dimensions open, those of the last vector."""
        identity = VectorIdentity.of(self.provider.spec)
        return identity if identity.dimensions else replace(identity, dimensions=self._seen)

    def saw(self, dimensions: int) -> None:
        """The provider has just made a vector of this length."""
        self._seen = dimensions

    def cached(self, hashes: Sequence[bytes], dimensions: int) -> dict[bytes, bytes]:
        """The vectors that the cache holds, by content hash; only those of this length, 0 being any one length."""
        cache = self._cache()
        found = {} if cache is None else cache.get(self._cache_key, hashes)
        return _of_length(found, dimensions or usual(found.values()))

    def refusals(self) -> dict[bytes, str]:
        """The texts, by content hash, that the provider has refused of late, and why."""
        cache = self._cache()
        return {} if cache is None else cache.refusals(self._cache_key)

    def remembers(self, texts: int) -> bool:
        """Whether the cache keeps the vectors of so many texts."""
        cache = self._cache()
        return cache is not None and cache.max_entries >= texts

    def clear_refusals(self) -> None:
        """Lets every text be asked for again."""
        cache = self._cache()
        if cache is not None:
            cache.clear_refusals()

    def look_again(self, should_stop: Callable[[], bool]) -> None:
        """Finds out how long the provider's vectors are.

        Raises:
            EmbeddingUnavailable, EmbeddingQuotaExceeded: it makes none.
        """
        (answer,) = self.provider.embed_documents([PLAIN_TEXT], should_stop)
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        self._seen = answer.size

    def make(self, texts: Mapping[bytes, str], dimensions: int, should_stop: Callable[[], bool]) -> EmbedResult:
        """Has the provider embed these texts. `dimensions` is what the index's vectors have, 0 while it holds none.

        What is made goes into the cache, and what is refused for good is remembered.

        Raises:
            DimensionsChanged: the provider makes vectors of another length now.
            EmbeddingUnavailable, EmbeddingQuotaExceeded: it made nothing.
        """
        if not texts:
            return EmbedResult()
        answers = dict(zip(texts, self.provider.embed_documents(list(texts.values()), should_stop), strict=True))
        vectors = {key: to_blob(answer) for key, answer in answers.items() if not isinstance(answer, EmbeddingFailure)}
        failures = {key: answer for key, answer in answers.items() if isinstance(answer, EmbeddingFailure)}
        refused = {key: answer.reason for key, answer in failures.items() if not answer.transient}
        failure = next((answer.reason for answer in failures.values() if answer.transient), "")
        wanted = dimensions or usual(vectors.values())
        fitting = _of_length(vectors, wanted)
        self._keep(fitting)
        if len(fitting) == len(vectors):
            self._seen = wanted if vectors else self._seen
        else:
            try:
                refused |= self._unfit(vectors, wanted, should_stop)
            except MemorydError as error:
                failure = error.message
        self._remember(refused)
        return EmbedResult(fitting, refused, failure)

    def _unfit(self, vectors: Mapping[bytes, bytes], wanted: int, should_stop: Callable[[], bool]) -> dict[bytes, str]:
        """Why the vectors of another length than `wanted` are of no use, when they are the fault of their texts."""
        self.look_again(should_stop)
        if self._seen != wanted:
            self._keep(_of_length(vectors, self._seen))
            raise DimensionsChanged
        sizes = {key: len(blob) // FLOAT_BYTES for key, blob in vectors.items()}
        return {key: _of_another_length(size, wanted) for key, size in sizes.items() if size != wanted}

    def _keep(self, made: Mapping[bytes, bytes]) -> None:
        cache = self._cache()
        if cache is not None and made:
            cache.put(self._cache_key, made)

    def _remember(self, refused: Mapping[bytes, str]) -> None:
        cache = self._cache()
        if cache is not None and refused:
            cache.add_refusals(self._cache_key, refused)

    @property
    def _cache_key(self) -> CacheKey:
        # Of what the settings say, as it is known before the first vector.
        return VectorIdentity.of(self.provider.spec).cache_key()


def usual(vectors: Iterable[bytes]) -> int:
    """The dimensions that most of these vectors have; 0 where there are none."""
    counted = Counter(map(len, vectors))
    return counted.most_common(1)[0][0] // FLOAT_BYTES if counted else 0


def _of_length(vectors: Mapping[bytes, bytes], dimensions: int) -> dict[bytes, bytes]:
    return {key: blob for key, blob in vectors.items() if len(blob) == FLOAT_BYTES * dimensions}


def _of_another_length(size: int, wanted: int) -> str:
    return f"its vector has {size} dimensions instead of {wanted}"
