"""The vectors of one agent's entries, and the background work on its dataset.

`EntryEmbedder` embeds new texts, queries and entries that were stored without a vector. `EntryMaintenance` embeds these
entries in the background and removes old versions of the dataset.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from memoryd_server.agent import QueryEmbedder
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.embedding import BYTES_A_TOKEN, CostLimit
from memoryd_server.entries.model import Entry, IdentifiedVector
from memoryd_server.entries.relevance import REFERENCE_TEXTS
from memoryd_server.entries.store import EntryStore
from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable, MemorydError
from memoryd_server.providers import PLAIN_TEXT, EmbeddingFailure, EmbeddingProvider, ProviderSelection
from memoryd_server.vectors import InvalidVector, Vector, unit

STORE_SECONDS = 1.0
"""The part of a call's deadline that is reserved for storing the entry."""
LONGEST_WAIT_SECONDS = 8.0
SHORT_WAIT_SECONDS = 1.0
"""A provider that does not answer within less time is not known to be slow."""

PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class VectorResult:
    """A vector, or the reason that there is none.

    `refused` is True if the provider works but refused this text.
    """

    embedded: IdentifiedVector | None
    reason: str = ""
    refused: bool = False


class EntryEmbedder:
    """Embed the texts of entries, or give the reason that they cannot be embedded.

    Used on the event loop; the provider runs on threads.

    `dimensions` is the vector length in the settings, or 0 for any.
    """

    def __init__(
        self,
        selection: ProviderSelection,
        dimensions: int,
        threads_of: Callable[[EmbeddingProvider], Executor],
        *,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._pause_seconds = pause_seconds
        self.provider = selection.provider
        self.reason = selection.reason
        self._dimensions = dimensions
        self._threads = None if self.provider is None else threads_of(self.provider)
        self._query_embedder = (
            None if self.provider is None or self._threads is None else QueryEmbedder(self.provider, self._threads)
        )
        self._paused_until = 0.0
        self._references: list[Vector] = []

    @property
    def name(self) -> str:
        """The provider and its model, for messages."""
        return "" if self.provider is None else f"{self.provider.spec.provider}/{self.provider.spec.model}"

    @property
    def model(self) -> str:
        """The model; empty without a provider."""
        return "" if self.provider is None else self.provider.spec.model

    @property
    def identity(self) -> str:
        """The identity of the provider, model, endpoint and prefix; empty without a provider.

        The length of the vectors is not part of it, because the vectors show it.
        """
        if self.provider is None:
            return ""
        spec = self.provider.spec
        parts = (spec.provider, spec.model, spec.endpoint, spec.document_prefix)
        return f"{spec.provider}/{spec.model} {hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"

    async def embed_query(self, text: str, deadline: float, seconds: float | None = None) -> VectorResult:
        """Embed a query before `deadline`, in seconds of `time.monotonic()`, and within `seconds` if they are given."""
        if self._query_embedder is None:
            return VectorResult(None, self.reason)
        if seconds is None:
            query = await self._query_embedder.embed(text, deadline, self._dimensions)
        else:
            query = self._query_embedder.known(text, self._dimensions) or await self._query_embedder.embed_soon(
                text, deadline, self._dimensions, seconds
            )
        if query.vector is None:
            return VectorResult(None, "" if query.error is None else query.error.message)
        return self._check_vector(query.vector)

    async def embed_document(self, text: str, deadline: float) -> VectorResult:
        """Embed a text to store, within eight seconds. After a failure, the provider is not called for ten seconds."""
        now = time.monotonic()
        if now < self._paused_until:
            return VectorResult(None, self.reason)
        latest = min(deadline - STORE_SECONDS, now + LONGEST_WAIT_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, latest - now)):
                (result,) = await self.embed_documents([text], lambda: time.monotonic() > latest)
        except TimeoutError:
            result = VectorResult(None, f"{self.name} did not embed the text in time")
            if latest - now >= SHORT_WAIT_SECONDS:
                self._pause(result.reason)
        return result

    async def embed_references(self, deadline: float) -> list[Vector]:
        """Return the vectors of `REFERENCE_TEXTS`; none if the provider does not embed all of them in time.

        They are embedded once, at the first call.
        """
        if self._references or time.monotonic() < self._paused_until:
            return self._references
        latest = min(deadline - STORE_SECONDS, time.monotonic() + LONGEST_WAIT_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, latest - time.monotonic())):
                results = await self.embed_documents(REFERENCE_TEXTS, lambda: time.monotonic() > latest)
        except TimeoutError:
            return []
        vectors = [result.embedded.vector for result in results if result.embedded is not None]
        if len(vectors) == len(results):
            self._references = vectors
        return self._references

    async def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[VectorResult]:
        """Embed texts, and return one result per text in order. `should_stop` is polled during the call."""
        if self.provider is None or self._threads is None:
            return [VectorResult(None, self.reason)] * len(texts)
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._threads, self.provider.embed_documents, list(texts), should_stop)
        except (EmbeddingOutage, EmbeddingQuotaExceeded) as error:
            self._pause(error.message)
            return [VectorResult(None, error.message)] * len(texts)
        except EmbeddingUnavailable as error:
            self.reason = error.message
            return [VectorResult(None, error.message)] * len(texts)
        self.reason, self._paused_until = "", 0.0
        return [self._to_result(answer) for answer in answers]

    def _pause(self, reason: str) -> None:
        self.reason = reason
        self._paused_until = time.monotonic() + self._pause_seconds

    def _to_result(self, answer: Vector | EmbeddingFailure) -> VectorResult:
        if isinstance(answer, EmbeddingFailure):
            return VectorResult(None, answer.reason, refused=not answer.transient)
        return self._check_vector(answer)

    def _check_vector(self, vector: Vector) -> VectorResult:
        try:
            return VectorResult(IdentifiedVector(unit(vector, self._dimensions or None), self.identity))
        except InvalidVector as error:
            return VectorResult(None, f"{self.name} returned an unusable vector: {error}")


