"""The last part of a sync: a vector for each chunk that has none, from the cache or from the provider.

What the provider cannot do now stays pending: its chunks are found by keywords, and the next sync tries again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memoryd_server.embed import EmbeddingFailure, EmbeddingProvider, to_blob
from memoryd_server.errors import MemorydError, SyncCancelled
from memoryd_server.index.embedding_cache import EmbeddingCache
from memoryd_server.index.progress import SyncObserver, SyncOutcome, SyncPhase, SyncProgress
from memoryd_server.index.vector_identity import VectorIdentity
from memoryd_server.index.vector_rows import UnembeddedChunk, VectorRows
from memoryd_server.index.writer import IndexWriter
from memoryd_server.model import Chunk

CHUNKS_A_BATCH = 128

# A rough measure that errs on the side of more: providers count about four bytes of prose a token.
BYTES_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class EmbeddingOutcome:
    """What the phase did. `reason` says why chunks are left without a vector; empty when none are."""

    embedded: int = 0
    cached: int = 0
    pending: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """Chunks to send to the provider, and about how many tokens they hold."""

    chunks: int = 0
    tokens: int = 0

    def __add__(self, other: "Price") -> "Price":
        return Price(self.chunks + other.chunks, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class CostGuard:
    """Above how many tokens a remote provider is not called without being asked to; 0 means never to ask."""

    confirm_above_tokens: int
    remote: bool

    def refuses(self, tokens: int) -> bool:
        """Whether so many tokens need a confirmation."""
        return self.remote and 0 < self.confirm_above_tokens < tokens


@dataclass(frozen=True, slots=True)
class VectorState:
    """What the index's vectors were built with, None when there never were any; how many are missing, and why."""

    stored: VectorIdentity | None = None
    pending: int = 0
    reason: str = ""


class Embedder:
    """Makes the vectors of one index with one provider, through one cache.

    `run` belongs to the writer thread; `state` may be read from any thread and is never older than the last commit.
    """

    def __init__(
        self, provider: EmbeddingProvider, cache: Callable[[], EmbeddingCache | None], guard: CostGuard
    ) -> None:
        self.provider = provider
        self._cache = cache
        self._guard = guard
        self.state = VectorState()

    def look(self, vectors: VectorRows, reason: str = "") -> None:
        """Takes the state from the index, at start and after a swap; `reason` says why vectors are missing."""
        self.state = VectorState(VectorIdentity.from_json(vectors.identity()), vectors.count_missing(), reason)

    @property
    def identity(self) -> VectorIdentity:
        """What the vectors are made with."""
        return VectorIdentity.of(self.provider.spec)

    def run(
        self,
        writer: IndexWriter,
        observer: SyncObserver,
        outcome: SyncOutcome,
        *,
        confirmed: bool,
        beside: bool = False,
        should_stop: Callable[[], bool],
    ) -> EmbeddingOutcome:
        """Fills in what is missing, batch by batch, each in a transaction of its own.

        `beside` is a file that no search reads yet: the state stays that of the file which answers, until `look`.

        Raises:
            SyncCancelled: `should_stop` said so; what was made until then is kept, in the index and in the cache.
        """
        matches = self._matches(writer.vectors)
        pending = writer.vectors.count_missing() if matches else writer.vectors.count_chunks()
        refused = "" if confirmed or not pending else self._refusal(writer)
        if refused:
            done = EmbeddingOutcome(pending=pending, reason=refused)
        else:
            done = self._filled(writer, observer, outcome, pending, beside=beside, should_stop=should_stop)
        if not beside:
            self.note(done.pending, done.reason)
        return done

    def _filled(
        self,
        writer: IndexWriter,
        observer: SyncObserver,
        outcome: SyncOutcome,
        pending: int,
        *,
        beside: bool,
        should_stop: Callable[[], bool],
    ) -> EmbeddingOutcome:
        if not pending:
            return EmbeddingOutcome()
        if not self._matches(writer.vectors):
            writer.vectors.begin(self.identity.to_json())
            if not beside:
                self.state = VectorState(self.identity, pending)
        filling = _Filling(self, writer, observer, outcome, pending=pending, beside=beside, should_stop=should_stop)
        return filling.fill()

    def note(self, pending: int, reason: str = "") -> None:
        """So many chunks of the index that answers are without a vector now."""
        self.state = replace(self.state, pending=pending, reason=reason)

    def _matches(self, vectors: VectorRows) -> bool:
        stored = VectorIdentity.from_json(vectors.identity())
        return stored is not None and not stored.differences(self.identity)

    def _refusal(self, writer: IndexWriter) -> str:
        return self.refusal(self.price_of_index(writer.vectors).tokens)

    def refusal(self, tokens: int) -> str:
        """Why so many tokens are not sent unless Sync(FULL) asks for it; empty when they may be."""
        if not self._guard.refuses(tokens):
            return ""
        return (
            f"about {tokens:,} tokens would be sent to {self.provider.spec.provider}, more than "
            f"memoryd.confirmAboveTokens; call Sync with mode FULL (memoryd index --force) to go ahead"
        )

    def price_of_index(self, vectors: VectorRows) -> Price:
        """What the chunks of an index would cost whose vector is neither in the index nor in the cache."""
        after, price = 0, Price()
        everything = not self._matches(vectors)
        while batch := vectors.chunks(after, CHUNKS_A_BATCH, everything=everything):
            after = batch[-1].chunk_id
            price += self.price(batch)
        return price

    def price(self, batch: Sequence[UnembeddedChunk | Chunk]) -> Price:
        """What these chunks would cost that are not in the cache."""
        held = self.cached(batch)
        missing = {chunk.content_hash: chunk.text for chunk in batch if chunk.content_hash not in held}
        return Price(
            len(missing), sum(-(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN) for text in missing.values())
        )

    def cached(self, batch: Sequence[UnembeddedChunk | Chunk]) -> dict[bytes, bytes]:
        """The vectors that the cache holds for a batch, by content hash."""
        cache = self._cache()
        return {} if cache is None else cache.get(self.identity.cache_key(), [c.content_hash for c in batch])

    def keep(self, made: dict[bytes, bytes]) -> None:
        """Puts what was made into the cache."""
        cache = self._cache()
        if cache is not None and made:
            cache.put(self.identity.cache_key(), made)


