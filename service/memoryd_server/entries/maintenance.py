"""EntryEmbedder; missing vectors, old versions.

What goes on behind one agent's entries: vectors for those without, and the clearing away of old versions.

The vectors of one agent's entries: of a new text, of a question, and of those that were stored without.
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
from memoryd_server.background_tasks import ReportedErrors
from memoryd_server.embedding import BYTES_A_TOKEN, CostLimit
from memoryd_server.entries.model import Entry, IdentifiedVector
from memoryd_server.entries.store import EntryStore
from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable, MemorydError
from memoryd_server.providers import PLAIN_TEXT, EmbeddingFailure, EmbeddingProvider, ProviderSelection
from memoryd_server.vectors import InvalidVector, Vector, unit

LEFT_FOR_THE_STORE_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 8.0
PAUSE_SECONDS = 10.0

LOCAL = "local"
"""The provider that is this machine."""


@dataclass(frozen=True, slots=True)
class VectorResult:
    """A vector, or why there is none; `refused` when the provider is well and the text is at fault."""

    embedded: IdentifiedVector | None
    reason: str = ""
    refused: bool = False


class EntryEmbedder:
    """What makes vectors of entries, or why nothing does. On the event loop's thread; the provider runs on others.

    `dimensions` is what the settings say that vectors have, 0 for any.
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
        self._questions = (
            None if self.provider is None or self._threads is None else QueryEmbedder(self.provider, self._threads)
        )
        self._paused_until = 0.0

    @property
    def name(self) -> str:
        """The provider and its model, for people."""
        return "" if self.provider is None else f"{self.provider.spec.provider}/{self.provider.spec.model}"

    @property
    def costs(self) -> bool:
        """Whether texts are sent to somebody who may want money for it."""
        return self.provider is not None and self.provider.spec.provider != LOCAL

    @property
    def identity(self) -> str:
        """What the vectors are made with, but for their length, which shows by themselves; empty for nothing."""
        if self.provider is None:
            return ""
        spec = self.provider.spec
        parts = (spec.provider, spec.model, spec.endpoint, spec.document_prefix)
        return f"{spec.provider}/{spec.model} {hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"

    async def question(self, text: str, deadline: float) -> VectorResult:
        """The vector of a question, before `deadline` in `time.monotonic()`; or None and why."""
        if self._questions is None:
            return VectorResult(None, self.reason)
        asked = await self._questions.embed(text, deadline, self._dimensions)
        if asked.vector is None:
            return VectorResult(None, "" if asked.error is None else asked.error.message)
        return self._checked(asked.vector)

    async def document(self, text: str, deadline: float) -> VectorResult:
        """The vector of a text to store, within eight seconds; or None and why. A provider that failed is let rest."""
        if time.monotonic() < self._paused_until:
            return VectorResult(None, self.reason)
        latest = min(deadline - LEFT_FOR_THE_STORE_SECONDS, time.monotonic() + LONGEST_WAIT_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, latest - time.monotonic())):
                (made,) = await self.documents([text], lambda: time.monotonic() > latest)
        except TimeoutError:
            made = VectorResult(None, f"{self.name} did not embed the text in time")
            self._pause(made.reason)
        return made

    async def documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[VectorResult]:
        """The vectors of texts, in order; or None and why. Asks `should_stop` meanwhile."""
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
        return [self._made(answer) for answer in answers]

    def _pause(self, reason: str) -> None:
        self.reason = reason
        self._paused_until = time.monotonic() + self._pause_seconds

    def _made(self, answer: Vector | EmbeddingFailure) -> VectorResult:
        if isinstance(answer, EmbeddingFailure):
            return VectorResult(None, answer.reason, refused=not answer.transient)
        return self._checked(answer)

    def _checked(self, vector: Vector) -> VectorResult:
        try:
            return VectorResult(IdentifiedVector(unit(vector, self._dimensions or None), self.identity))
        except InvalidVector as error:
            return VectorResult(None, f"{self.name} sent what is no vector of an entry: {error}")


