"""Run a query on one agent's index; what answers in front of it.

`IndexSearch` is the builtin search: it gets the query's vector while the keyword search runs, searches on another
thread or in a reader process, searches again if the index was rebuilt during the search, and waits for the reranker if
there is one, without a snapshot of the index. `SearchBackend` is the protocol of a backend that
answers in place of the builtin search, such as qmd.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from memoryd_server.agent.coordinator import SyncRunner
from memoryd_server.agent.files import FileRange
from memoryd_server.agent.index import AgentIndex, run_on
from memoryd_server.agent.reader_index import ReaderIndex
from memoryd_server.agent.requests import ForgetRequest
from memoryd_server.agent.reranking import RerankOutcome, SharedReranking
from memoryd_server.agent.state import IndexState
from memoryd_server.agent.sync_run import SyncRun
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.observe import SearchFinished
from memoryd_server.search import (
    BUILTIN,
    EarlyKeywordHits,
    PreparedSearch,
    SearchAnswer,
    SearchEngine,
    SearchMode,
    SearchQuery,
    SearchTrace,
    check_files,
)
from memoryd_server.sources import Corpus
from memoryd_server.store import ReadBound, StandbyUnusable
from memoryd_server.sync import SyncOutcome

_T = TypeVar("_T")

# An index that is rebuilt more often during one search is searched as it is.
_MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SearchResult:
    """An answer, with the state of the index at that moment.

    `degradations` are those of the answer and of the agent. `stale` is whether files have changed since they were
    indexed. `provider` and `model` made the query's vector; empty if the answer used none.
    """

    answer: SearchAnswer
    degradations: tuple[Degradation, ...]
    index_state: IndexState
    stale: bool
    provider: str
    model: str
    elapsed_seconds: float

    def measurement(self, agent_id: str) -> SearchFinished:
        """Return what the metrics count of a search of this agent."""
        answer = self.answer
        seconds = {str(report.retriever): report.elapsed_seconds for report in answer.retrievers if report.ran}
        if answer.reranking is not None and answer.reranking.candidates:
            seconds["RERANKING"] = answer.reranking.elapsed_seconds
        kinds = [degradation.kind for degradation in self.degradations]
        empty = answer.empty_reason or ""
        return SearchFinished(agent_id, answer.served_mode, self.elapsed_seconds, kinds, seconds, empty)


class IndexSearch:
    """Searches `index` by `engine`; `reranking` has the reranker. On the event loop's thread."""

    def __init__(self, index: AgentIndex, engine: SearchEngine, reranking: SharedReranking) -> None:
        self.engine = engine
        self._index = index
        self._reranking = reranking

    async def search(self, query: SearchQuery, trace: SearchTrace | None = None) -> SearchAnswer:
        """Return the hits, and what impairs the index. Fill in `trace`, if there is one.

        A query without a mode is a hybrid one if a provider is configured, so that an answer by keywords alone names
        the degradation.
        """
        answer = await self._search(query, self.engine, self._index.quick, trace, readers=self._index.readers)
        self._index.record_answer(stale=answer.stale)
        return answer

    async def search_standby(self, query: SearchQuery, corpus: Corpus, min_revision: int | None) -> SearchAnswer | None:
        """Return the answer of a standby; None if the primary has to answer. The index is that of `corpus`.

        A stale answer starts no sync, because the primary may have indexed the files.
        """
        standby = self._index.standby
        if standby is None or query.max_staleness is None:
            return None
        view = standby.view(ReadBound(query.max_staleness, query.deadline, min_revision))
        files = view.corpus(corpus)
        engine = self.engine.over(view, lambda rows: check_files(corpus, rows, files))
        try:
            return await self._search(query, engine, self._index.standby_threads)
        except StandbyUnusable:
            return None

    async def _search(
        self,
        query: SearchQuery,
        engine: SearchEngine,
        threads: Executor,
        trace: SearchTrace | None = None,
        *,
        readers: ReaderIndex | None = None,
    ) -> SearchAnswer:
        index = self._index
        index.record_search()
        if query.mode is SearchMode.UNSPECIFIED and index.embedding.is_configured:
            query = replace(query, mode=SearchMode.HYBRID)
        reranker = self._reranking.current if query.rerank else None
        only_daemon = reranker is not None or trace is not None or query.explain
        if only_daemon or (readers is not None and not readers.is_available):
            readers = None
        keyword_searches: list[asyncio.Future[EarlyKeywordHits | None]] = []

        def search_keywords() -> None:
            if readers is not None:
                # A reader process searches for the words and the vector together.
                return
            loop = asyncio.get_running_loop()
            early = loop.run_in_executor(threads, engine.search_keywords, query)
            # The caller may leave before the result is read; asyncio would report its exception as never retrieved.
            early.add_done_callback(lambda done: done.cancelled() or done.exception())
            keyword_searches.append(early)

        try:
            vector = await index.embedding.query_vector(query, search_keywords)
        finally:
            if keyword_searches:
                # The search below meets an error of this one too, and reports it.
                await asyncio.wait(keyword_searches)
        early = _early_hits(keyword_searches)
        arguments = (query, vector.vector, vector.reason, early, vector.identity)
        if reranker is None:
            search = partial(run_on, threads, partial(engine.search, *arguments, trace=trace))
            if readers is not None:
                passed = partial(readers.search, query, vector.vector, vector.reason, identity=vector.identity)
                search = partial(passed, ranking=index.config.ranking, own=search)
            answer, impairments = await index.read(lambda: self._consistent(search), query.deadline)
        else:
            most = reranker.candidates
            prepare = partial(engine.prepare, *arguments, candidates=most, trace=trace)
            prepared, _ = await index.read(lambda: self._consistent(partial(run_on, threads, prepare)), query.deadline)
            outcome = await reranker.scores(index.config.agent_id, query.text, prepared.passages[:most], query.deadline)
            finish = partial(_finish, engine, prepare, prepared, outcome)
            answer, impairments = await index.read(
                lambda: self._consistent(partial(run_on, threads, finish)), query.deadline
            )
        return replace(answer, degradations=(*answer.degradations, *impairments)) if impairments else answer

    async def _consistent(self, work: Callable[[], Awaitable[_T]]) -> tuple[_T, tuple[Degradation, ...]]:
        """Return the result of `work` on an index that was not rebuilt during it, and what impairs the index."""
        store = self._index.store
        # Impairments are read first: a repair may end during the search. A rebuilt index is searched again.
        for _ in range(_MOST_ATTEMPTS):
            generation, impairments = store.health.generation, store.degradations()
            result = await work()
            if generation == store.health.generation:
                break
        return result, impairments

    def result(self, answer: SearchAnswer, elapsed_seconds: float) -> SearchResult:
        """Return an answer of this index, or of a search backend, with the agent's degradations and state."""
        snapshot, builtin = self._index.monitor.current, answer.backend == BUILTIN
        standing = _of_answer(self._index.degradations(), answer) if builtin else self._index.config.impairments
        kinds = {degradation.kind for degradation in standing}
        own = [degradation for degradation in answer.degradations if degradation.kind not in kinds]
        provider, model = self._query_model(answer)
        return SearchResult(
            answer=answer,
            degradations=(*own, *standing),
            index_state=snapshot.state if builtin else _state_of(answer),
            stale=answer.stale or (builtin and (snapshot.dirty or snapshot.pending_files > 0)),
            provider=provider,
            model=model,
            elapsed_seconds=elapsed_seconds,
        )

    def _query_model(self, answer: SearchAnswer) -> tuple[str, str]:
        embedder = self._index.embedding.answering
        if answer.vector_candidates and answer.backend != BUILTIN:
            return answer.backend, ""
        if answer.vector_candidates and embedder is not None:
            return embedder.provider.spec.provider, embedder.provider.spec.model
        return "", ""


