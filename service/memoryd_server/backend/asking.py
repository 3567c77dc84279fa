"""Search one agent's index: its query vector, a worker thread, and another attempt after the index was rebuilt."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from memoryd_server.backend.vector_side import VectorSide
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.legs import Words
from memoryd_server.search.query import SearchAnswer, SearchQuery
from memoryd_server.store.protocol import Store

# An index that is rebuilt again and again is searched as it is.
_MOST_TIMES = 3

Reading = Callable[[Callable[[], Awaitable[SearchAnswer]], float], Awaitable[SearchAnswer]]


async def search(
    query: SearchQuery,
    *,
    store: Store,
    engine: SearchEngine,
    vectors: VectorSide,
    threads: Executor,
    reading: Reading,
) -> SearchAnswer:
    """Return what `engine` finds on `threads`, with what impairs the index.

    While the provider makes the query's vector, the keyword search runs. `reading` runs the search of both, and runs it
    again if it finds the index damaged.
    """
    words: list[asyncio.Future[Words | None]] = []

    def search_words() -> None:
        words.append(asyncio.get_running_loop().run_in_executor(threads, engine.words, query))

    try:
        vector = await vectors.question(query, search_words)
    finally:
        if words:
            # An error of this search comes up again in the search of both, which reports it.
            await asyncio.wait(words)
    found = None if not words or words[0].cancelled() or words[0].exception() else words[0].result()
    search_both = partial(engine.search, query, vector.vector, vector.reason, found, vector.identity)
    return await reading(lambda: _answer(store, threads, search_both), query.deadline)


async def _answer(store: Store, threads: Executor, search_both: Callable[[], SearchAnswer]) -> SearchAnswer:
    # Impairments are read first: a repair may end during the search. If the index was rebuilt, it is searched again.
    for _ in range(_MOST_TIMES):
        generation, impairments = store.health.generation, store.degradations()
        answer = await asyncio.get_running_loop().run_in_executor(threads, search_both)
        if generation == store.health.generation:
            break
    return replace(answer, degradations=(*answer.degradations, *impairments))
