"""The vectors of one agent's entries: of a new text, of a question, and of those that were stored without."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from memoryd_server.backend.query_embedding import QueryEmbedder
from memoryd_server.embed import EmbeddingFailure, EmbeddingProvider, Selection
from memoryd_server.entries.model import Embedded
from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.vectors import BadVector, Vector, unit

LEFT_FOR_THE_STORE_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 8.0
PAUSE_SECONDS = 10.0

LOCAL = "local"
"""The provider that is this machine."""


@dataclass(frozen=True, slots=True)
class MadeVector:
    """A vector, or why there is none; `refused` when the provider is well and the text is at fault."""

    embedded: Embedded | None
    reason: str = ""
    refused: bool = False


class EntryVectors:
    """What makes vectors of entries, or why nothing does. On the event loop's thread; the provider runs on others.

    `dimensions` is what the settings say that vectors have, 0 for any.
    """

    def __init__(
        self, selection: Selection, dimensions: int, threads_of: Callable[[EmbeddingProvider], Executor]
    ) -> None:
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

    async def question(self, text: str, deadline: float) -> MadeVector:
        """The vector of a question, before `deadline` in `time.monotonic()`; or None and why."""
        if self._questions is None:
            return MadeVector(None, self.reason)
        asked = await self._questions.embed(text, deadline, self._dimensions)
        if asked.vector is None:
            return MadeVector(None, "" if asked.error is None else asked.error.message)
        return self._checked(asked.vector)

    async def document(self, text: str, deadline: float) -> MadeVector:
        """The vector of a text to store, within eight seconds; or None and why. A provider that failed is let rest."""
        if time.monotonic() < self._paused_until:
            return MadeVector(None, self.reason)
        latest = min(deadline - LEFT_FOR_THE_STORE_SECONDS, time.monotonic() + LONGEST_WAIT_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, latest - time.monotonic())):
                (made,) = await self.documents([text], lambda: time.monotonic() > latest)
        except TimeoutError:
            made = MadeVector(None, f"{self.name} did not embed the text in time")
            self._pause(made.reason)
        return made

    async def documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[MadeVector]:
        """The vectors of texts, in order; or None and why. Asks `should_stop` meanwhile."""
        if self.provider is None or self._threads is None:
            return [MadeVector(None, self.reason)] * len(texts)
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._threads, self.provider.embed_documents, list(texts), should_stop)
        except (EmbeddingOutage, EmbeddingQuotaExceeded) as error:
            self._pause(error.message)
            return [MadeVector(None, error.message)] * len(texts)
        except EmbeddingUnavailable as error:
            self.reason = error.message
            return [MadeVector(None, error.message)] * len(texts)
        self.reason, self._paused_until = "", 0.0
        return [self._made(answer) for answer in answers]

    def _pause(self, reason: str) -> None:
        self.reason = reason
        self._paused_until = time.monotonic() + PAUSE_SECONDS

    def _made(self, answer: Vector | EmbeddingFailure) -> MadeVector:
        if isinstance(answer, EmbeddingFailure):
            return MadeVector(None, answer.reason, refused=not answer.transient)
        return self._checked(answer)

    def _checked(self, vector: Vector) -> MadeVector:
        try:
            return MadeVector(Embedded(unit(vector, self._dimensions or None), self.identity))
        except BadVector as error:
            return MadeVector(None, f"{self.name} sent what is no vector of an entry: {error}")