def _finish(
    engine: SearchEngine, prepare: Callable[[], PreparedSearch], prepared: PreparedSearch, outcome: RerankOutcome
) -> SearchAnswer:
    """Return the answer in the order of the reranker, if that scored the results in time. Blocks.

    What has left the index while the reranker was called is not in the answer.
    """
    scores = outcome.scores
    if not engine.is_current(prepared):
        by_text = dict(zip(prepared.passages, scores or (), strict=False))
        prepared = prepare()
        scores = None if scores is None else tuple(by_text.get(text) for text in prepared.passages)
    answer = engine.finish(prepared, scores)
    skipped = () if outcome.degradation is None else (outcome.degradation,)
    return replace(answer, reranking=outcome.report, degradations=(*answer.degradations, *skipped))


def _early_hits(searches: list[asyncio.Future[EarlyKeywordHits | None]]) -> EarlyKeywordHits | None:
    return None if not searches or searches[0].cancelled() or searches[0].exception() else searches[0].result()


def _of_answer(standing: tuple[Degradation, ...], answer: SearchAnswer) -> tuple[Degradation, ...]:
    """Return the agent's degradations that concern an answer.

    The answer itself says whether and why it used no vectors: the provider's last failure may be of another query.
    """
    skipped = DegradationKind.VECTOR_LEG_SKIPPED
    own = next((each for each in answer.degradations if each.kind is skipped), None)
    found = (each if each.kind is not skipped else own and replace(each, reason=own.reason) for each in standing)
    return tuple(each for each in found if each is not None)


def _state_of(answer: SearchAnswer) -> IndexState:
    """Return the state of an index that is not memoryd's own."""
    if not answer.indexed_files:
        return IndexState.EMPTY
    return IndexState.STALE if answer.stale else IndexState.READY


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
        """Begin to answer; `background` allows work that no caller requested."""

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
