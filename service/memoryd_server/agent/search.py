"""Runs a query, retries after repair; SearchBackend protocol.

Search one agent's index: its query vector, a worker thread, and another attempt after the index was rebuilt.

What answers an agent's searches: the protocol of a backend in front of the builtin search, and its state.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from memoryd_server.agent.coordinator import SyncRunner
from memoryd_server.agent.embedding import AgentEmbedding
from memoryd_server.agent.files import FileRange
from memoryd_server.agent.forget import ForgetRequest
from memoryd_server.agent.sync_run import SyncRun
from memoryd_server.model import Degradation
from memoryd_server.search import EarlyKeywordHits, SearchAnswer, SearchEngine, SearchQuery
from memoryd_server.store import Store
from memoryd_server.sync import SyncOutcome

# An index that is rebuilt again and again is searched as it is.
_MOST_TIMES = 3

Reading = Callable[[Callable[[], Awaitable[SearchAnswer]], float], Awaitable[SearchAnswer]]


async def search(
    query: SearchQuery,
    *,
    store: Store,
    engine: SearchEngine,
    vectors: AgentEmbedding,
    threads: Executor,
    reading: Reading,
) -> SearchAnswer:
    """Return what `engine` finds on `threads`, with what impairs the index.

    While the provider makes the query's vector, the keyword search runs. `reading` runs the search of both, and runs it
    again if it finds the index damaged.
    """
    words: list[asyncio.Future[EarlyKeywordHits | None]] = []

    def search_words() -> None:
        words.append(asyncio.get_running_loop().run_in_executor(threads, engine.search_keywords, query))

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


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Which backend would answer now, and what is degraded in it.

    `active` is "builtin", "qmd", or empty if none would answer. `wanted` is the backend in front of the builtin one,
    empty if the settings name none; `reason` says why it does not answer, and is empty if it does.
    """

    active: str
    degradations: tuple[Degradation, ...] = ()
    wanted: str = ""
    version: str = ""
    reason: str = ""


class SearchBackend(Protocol):
    """Answers in front of an agent's builtin search, from `start` to `stop`. For the event loop's thread."""

    sync_runner: SyncRunner | None
    """Carries out the agent's sync runs if memoryd keeps no index for the agent; None if the builtin index is kept."""

    async def start(self, *, background: bool) -> None:
        """Begin to answer; `background` allows work that no caller asked for."""

    async def stop(self) -> None:
        """Begin nothing more."""

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answer a query before `query.deadline`.

        Raises:
            RevisionNotReached: the deadline came before that revision.
            BackendUnavailable: the backend failed, and no other one may answer.
        """

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange | None:
        """Return a line range of a file that only this backend searches; None for any other path.

        Raises:
            PathNotAllowed: the path is in the backend's files, but is not one that it searches.
            FileNotFound: the file is missing.
        """

    async def forget(self, request: ForgetRequest, deadline: float) -> tuple[int, bool]:
        """Remove what the builtin memory has just forgotten from this backend as well.

        Return the number of documents removed, and whether all of it was done before `deadline`.
        """

    async def after_sync(self, run: SyncRun, outcome: SyncOutcome) -> SyncOutcome:
        """Follow a sync run that completed, and return what it did in all.

        Raises:
            BackendUnavailable: the backend's index could not be updated, and there is no other index.
        """

    async def check(self, deadline: float) -> None:
        """Call what answers once, so that `state` is current."""

    async def state(self) -> BackendStatus:
        """Return who would answer, as far as is known without a call."""
