"""QueryEmbedder: the vectors of queries, made with one provider.

A query's vector has its own short time limit. A provider that is down, or whose quota is used up, is not called for a
while, so that searches do not wait for it again and again. Any other error, such as the refusal of one text or of the
key, does not affect the next query.
"""

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable, MemorydError
from memoryd_server.providers import PLAIN_TEXT, EmbeddingProvider

LONGEST_WAIT_SECONDS = 8.0
LEFT_FOR_THE_SEARCH_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
ENOUGH_SECONDS = 1.0
"""A timeout shorter than this is not counted as a failure of the provider."""

REMEMBERED_QUERIES = 512

MOST_CALLS = 16
"""Concurrent calls by `embed_soon`. A call continues after its caller has stopped waiting."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """The vector, or the error instead. `fresh` if the provider has just made the vector."""

    vector: Vector | None
    error: MemorydError | None = None
    fresh: bool = False


class QueryEmbedder:
    """Embeds queries with one provider, whose calls run on `threads`. Use it only on the event loop's thread."""

    def __init__(
        self,
        provider: EmbeddingProvider,
        threads: Executor,
        *,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        max_remembered: int = REMEMBERED_QUERIES,
    ) -> None:
        self.provider = provider
        self._longest_wait_seconds, self._first_pause_seconds = longest_wait_seconds, first_pause_seconds
        self._max_remembered = max_remembered
        self._threads = threads
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._pause_seconds = 0.0
        self._paused_until = 0.0
        self._failed_at = 0.0
        self._last_error: MemorydError | None = None
        self._tasks = BackgroundTasks()
        self._soon: dict[str, asyncio.Task[QueryEmbedding]] = {}

    def known(self, text: str, dimensions: int = 0) -> QueryEmbedding | None:
        """Return the remembered vector, or why the provider is not called for now; None if it has to be called.

        A vector of another length than `dimensions` is not returned; 0 means any length.
        """
        vector = self._known.get(text)
        if vector is not None and dimensions in (0, vector.size):
            self._known.move_to_end(text)
            return QueryEmbedding(vector)
        if time.monotonic() < self._paused_until and self._last_error is not None:
            return QueryEmbedding(None, self._last_error)
        return None

    async def embed(self, text: str, deadline: float, dimensions: int = 0) -> QueryEmbedding:
        """Return the vector of `text`, before `deadline` (in `time.monotonic()`) and within `LONGEST_WAIT_SECONDS`."""
        known = self.known(text, dimensions)
        if known is not None:
            return known
        began = time.monotonic()
        latest = min(deadline - LEFT_FOR_THE_SEARCH_SECONDS, began + self._longest_wait_seconds)
        try:
            vector = await self._ask(text, latest)
            if dimensions not in (0, vector.size):
                await self._check_length(vector, dimensions, latest)
        except (EmbeddingOutage, EmbeddingQuotaExceeded) as error:
            if time.monotonic() < latest or latest - began >= ENOUGH_SECONDS:
                self._failed(error, began)
            return QueryEmbedding(None, error)
        except EmbeddingUnavailable as error:
            return QueryEmbedding(None, error)
        self._pause_seconds = self._paused_until = 0.0
        self._known[text] = vector
        if len(self._known) > self._max_remembered:
            self._known.popitem(last=False)
        return QueryEmbedding(vector, fresh=True)

    async def _check_length(self, vector: Vector, dimensions: int, latest: float) -> None:
        """Return if the provider now makes vectors of this other length for every text.

        Raises:
            EmbeddingUnavailable: only this vector has another length, or that cannot be found out.
            EmbeddingQuotaExceeded: the quota is used up.
        """
        other = await self._ask(PLAIN_TEXT, latest)
        if other.size != vector.size:
            raise EmbeddingUnavailable(
                f"{self.provider.spec.provider}: the vector has {vector.size} dimensions instead of {dimensions}"
            )

    async def embed_soon(self, text: str, deadline: float, dimensions: int, seconds: float) -> QueryEmbedding:
        """Return the vector of `text` if the provider makes it within `seconds` and half the time until `deadline`.

        A call that takes longer continues, so that its connection is not closed and its vector is known the next time.
        While there are too many of them, no other is made.
        """
        seconds = max(0.0, min(seconds, (deadline - time.monotonic()) / 2))
        call = self._soon.get(text)
        if call is None:
            if len(self._soon) >= MOST_CALLS:
                busy = f"{self.provider.spec.provider} still embeds {MOST_CALLS} earlier queries"
                return QueryEmbedding(None, EmbeddingOutage(busy))
            latest = time.monotonic() + self._longest_wait_seconds + LEFT_FOR_THE_SEARCH_SECONDS
            call = self._tasks.spawn("embedding of a query", self.embed(text, latest, dimensions))
            self._soon[text] = call
            call.add_done_callback(lambda _: self._soon.pop(text, None))
        done, _ = await asyncio.wait([call], timeout=seconds)
        return call.result() if done else QueryEmbedding(None, self._too_slow(seconds))

    def _too_slow(self, seconds: float) -> EmbeddingOutage:
        return EmbeddingOutage(f"{self.provider.spec.provider} did not embed the query within {seconds:.2g} s")

    async def _ask(self, text: str, latest: float) -> Vector:
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, self.provider.embed_query, text, latest)
        try:
            async with asyncio.timeout(max(0.0, latest - time.monotonic())):
                return await call
        except TimeoutError:
            waited = self._longest_wait_seconds
            raise EmbeddingOutage(
                f"{self.provider.spec.provider} did not embed the query in time (at most {waited:g} s)"
            ) from None

    def _failed(self, error: MemorydError, began: float) -> None:
        """Do not call the provider for a while, longer after each failure, so that searches do not wait for it.

        A call that began before the last failure counts as the same failure and does not lengthen the pause.
        """
        if began <= self._failed_at:
            return
        self._failed_at = time.monotonic()
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(self._first_pause_seconds, 2 * self._pause_seconds))
        self._paused_until = self._failed_at + self._pause_seconds
        self._last_error = error
