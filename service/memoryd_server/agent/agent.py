"""Agent: one agent with one method a use case. Every edge calls it.

    async with agents.use("main") as agent:
        result = await agent.search(SearchRequest(query="harbour crane"), Deadline.after(5.0, ceiling_seconds=30.0))

Methods are coroutines on the event loop; files and the index are touched on other threads only. A method that takes a
request raises `InvalidRequest` for an invalid one, and `DeadlineTooShort` if it is not done by its deadline.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.edit_requests import EditRequest, HistoryRequest
from memoryd_server.agent.entry_search import EntryAnswer, EntryQuery, can_match, with_entries
from memoryd_server.agent.file_listing import LISTING_SECONDS, FileListing, ListedFile, indexed_files
from memoryd_server.agent.file_reader import FileReader
from memoryd_server.agent.files import (
    FileRange,
    SessionContext,
    require_transcript,
)
from memoryd_server.agent.forget import ForgetJob, ForgetReceipt, forget
from memoryd_server.agent.history import HistoryPage
from memoryd_server.agent.index import AgentIndex, run_on
from memoryd_server.agent.lifecycle import Deadline
from memoryd_server.agent.miss import MissExplainer, MissExplanation, MissRequest
from memoryd_server.agent.recall import RecallAnswer, Recaller
from memoryd_server.agent.recall_request import MemoryRecallRequest
from memoryd_server.agent.requests import (
    AppendRequest,
    ForgetRequest,
    ListFilesRequest,
    ReadRequest,
    SearchRequest,
    SyncRequest,
    WatchRequest,
)
from memoryd_server.agent.search import BackendStatus, IndexSearch, SearchBackend, SearchResult
from memoryd_server.agent.session_requests import (
    SessionAppendRequest,
    SessionArchiveRequest,
    SessionContextRequest,
)
from memoryd_server.agent.state import IndexSnapshot, IndexUpdate
from memoryd_server.agent.status import AgentStatus, make_status
from memoryd_server.agent.sync_run import SyncEvent, SyncRun, SyncTrigger
from memoryd_server.agent.threads import SharedResources
from memoryd_server.agent.workspace import AgentWorkspace
from memoryd_server.errors import NotImplementedYet, ShuttingDown
from memoryd_server.model import Clock
from memoryd_server.observe import Meter, NoMeter
from memoryd_server.providers import ProviderSelection
from memoryd_server.search import BUILTIN, NO_ANSWER, SearchAnswer, SearchEngine, SearchQuery, check_files
from memoryd_server.sessions import SeenSessions
from memoryd_server.sources import ForgottenSources
from memoryd_server.sync import SyncScope
from memoryd_server.writing import AppendReceipt, ArchiveReceipt, TranscriptReceipt, WriteReceipt

STATE_INTERVAL_SECONDS = 0.1
"""The shortest time between two states of an index that a follower gets."""


class Agent:
    """One enabled agent from `start` to `stop`.

    `on_sync_end(agent_id, run)` is called after each sync run, for the log. `meter` counts searches.
    """

    def __init__(
        self,
        config: AgentConfig,
        selection: ProviderSelection,
        threads: SharedResources,
        clock: Clock,
        *,
        on_sync_end: Callable[[str, SyncRun], None],
        meter: Meter | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._threads = threads
        self._meter: Meter = meter or NoMeter()
        documents = threads.make_documents(config, clock)
        self._corpus = documents.corpus
        self.index = AgentIndex(
            config,
            selection,
            threads,
            clock,
            documents=documents,
            recover=documents.writer.recover,
            on_sync_end=on_sync_end,
        )
        quick, slow = self.index.quick, self.index.slow
        self.workspace = AgentWorkspace(config, threads, clock, documents=documents, quick=quick, slow=slow)
        engine = SearchEngine(
            self.index.store,
            threads.analyzer,
            lambda rows: check_files(self._corpus, rows),
            sources=config.sources,
            ranking=config.ranking,
        )
        self._search = IndexSearch(self.index, engine, threads.reranking)
        self._files = FileReader(self.index, self._corpus)
        self._forget_job = ForgetJob(
            self.index.store,
            documents,
            self.forgotten,
            lambda: self.config,
            lambda: self.index.cache,
            now_ns=clock.now_ns,
        )
        compare = lambda: self.index.runner.compare()  # noqa: E731, PLW0108 -- a search backend may replace the runner
        indexed = partial(indexed_files, self.index.store)
        excluded = lambda: self._corpus.excluded()  # noqa: E731, PLW0108 -- the settings may change
        self._listing = FileListing(compare, self.forgotten, clock.monotonic, indexed=indexed, excluded=excluded)
        self._seen_sessions = SeenSessions()
        self._recaller = Recaller(self._answer, self._search.result, threads.analyzer, threads.entries, clock)
        self._backend: SearchBackend | None = None

    def use_backend(self, backend: SearchBackend) -> None:
        """Search with `backend` first; before `start`."""
        self._backend = backend
        self.index.attach(backend.after_sync, backend.sync_runner)

    def reserve(self) -> None:
        """Take the index's lock ahead of `start`; see `AgentIndex.reserve`. Blocks."""
        self.index.reserve()

    def release(self) -> None:
        """Release the lock that `reserve` took, if no `start` follows. Blocks."""
        self.index.release()

    async def start(self, *, background: bool = True, requested: bool = True, answers_first: bool = False) -> None:
        """Open the index and, if `background`, start watching and a first sync; then start the search backend.

        An agent that no caller has `requested` releases its memory after this sync. If the agent `answers_first`, the
        sync starts after the call for which it is opened.

        Raises:
            IndexBusy, IndexTooNew, IndexUnavailable: the index cannot be opened.
        """
        await self.index.open(background=background, requested=requested, answers_first=answers_first)
        if self._backend is None:
            return
        try:
            await self._backend.start(background=background)
        except BaseException:
            # An index that stays open would keep its lock, and the next attempt could not take it.
            await self.index.close()
            raise

    async def change_config(self, config: AgentConfig) -> None:
        """Continue with a configuration that the present one `can_become`; runs and searches under way continue."""
        self.config = self.workspace.config = config
        self._search.engine.set_ranking(config.ranking)
        await self.index.change_config(config)

    async def stop_backend(self) -> None:
        """Stop the search backend, if there is one."""
        if self._backend is not None:
            await self._backend.stop()

    async def stop(self, purge_until: float = -math.inf) -> None:
        """Stop watching, end the run under way at a file boundary, and close the index as `AgentIndex.close` does."""
        self.workspace.stop_writes()
        await self.index.close(purge_until)
        # Last, because a sync reads the documents.
        await self.workspace.stop()

    @property
    def snapshot(self) -> IndexSnapshot:
        """The state of the index, as far as it is known without I/O."""
        return self.index.monitor.current

    @property
    def forgotten(self) -> ForgottenSources:
        """The files and sessions that stay out of every index."""
        return self.index.forgotten

    async def search(self, request: SearchRequest, deadline: Deadline) -> SearchResult:
        """Return the parts of memory that answer a query. Waits for a sync only if `min_revision` is set.

        Raises:
            RevisionNotReached: the index did not reach `min_revision` before the deadline.
            EmbeddingNotConfigured, EmbeddingUnavailable, EmbeddingQuotaExceeded: only vector search was requested, and
                it cannot answer.
            BackendUnavailable: the search backend failed, and the builtin search may not answer.
        """
        began = self._clock.monotonic()
        query = request.resolve(self.config, self._now(), deadline.at)
        answer = replace(NO_ANSWER, revision=self.snapshot.revision)
        if request.search_files:
            answer = await self._answer(query, request.session_key, request.min_revision)
        if request.entries:
            answer = with_entries(answer, await self._find_entries(query), query)
        result = self._search.result(answer, self._clock.monotonic() - began)
        self._meter.search_ended(result.measurement(self.config.agent_id))
        return result

    async def explain_miss(self, request: MissRequest, deadline: Deadline) -> MissExplanation:
        """Return why a search does not find a file or a line. No metric counts this search.

        Raises:
            NotImplementedYet: a search backend answers, whose ranking is unknown.
            MemorydError: as `search`.
        """
        query = request.resolve(self.config, self._now(), deadline.at)
        if self._backend is not None:
            raise NotImplementedYet("qmd answers this agent's searches and does not report how it ranks texts")
        await self.prepare_search("", request.search.min_revision, deadline.at)
        explainer = MissExplainer(
            self.config,
            self._corpus,
            self.index,
            self._search,
            find_entries=self._find_entries,
            monotonic=self._clock.monotonic,
        )
        return await deadline.limit(explainer.explain(request, query))

    async def recall(self, request: MemoryRecallRequest, deadline: Deadline) -> RecallAnswer:
        """Return what the memory contains about a turn, as a block to insert before it, or why that is nothing.

        Raises:
            BackendUnavailable: as `search`.
        """
        plan = request.resolve(self.config, self._now(), deadline.at)
        counts = self.index.store.last_counts
        languages = () if counts is None else counts.languages
        threads = self.index.quick if request.max_staleness is None else self.index.standby_threads
        result = await deadline.limit(self._recaller.recall(plan, self.config, languages, threads))
        self._meter.search_ended(result.search.measurement(self.config.agent_id))
        return result

    async def _answer(self, query: SearchQuery, session_key: str, min_revision: int | None = None) -> SearchAnswer:
        search = self.search_builtin if self._backend is None else self._backend.search
        return await search(query, session_key=session_key, min_revision=min_revision)

    async def _find_entries(self, query: SearchQuery) -> EntryAnswer:
        if not can_match(query.files):
            return EntryAnswer()
        wanted = EntryQuery(
            text=query.text,
            limit=query.max_results,
            min_score=query.min_score or 0.0,
            deadline=query.deadline,
            since=query.files.since,
            until=query.files.until,
        )
        return await self._threads.entries.find(self.config, wanted)

    async def search_builtin(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Return the answer of memoryd's own index, on a standby if the query allows it.

        Raises:
            RevisionNotReached: the index did not reach `min_revision` before `query.deadline`.
        """
        await self.prepare_search(session_key, None, query.deadline)
        answer = await self._search.search_standby(query, self._corpus, min_revision)
        if answer is not None:
            return answer
        await self.prepare_search("", min_revision, query.deadline)
        return await self._search.search(query)

    async def prepare_search(self, session_key: str, min_revision: int | None, deadline: float) -> None:
        """Record the start of a session, and wait for a revision of the index.

        Raises:
            RevisionNotReached: the index did not reach it before `deadline`, in `time.monotonic()` seconds.
        """
        if self.config.sync.on_session_start and self._seen_sessions.is_first(session_key):
            self.index.sync_soon(SyncTrigger.SESSION_START)
        if min_revision is not None:
            seconds = max(0.0, deadline - self._clock.monotonic())
            await self.index.reached_within(seconds, min_revision)

    async def read(self, request: ReadRequest, deadline: Deadline) -> FileRange:
        """Return a line range of a file that a search may name.

        Raises:
            PathNotAllowed: the path is not a file of the agent.
            FileNotFound: the file is missing.
        """
        elsewhere = None if self._backend is None else self._backend.read
        return await deadline.limit(self._files.read(request, self.config, deadline, elsewhere))

    async def append(self, request: AppendRequest, deadline: Deadline) -> AppendReceipt:
        """Append text to a memory file, once per idempotency key, and index it.

        The receipt has no revision if the file was not indexed before the deadline.

        Raises:
            MemorydError: as `AgentWorkspace.append`; nothing or all of the text was written.
        """
        receipt = await self.workspace.append(request, deadline)
        revision = await self.index.index_written(deadline.at, receipt.path)
        return replace(receipt, revision=revision)

    async def edit(self, request: EditRequest, deadline: Deadline) -> WriteReceipt:
        """Change, move, delete or restore a memory file, keep what that replaces, and index the change.

        The receipt has no revision if the change was not indexed before the deadline.

        Raises:
            MemorydError: as `AgentWorkspace.edit`; nothing or all of it was written.
        """
        receipt = await self.workspace.edit(request, deadline)
        paths = filter(None, (receipt.path, receipt.moved_from))
        revision = await self.index.index_written(deadline.at, *paths)
        return replace(receipt, revision=revision)

    async def read_history(self, request: HistoryRequest, deadline: Deadline) -> HistoryPage:
        """Return a page of the writes to a memory file, or to all of them.

        Raises:
            MemorydError: as `AgentWorkspace.read_history`.
        """
        return await self.workspace.read_history(request, deadline)

    async def archive(self, request: SessionArchiveRequest, deadline: Deadline) -> ArchiveReceipt:
        """Write the last messages of a transcript to a memory file, and index it.

        The receipt has no revision if the file was not indexed before the deadline.

        Raises:
            MemorydError: as `AgentWorkspace.archive`.
        """
        receipt = await self.workspace.archive(request, deadline)
        self._recaller.forget_session(request.session_key)
        if not receipt.path:
            return receipt
        revision = await self.index.index_written(deadline.at, receipt.path)
        return replace(receipt, revision=revision)

    async def append_records(self, request: SessionAppendRequest, deadline: Deadline) -> TranscriptReceipt:
        """Append records to the transcript of a session, as `AgentWorkspace.append_records`; a sync indexes them."""
        receipt = await self.workspace.append_records(request, deadline)
        self.index.note_transcripts()
        return receipt

    async def forget(self, request: ForgetRequest, deadline: Deadline) -> ForgetReceipt:
        """Remove what is named from everything that was derived from it, and its source if requested.

        The search backend is not called if none of its files has changed. A memory file that is kept stays in the
        backend's index and gives no hit.

        Raises:
            PathNotAllowed: the path is no memory file, or its source may not be deleted.
            FileNotFound: what is named is neither on disk nor in the index.
        """
        request.check()
        receipt = await forget(
            self._forget_job,
            request,
            deadline.at,
            monitor=self.index.monitor,
            writer_thread=self.index.writer_thread,
            monotonic=self._clock.monotonic,
        )
        if self._backend is None or not (request.session_id or receipt.source_files):
            return receipt
        documents, in_time = await self._backend.forget(request, deadline.at)
        return replace(receipt, qmd_documents=documents, purge_pending=receipt.purge_pending or not in_time)

    async def session_context(self, request: SessionContextRequest, deadline: Deadline) -> SessionContext:
        """Return the files that a session loads at its start, and its recall prompt and tools if requested."""
        read_at_ns = self._clock.now_ns()
        context = await self.workspace.session_context(request, deadline)
        self._recaller.record_context(request.session_key, context, read_at_ns)
        await self.prepare_search(request.session_key, None, deadline.at)
        return context

    async def files(self, request: ListFilesRequest, deadline: Deadline) -> Sequence[ListedFile]:
        """Return the files on disk or in the index that match, by path: of all pages.

        For a later page of a long list, they are as of its first page.
        """
        among, excluded = request.resolve(), request.include_excluded
        kept = self._listing.kept(among, excluded=excluded) if request.page.page_token else None
        if kept is not None:
            return kept
        make = partial(self._listing.make, among, excluded=excluded)
        files = await deadline.limit(self.index.read(lambda: run_on(self.index.slow, make)))
        if self._listing.kept(among, excluded=excluded) is not None:
            asyncio.get_running_loop().call_later(LISTING_SECONDS, self._listing.kept)
        return files

    async def sync(self, request: SyncRequest) -> AsyncGenerator[SyncEvent, None]:
        """Start, join or resume a sync run, and yield its events to its end.

        Raises:
            CursorExpired: the run to resume is forgotten.
            PathNotAllowed, FileNotFound: the compacted transcript is not allowed, or is missing.
            SyncConflict: a FULL run that does not wait was requested during a run.
            MemorydError: the run failed.
        """
        scope, heartbeat_seconds = request.resolve(self.config)
        active = self.index.coordinator.active
        run, after = await self._run_of(request, scope)
        follow = self.index.coordinator.follow(
            run, after, heartbeat_seconds, attached=run is active, cancel=request.cancel_on_disconnect
        )
        async with aclosing(follow) as events:
            async for event in events:
                yield event

    async def _run_of(self, request: SyncRequest, scope: SyncScope) -> tuple[SyncRun, int]:
        """Return the run to follow, and the sequence after which to begin."""
        coordinator = self.index.coordinator
        if request.resume is not None:
            sync_id, sequence = request.resume
            return coordinator.require(sync_id), sequence
        if request.dry_run:
            return await coordinator.estimate(request.mode, scope, self.index.slow), 0
        if request.transcript:
            await run_on(self.index.quick, require_transcript, self._corpus, request.transcript)
        if request.trigger is SyncTrigger.POST_COMPACTION:
            # The model does not see the earlier blocks any more.
            self._recaller.forget_session(request.session_key)
        if request.trigger is SyncTrigger.SESSION_START:
            # The session's first search then starts no second run.
            self._seen_sessions.is_first(request.session_key)
        wait = request.wait_on_conflict
        return await coordinator.request(request.trigger, request.mode, scope, wait_on_conflict=wait), 0

    async def watch(self, request: WatchRequest) -> AsyncGenerator[IndexUpdate, None]:
        """Yield the state of the index now, after each change, and at each heartbeat; without end.

        Raises:
            ShuttingDown: the daemon stops, or reopens the agent with other settings.
        """
        heartbeat_seconds = request.resolve()
        heartbeat, monitor = False, self.index.monitor
        while not monitor.current.closing:
            change = asyncio.ensure_future(monitor.next_change())
            try:
                run, roots = self.index.coordinator.active, self.index.watched_roots()
                yield IndexUpdate(
                    self._clock.now_ns(), monitor.current, None if run is None else run.summary(), roots, heartbeat
                )
                changed, _ = await asyncio.wait([change], timeout=heartbeat_seconds)
            finally:
                change.cancel()
            heartbeat = not changed
            if changed and not monitor.current.closing:
                await asyncio.sleep(STATE_INTERVAL_SECONDS)
        raise ShuttingDown(
            "the daemon is stopping, or reopens this agent with other settings; watch again", retry_after_seconds=1.0
        )

    async def status(self, deadline: Deadline, *, probe: bool = False) -> AgentStatus:
        """Return how the agent is doing. `probe` calls the embedding provider, the reranker and the backend once."""
        provider, reranker = None, self._threads.reranking.current
        if probe:
            provider, *_ = await asyncio.gather(
                self.index.embedding.probe(deadline.at),
                self._check_backend(deadline.at),
                *([] if reranker is None else [reranker.probe(deadline.at)]),
            )
        backend = BackendStatus(BUILTIN)
        if self._backend is not None:
            backend = await deadline.limit(self._backend.state())
        status = self.index.read(
            lambda: run_on(
                self.index.slow,
                make_status,
                self.index,
                backend,
                self.workspace.issues(),
                self._clock.now_ns(),
            )
        )
        status_now = await deadline.limit(status)
        return replace(status_now, probe=provider, reranker=None if reranker is None else reranker.status())

    async def _check_backend(self, deadline: float) -> None:
        if self._backend is not None:
            await self._backend.check(deadline)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ns() / 1e9, UTC)
