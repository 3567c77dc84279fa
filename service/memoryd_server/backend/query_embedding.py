"""The vector of a question, within its own short budget.

A provider that is down, or whose quota is used up, is not asked for a while, so that searches do not wait for it again
and again. Any other error, such as the refusal of one text or of the key, does not affect the next question.
"""

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memoryd_server.embed import PLAIN_TEXT, EmbeddingProvider
from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable, MemorydError

LONGEST_WAIT_SECONDS = 8.0
LEFT_FOR_THE_SEARCH_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
ENOUGH_SECONDS = 1.0
"""Whoever gives the provider less learns nothing of it: others may go on asking."""

REMEMBERED_QUESTIONS = 512

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddedQuestion:
    """The vector, or the error that stands in its place. `fresh` when the provider has just made it."""

    vector: Vector | None
    error: MemorydError | None = None
    fresh: bool = False


class QueryEmbedder:
    """Embeds the questions of one provider's users. On the event loop's thread; the provider runs on `threads`."""

    def __init__(self, provider: EmbeddingProvider, threads: Executor) -> None:
        self.provider = provider
        self._threads = threads
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._pause_seconds = 0.0
        self._paused_until = 0.0
        self._failed_at = 0.0
        self._last_error: MemorydError | None = None

    def known(self, text: str, dimensions: int = 0) -> EmbeddedQuestion | None:
        """What is known without asking: the remembered vector, or why the provider is left alone; None for neither.

        A vector is good for an index whose vectors have as many `dimensions`, 0 being any.
        """
        vector = self._known.get(text)
        if vector is not None and dimensions in (0, vector.size):
            self._known.move_to_end(text)
            return EmbeddedQuestion(vector)
        if time.monotonic() < self._paused_until and self._last_error is not None:
            return EmbeddedQuestion(None, self._last_error)
        return None

    async def embed(self, text: str, deadline: float, dimensions: int = 0) -> EmbeddedQuestion:
        """The vector of `text`, before `deadline` (in `time.monotonic()`) and within eight seconds."""
        known = self.known(text, dimensions)
        if known is not None:
            return known
        began = time.monotonic()
        latest = min(deadline - LEFT_FOR_THE_SEARCH_SECONDS, began + LONGEST_WAIT_SECONDS)
        try:
            vector = await self._ask(text, latest)
            if dimensions not in (0, vector.size):
                await self._check_length(vector, dimensions, latest)
        except (EmbeddingOutage, EmbeddingQuotaExceeded) as error:
            if time.monotonic() < latest or latest - began >= ENOUGH_SECONDS:
                self._failed(error, began)
            return EmbeddedQuestion(None, error)
        except EmbeddingUnavailable as error:
            return EmbeddedQuestion(None, error)
        self._pause_seconds = self._paused_until = 0.0
        self._known[text] = vector
        if len(self._known) > REMEMBERED_QUESTIONS:
            self._known.popitem(last=False)
        return EmbeddedQuestion(vector, fresh=True)

    async def _check_length(self, vector: Vector, dimensions: int, latest: float) -> None:
        """Return where the provider now makes vectors of another length of every text.

        Raises:
            EmbeddingUnavailable: only this vector has another length, or it cannot be found out.
            EmbeddingQuotaExceeded: the quota is used up.
        """
        other = await self._ask(PLAIN_TEXT, latest)
        if other.size != vector.size:
            raise EmbeddingUnavailable(
                f"{self.provider.spec.provider}: the vector has {vector.size} dimensions instead of {dimensions}"
            )

    async def _ask(self, text: str, latest: float) -> Vector:
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, self.provider.embed_query, text, latest)
        try:
            async with asyncio.timeout(max(0.0, latest - time.monotonic())):
                return await call
        except TimeoutError:
            waited = LONGEST_WAIT_SECONDS
            raise EmbeddingOutage(
                f"{self.provider.spec.provider} did not embed the question in time (at most {waited:g} s)"
            ) from None

    def _failed(self, error: MemorydError, began: float) -> None:
        """Lets the provider rest, longer after each failure, so that the searches meanwhile answer at once.

        Calls that began before the last failure was known are of the same one: they lengthen no pause.
        """
        if began <= self._failed_at:
            return
        self._failed_at = time.monotonic()
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause_seconds))
        self._paused_until = self._failed_at + self._pause_seconds
        self._last_error = error