BATCH = 32
QUIET_SECONDS = 20.0
"""The dataset is optimized after this time without a write."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """Entries per request, and the waiting times in seconds."""

    batch: int = BATCH
    quiet_seconds: float = QUIET_SECONDS
    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS


class _CostNotApprovedError(Exception):
    """The cost of the missing vectors needs approval first."""


class EntryMaintenance:
    """The background work of one agent's entries.

    `run` runs a call on a thread; `report` is called with each event and its fields. `pending` is the number of entries
    without a vector of the current model. `approval_reason` says why their embedding waits for `approve_cost`: a
    provider on another machine is sent at most what `cost_limit` allows.
    """

    def __init__(
        self,
        store: EntryStore,
        embedder: EntryEmbedder,
        cost_limit: CostLimit | None,
        run: Callable[..., Awaitable[Any]],
        report: Callable[..., None],
        *,
        config: MaintenanceConfig | None = None,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self._config = config or MaintenanceConfig()
        self._store = store
        self._embedder = embedder
        self._cost_limit = cost_limit
        self._run = run
        self._report = report
        self._tasks = tasks or BackgroundTasks()
        self.pending = 0
        self.approval_reason = ""
        self._cost_approved = self._wait_reported = False
        self._length_uncertain = False
        self._refused: set[str] = set()
        self._embedding: asyncio.Task[None] | None = None
        self._optimizing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._embed_faults = self._tasks.errors("embedding of entries")
        self._optimize_faults = self._tasks.errors("optimization of entries")

    async def start(self) -> None:
        """Start embedding the missing vectors, and schedule the removal of what a crash left behind."""
        self._schedule_optimize(self._config.quiet_seconds)
        if self._embedder.provider is None:
            return
        self.pending = await self._run(self._store.count_pending, self._embedder.identity)
        if self.pending:
            self._report("embed-entries", pending=self.pending, model=self._embedder.name)
            self._start_embedding()

    async def stop(self) -> None:
        """Stop the background work."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        # The embedding may be waiting for a provider. Its last batch is lost, and embedded again at the next start.
        if self._embedding is not None:
            self._embedding.cancel()
        await asyncio.gather(*(task for task in (self._embedding, self._optimizing) if task), return_exceptions=True)

    def record_write(self, *, without_vector: bool = False) -> None:
        """Record a change of the dataset."""
        if self._stopping:
            return
        if without_vector and self._embedder.provider is not None:
            self.pending += 1
            self._start_embedding()
        self._optimize_if_due()

    def _optimize_if_due(self) -> None:
        if self._store.needs_optimize:
            self._start_optimize()
        else:
            self._schedule_optimize(self._config.quiet_seconds)

    def _schedule_optimize(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start_optimize)

    def _start_optimize(self) -> None:
        if self._stopping or (self._optimizing is not None and not self._optimizing.done()):
            return
        self._optimizing = self._tasks.spawn("run of the optimization of entries", self._optimize())

    async def _optimize(self) -> None:
        try:
            next_seconds = await self._run(self._store.optimize)
            if next_seconds and not self._stopping:
                self._schedule_optimize(next_seconds)
        except MemorydError as error:
            # No data is lost, and the next write tries again.
            self._report("fail-tidying-entries", error=error.message)
        except Exception as error:  # noqa: BLE001 -- likewise
            self._optimize_faults.failed(error)
        else:
            self._optimize_faults.worked()

    def record_other_length(self) -> None:
        """Record that a vector has another length than the stored ones: the model may have changed."""
        self._length_uncertain = True
        # While the cost waits for approval, each later query reports the length again.
        if not self.approval_reason:
            self._start_embedding()

    def approve_cost(self) -> None:
        """Approve the cost of the vectors that are missing now."""
        if self.pending and not self._stopping:
            self._cost_approved = True
            self._start_embedding()

    def _start_embedding(self) -> None:
        if self._embedding is None or self._embedding.done():
            self._embedding = self._tasks.spawn("run of the embedding of entries", self._embed_pending())

    async def _embed_pending(self) -> None:
        """Embed every entry without a vector. The pause after a failure doubles up to five minutes."""
        pause, progressed = self._config.first_pause_seconds, False
        while not self._stopping:
            try:
                # Before the first text, and after a failure, when more entries may be pending.
                if not progressed:
                    self._check_cost(await self._run(self._store.pending_bytes, self._embedder.identity))
                if self._length_uncertain:
                    await self._update_dimensions()
                batch = await self._next_batch()
                if not batch:
                    await self._finish_embedding()
                    return
                progressed = await self._embed(batch)
                self.pending = await self._run(self._store.count_pending, self._embedder.identity)
                self._optimize_if_due()
            except _CostNotApprovedError:
                return
            except MemorydError as error:
                self._report("fail-embedding-entries", error=error.message)
                progressed = False
            except Exception as error:  # noqa: BLE001 -- the pending entries still need vectors
                self._embed_faults.failed(error)
                progressed = False
            else:
                self._embed_faults.worked()
            longest = self._config.longest_pause_seconds
            pause = self._config.first_pause_seconds if progressed else min(2 * pause, longest)
            if not progressed:
                await asyncio.sleep(pause)

    def _check_cost(self, text_bytes: int) -> None:
        """Check the cost of embedding this much text.

        Raises:
            _CostNotApprovedError: it exceeds the limit and is not approved.
        """
        tokens = -(-text_bytes // BYTES_A_TOKEN)
        if self._cost_approved or self._cost_limit is None or not self._cost_limit.refuses(tokens):
            self.approval_reason = ""
            return
        self.approval_reason = (
            f"about {tokens:,} tokens would be sent to {self._embedder.name}, more than memoryd.confirmAboveTokens; "
            "call Sync with mode FULL (memoryd index --force) to go ahead"
        )
        if not self._wait_reported:
            self._wait_reported = True
            self._report("wait-embedding-entries", pending=self.pending, reason=self.approval_reason)
        raise _CostNotApprovedError

    async def _finish_embedding(self) -> None:
        self._cost_approved = self._wait_reported = False
        await self._run(self._store.rebuild_vector_index)
        self._report("embedded-entries", refused=len(self._refused), model=self._embedder.name)

    async def _next_batch(self) -> list[Entry]:
        """Return up to 32 entries without a vector, leaving out texts that the provider refused."""
        batch = self._config.batch
        pending = await self._run(self._store.list_pending, self._embedder.identity, batch + len(self._refused))
        return [entry for entry in pending if entry.entry_id not in self._refused][:batch]

    async def _embed(self, batch: Sequence[Entry]) -> bool:
        """Embed a batch. Return whether it made progress: a vector was stored, or a text was refused."""
        answers = await self._embedder.embed_documents([entry.text for entry in batch], lambda: self._stopping)
        results = list(zip(batch, answers, strict=True))
        vectors = [(entry.entry_id, answer.embedded) for entry, answer in results if answer.embedded is not None]
        length = await self._run(lambda: self._store.dimensions)
        if any(embedded.vector.size != length for _, embedded in vectors):
            length = await self._update_dimensions()
        fitting = [(entry_id, embedded) for entry_id, embedded in vectors if embedded.vector.size == length]
        refused = {entry.entry_id for entry, answer in results if answer.refused}
        if length:
            refused |= {entry_id for entry_id, embedded in vectors if embedded.vector.size != length}
        self._refused |= refused
        await self._run(self._store.set_vectors, fitting)
        return bool(fitting or refused)

    async def _update_dimensions(self) -> int:
        """Embed a plain text to learn the provider's vector length, give the dataset this length, and return it."""
        (plain,) = await self._embedder.embed_documents([PLAIN_TEXT], lambda: self._stopping)
        length = int(await self._run(lambda: self._store.dimensions))
        if plain.embedded is None:
            return length
        if plain.embedded.vector.size != length:
            # Before the old vectors are removed, so that no answer in between seems complete.
            self.pending = await self._run(self._store.count)
            self._check_cost(await self._run(self._store.text_bytes))
            length = plain.embedded.vector.size
            await self._run(self._store.set_dimensions, length)
        self._length_uncertain = False
        return length