BATCH = 32
QUIET_SECONDS = 20.0
"""After so long without a write what was written is tidied, however little it is."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """Entries per request, and the waiting times in seconds."""

    batch: int = BATCH
    quiet_seconds: float = QUIET_SECONDS
    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS


class _TooDearError(Exception):
    """Nothing is sent before somebody says yes."""


class EntryMaintenance:
    """From `start` to `stop`. `run` carries out a call on a thread; `report` hears what was done, as event and fields.

    `pending` is how many entries have no vector of the current model, and `waits` why that is left as it is: until
    `confirm`, a provider that costs is sent no more than `guard` lets pass.
    """

    def __init__(
        self,
        store: EntryStore,
        vectors: EntryEmbedder,
        guard: CostLimit,
        run: Callable[..., Awaitable[Any]],
        report: Callable[..., None],
        *,
        config: MaintenanceConfig | None = None,
    ) -> None:
        self._config = config or MaintenanceConfig()
        self._store = store
        self._vectors = vectors
        self._guard = guard
        self._run = run
        self._report = report
        self.pending = 0
        self.waits = ""
        self._confirmed = self._told = False
        self._doubtful = False
        self._refused: set[str] = set()
        self._filling: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._stopping = False
        self._fill_faults, self._tidy_faults = (
            ReportedErrors("the embedding of entries"),
            ReportedErrors("the tidying of entries"),
        )

    async def start(self) -> None:
        """Begins with the vectors that are missing, if any are, and soon clears away what a crash left over."""
        self._tidy_in(self._config.quiet_seconds)
        if self._vectors.provider is None:
            return
        self.pending = await self._run(self._store.pending, self._vectors.identity)
        if self.pending:
            self._report("embed-entries", pending=self.pending, model=self._vectors.name)
            self._fill()

    async def stop(self) -> None:
        """Ends at the next batch."""
        self._stopping = True
        if self._quiet is not None:
            self._quiet.cancel()
        # What fills may be waiting for a provider; its last batch is lost, and made again at the next start.
        if self._filling is not None:
            self._filling.cancel()
        await asyncio.gather(*(task for task in (self._filling, self._tidying) if task), return_exceptions=True)

    def wrote(self, *, without_vector: bool = False) -> None:
        """Hears that something was written."""
        if self._stopping:
            return
        if without_vector and self._vectors.provider is not None:
            self.pending += 1
            self._fill()
        self._tidy_at_times()

    def _tidy_at_times(self) -> None:
        if self._store.wants_tidying:
            self._tidy()
        else:
            self._tidy_in(self._config.quiet_seconds)

    def _tidy_in(self, seconds: float) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = asyncio.get_running_loop().call_later(seconds, self._tidy)

    def _tidy(self) -> None:
        if self._stopping or (self._tidying is not None and not self._tidying.done()):
            return
        self._tidying = asyncio.get_running_loop().create_task(self._tidied())

    async def _tidied(self) -> None:
        try:
            later = await self._run(self._store.tidy)
            if later and not self._stopping:
                self._tidy_in(later)
        except MemorydError as error:
            # Nothing is lost by it, and the next write tries again.
            self._report("fail-tidying-entries", error=error.message)
        except Exception as error:  # noqa: BLE001 -- likewise
            self._tidy_faults.failed(error)
        else:
            self._tidy_faults.worked()

    def doubt(self) -> None:
        """Hears of a vector of another length than those of the entries: the model may be another one."""
        self._doubtful = True
        # Every question finds this out again.
        if not self.waits:
            self._fill()

    def confirm(self) -> None:
        """Hears that the vectors that are missing now may be made, whatever they cost."""
        if self.pending and not self._stopping:
            self._confirmed = True
            self._fill()

    def _fill(self) -> None:
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._filled())

    async def _filled(self) -> None:
        """Gives every entry its vector, waiting longer and longer for a provider that fails."""
        pause, made = self._config.first_pause_seconds, False
        while not self._stopping:
            try:
                # Before the first text, and where a failure gave the rest time to grow.
                if not made:
                    self._refuse_dear(await self._run(self._store.pending_bytes, self._vectors.identity))
                if self._doubtful:
                    await self._settle_length()
                batch = await self._batch()
                if not batch:
                    await self._completed()
                    return
                made = await self._embed(batch)
                self.pending = await self._run(self._store.pending, self._vectors.identity)
                self._tidy_at_times()
            except _TooDearError:
                return
            except MemorydError as error:
                self._report("fail-embedding-entries", error=error.message)
                made = False
            except Exception as error:  # noqa: BLE001 -- the entries that have no vector yet still want one
                self._fill_faults.failed(error)
                made = False
            else:
                self._fill_faults.worked()
            longest = self._config.longest_pause_seconds
            pause = self._config.first_pause_seconds if made else min(2 * pause, longest)
            if not made:
                await asyncio.sleep(pause)

    def _refuse_dear(self, text_bytes: int) -> None:
        """Raises: _TooDearError: for what so much text costs somebody has to say yes."""
        tokens = -(-text_bytes // BYTES_A_TOKEN)
        if self._confirmed or not self._guard.refuses(tokens):
            self.waits = ""
            return
        self.waits = (
            f"about {tokens:,} tokens would be sent to {self._vectors.name}, more than memoryd.confirmAboveTokens; "
            "call Sync with mode FULL (memoryd index --force) to go ahead"
        )
        if not self._told:
            self._told = True
            self._report("wait-embedding-entries", pending=self.pending, reason=self.waits)
        raise _TooDearError

    async def _completed(self) -> None:
        self._confirmed = self._told = False
        await self._run(self._store.settle_vectors)
        self._report("embedded-entries", refused=len(self._refused), model=self._vectors.name)

    async def _batch(self) -> list[Entry]:
        """Entries without a vector; texts that the provider refused are not asked for again."""
        batch = self._config.batch
        waiting = await self._run(self._store.without_vector, self._vectors.identity, batch + len(self._refused))
        return [entry for entry in waiting if entry.entry_id not in self._refused][:batch]

    async def _embed(self, batch: Sequence[Entry]) -> bool:
        """Whether anything came of it: a vector, or the knowledge that there will be none."""
        answers = await self._vectors.documents([entry.text for entry in batch], lambda: self._stopping)
        asked = list(zip(batch, answers, strict=True))
        made = [(entry.entry_id, answer.embedded) for entry, answer in asked if answer.embedded is not None]
        length = await self._run(lambda: self._store.dimensions)
        if any(embedded.vector.size != length for _, embedded in made):
            length = await self._settle_length()
        fitting = [(entry_id, embedded) for entry_id, embedded in made if embedded.vector.size == length]
        refused = {entry.entry_id for entry, answer in asked if answer.refused}
        if length:
            refused |= {entry_id for entry_id, embedded in made if embedded.vector.size != length}
        self._refused |= refused
        await self._run(self._store.set_vectors, fitting)
        return bool(fitting or refused)

    async def _settle_length(self) -> int:
        """Makes room for vectors of the length that the provider makes now, by a text that nothing is wrong with."""
        (plain,) = await self._vectors.documents([PLAIN_TEXT], lambda: self._stopping)
        length = int(await self._run(lambda: self._store.dimensions))
        if plain.embedded is None:
            return length
        if plain.embedded.vector.size != length:
            # Before the old vectors go, so that no answer meanwhile seems whole.
            self.pending = await self._run(self._store.count)
            self._refuse_dear(await self._run(self._store.text_bytes))
            length = plain.embedded.vector.size
            await self._run(self._store.fit, length)
        self._doubtful = False
        return length