class _Filling:
    """One pass over the chunks without a vector."""

    def __init__(
        self,
        embedder: Embedder,
        writer: IndexWriter,
        observer: SyncObserver,
        outcome: SyncOutcome,
        *,
        pending: int,
        beside: bool,
        should_stop: Callable[[], bool],
    ) -> None:
        self._beside = beside
        self._embedder = embedder
        self._writer = writer
        self._observer = observer
        self._should_stop = should_stop
        self._outcome = EmbeddingOutcome(pending=pending)
        files = outcome.indexed_files
        self._progress = SyncProgress(SyncPhase.EMBEDDING, files, files, total_chunks=pending)

    def fill(self) -> EmbeddingOutcome:
        after = 0
        while batch := self._writer.vectors.chunks(after, CHUNKS_A_BATCH, everything=False):
            after = batch[-1].chunk_id
            if self._should_stop():
                raise SyncCancelled("the sync run was cancelled; the vectors made until then are kept")
            try:
                self._embed(batch)
            except MemorydError as error:
                return replace(self._outcome, reason=error.message)
        return self._outcome

    def _embed(self, batch: Sequence[UnembeddedChunk]) -> None:
        held = self._embedder.cached(batch)
        missing = [chunk for chunk in batch if chunk.content_hash not in held]
        made, failure = self._made(missing)
        self._embedder.keep(made)
        vectors = {**held, **made}
        rows = {chunk.chunk_id: vectors[chunk.content_hash] for chunk in batch if chunk.content_hash in vectors}
        if rows:
            self._observer.committed(self._writer.vectors.put(rows))
        cached = sum(chunk.content_hash in held for chunk in batch)
        self._outcome = EmbeddingOutcome(
            embedded=self._outcome.embedded + len(rows) - cached,
            cached=self._outcome.cached + cached,
            pending=self._outcome.pending - len(rows),
            reason=failure or self._outcome.reason,
        )
        if not self._beside:
            self._embedder.note(self._outcome.pending, self._outcome.reason)
        self._tell()

    def _made(self, missing: Sequence[UnembeddedChunk]) -> tuple[dict[bytes, bytes], str]:
        """Vectors by content hash, and why one of the chunks got none."""
        if not missing:
            return {}, ""
        texts = {chunk.content_hash: chunk.text for chunk in missing}
        answers = self._embedder.provider.embed_documents(list(texts.values()), self._should_stop)
        made: dict[bytes, bytes] = {}
        failure = ""
        for content_hash, answer in zip(texts, answers, strict=True):
            if isinstance(answer, EmbeddingFailure):
                failure = answer.reason
            else:
                made[content_hash] = to_blob(answer)
        return made, failure

    def _tell(self) -> None:
        done = self._outcome.embedded + self._outcome.cached
        self._progress = replace(self._progress, completed_chunks=done, cached_chunks=self._outcome.cached)
        self._observer.progress(self._progress)
