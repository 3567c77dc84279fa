"""A question on its way to the search engine: its vector, a thread, and once more where the index is begun anew."""

import asyncio
from concurrent.futures import Executor
from dataclasses import replace

from memoryd_server.backend.vector_side import QuestionVector, VectorSide
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.legs import Words
from memoryd_server.search.query import SearchAnswer, SearchQuery
from memoryd_server.store.protocol import Store

# An index that is begun anew again and again is answered from as it is.
_MOST_TIMES = 3


class Asking:
    """Asks one agent's engine, on `threads`."""

    def __init__(self, store: Store, search: SearchEngine, vectors: VectorSide, threads: Executor) -> None:
        self._store = store
        self._search = search
        self._vectors = vectors
        self._threads = threads

    async def prepared(self, query: SearchQuery) -> tuple[QuestionVector, Words | None]:
        """The question's vector and, where a provider had to be waited for, what the keyword leg found meanwhile."""
        asked = self._vectors.known(query)
        if asked is not None:
            return asked, None
        words = asyncio.get_running_loop().run_in_executor(self._threads, self._search.words, query)
        try:
            asked = await self._vectors.question(query)
        finally:
            # What went wrong here goes wrong again in the search itself, which says so.
            await asyncio.wait((words,))
        return asked, None if words.cancelled() or words.exception() else words.result()

    async def answer(self, query: SearchQuery, asked: QuestionVector, words: Words | None) -> SearchAnswer:
        """What the engine answers, with what impairs the index.

        What is told is of before: the index may be mended meanwhile. Where it was begun anew, it is asked once more.
        """
        for _ in range(_MOST_TIMES):
            generation, impairments = self._store.health.generation, self._store.degradations()
            answer = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._search.search, query, asked.vector, asked.reason, words, asked.identity
            )
            if generation == self._store.health.generation:
                break
        return replace(answer, degradations=(*answer.degradations, *impairments))
