"""MemoryService: parse, call Agent, convert.

The MemoryService: validate, ask the agent's memory, convert. Nothing is decided here.

Pages of lists. A page begins after the item that its token names, so that a changing list loses nobody's place.

Sync and WatchIndex: runs and states carried to one follower each. A slow follower slows nobody but itself.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

from google.protobuf.message import Message

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceServicer
from memoryd_server.access import DEFAULT_AGENT, Grant
from memoryd_server.agent import (
    Agent,
    AgentConfig,
    Agents,
    ListedFile,
    PageRequest,
    ServiceInfo,
    SyncRequest,
    SyncRun,
    SyncTrigger,
)
from memoryd_server.errors import CursorExpired, DeadlineTooShort, ShuttingDown
from memoryd_server.observe import Meter, SearchFinished
from memoryd_server.rpc import requests, responses, wire
from memoryd_server.rpc.responses import context_response, forget_response, sync_response, watch_response
from memoryd_server.rpc.status_response import shared_apart, status_response
from memoryd_server.rpc.wire import Context, build_message, make_page_token, read_page_token, timestamp
from memoryd_server.sessions import FlushDecision, decide_flush
from memoryd_server.writing import AppendJob

LOCK_SECONDS = 10.0
"""How long an append waits for a file that another program locks, where the caller sets no deadline."""

# A call ends this long before its caller's deadline, or this share of a short one before it, so that its own error
# arrives instead of the caller's bare DEADLINE_EXCEEDED.
REPLY_MARGIN_SECONDS = 0.2
REPLY_MARGIN_SHARE = 0.2

_R = TypeVar("_R")

_T = TypeVar("_T")


class MemoryService(MemoryServiceServicer):
    """Answers every RPC of the contract.

    `grant_of` tells what a caller may use; that a request's agent is among it has been checked before. `now` is the
    wall clock, for requests that tell no time. `ceiling_seconds` is the longest that a call takes, whatever its
    deadline; it may be set while calls run.
    """

    def __init__(
        self,
        agents: Agents,
        service: ServiceInfo,
        grant_of: Callable[[Context], Grant],
        *,
        ceiling_seconds: float,
        now: Callable[[], datetime],
        meter: Meter,
    ) -> None:
        self.ceiling_seconds = ceiling_seconds
        self._agents = agents
        self._service = service
        self._grant_of = grant_of
        self._now = now
        self._meter = meter
        self._zones: dict[str, ZoneInfo] = {}

    async def _checked(self, check: Callable[[_R, AgentConfig, datetime], _T], request: _R, config: AgentConfig) -> _T:
        """Return what `check` makes of a request that may name a time zone, whose rules are in a file.

        Only the zones of agents are kept, so a request that names a zone itself is checked on a thread.
        """
        now = self._now()
        if config.time_zone in self._zones and not getattr(request, "time_zone", ""):
            return check(request, config, now)
        self._zones[config.time_zone] = await asyncio.to_thread(ZoneInfo, config.time_zone)
        return await asyncio.to_thread(check, request, config, now)

    async def MemorySearch(self, request: pb.MemorySearchRequest, context: Context) -> pb.MemorySearchResponse:
        """Finds the parts of memory that answer a question."""
        began = time.monotonic()
        async with self._agents.use(request.agent_id) as memory:
            call = requests.search_call(request, memory.config, self.deadline(context), self._now())
            backend = self._agents.backend(request.agent_id)
            answer = await backend.search(call.query, session_key=call.session_key, min_revision=call.min_revision)
            elapsed = time.monotonic() - began
            response = responses.search_response(answer, memory, elapsed_seconds=elapsed, explain=call.explain)
            kinds = responses.kinds_of(response.info.degradations)
            self._meter.search_ended(
                SearchFinished(
                    memory.config.agent_id,
                    answer.served_mode,
                    elapsed,
                    kinds,
                    {report.retriever: report.elapsed_seconds for report in answer.retrievers if report.ran},
                    answer.empty_reason or "",
                )
            )
            return response

    async def MemoryGet(self, request: pb.MemoryGetRequest, context: Context) -> pb.MemoryGetResponse:
        """Reads a line range of a memory file."""
        async with self._agents.use(request.agent_id):
            backend = self._agents.backend(request.agent_id)
            call = requests.get_call(request)
            lines = await self.in_time(backend.read(call.path, call.start_line, call.line_count), context)
            return responses.get_response(lines)

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        """Tells how an agent's memory is doing."""
        async with self._agents.use(request.agent_id) as memory:
            backend = self._agents.backend(request.agent_id)
            probe = None
            if request.probe:
                deadline = self.deadline(context)
                probe, _ = await asyncio.gather(memory.probe(deadline), backend.check(deadline))
            report = await self.in_time(memory.report(), context)
            state = await self.in_time(backend.state(), context)
            answer = status_response(memory, report, self._service, probe, state)
            return shared_apart(answer) if self._grant_of(context).limited else answer

    async def Sync(self, request: pb.SyncRequest, context: Context) -> AsyncIterator[pb.SyncResponse]:
        """Starts or joins a sync run and follows it to its end."""
        memory = await self._agents.settled(request.agent_id)
        async with aclosing(follow_sync(memory, requests.sync_call(request, memory.config))) as events:
            async for event in events:
                yield event

    async def WatchIndex(self, request: pb.WatchIndexRequest, context: Context) -> AsyncIterator[pb.WatchIndexResponse]:
        """Follows an agent's index without starting anything."""
        memory = await self._agents.settled(request.agent_id)
        async with aclosing(follow_index(memory, requests.watch_heartbeat(request))) as states:
            async for state in states:
                yield state

    async def FlushDecision(self, request: pb.FlushDecisionRequest, context: Context) -> pb.FlushDecisionResponse:
        """Decides whether lasting notes should be written now."""
        config = self._agents.enabled_config(request.agent_id)
        return responses.flush_response(await self._checked(_decision, request, config), config.agent_id)

    async def MemoryAppend(self, request: pb.MemoryAppendRequest, context: Context) -> pb.MemoryAppendResponse:
        """Appends text to a memory file, once per key."""
        async with self._agents.use(request.agent_id) as memory:
            deadline = self.deadline(context)
            call = await self._checked(requests.append_call, request, memory.config)
            job = AppendJob(
                call.text,
                path=call.path,
                requested_path=call.asked_path,
                idempotency_key=call.idempotency_key,
                heading=call.heading,
            )
            lock_deadline = self.deadline(context, LOCK_SECONDS)
            appended = await memory.appends.append(job, lock_deadline=lock_deadline, deadline=deadline)
            return pb.MemoryAppendResponse(
                path=appended.path,
                start_line=appended.start_line,
                end_line=appended.end_line,
                index_revision=await memory.coordinator.take_in(SyncTrigger.APPEND, deadline, appended.path),
                already_appended=appended.already_appended,
            )

    async def MemoryForget(self, request: pb.MemoryForgetRequest, context: Context) -> pb.MemoryForgetResponse:
        """Removes what is named from every derived store, and answers with a receipt."""
        async with self._agents.use(request.agent_id):
            call = requests.forget_call(request)
            backend = self._agents.backend(request.agent_id)
            return forget_response(await backend.forget(call, self.deadline(context)))

    async def SessionContext(self, request: pb.SessionContextRequest, context: Context) -> pb.SessionContextResponse:
        """Tells which memory files a session loads at its start, with their text."""
        async with self._agents.use(request.agent_id) as memory:
            call = await self._checked(requests.context_call, request, memory.config)
            await memory.reach(call.session_key, None, self.deadline(context))
            loading = memory.session_context(
                main_session=call.main_session, today=call.today, max_total_chars=call.max_total_chars
            )
            return context_response(await self.in_time(loading, context), call)

    async def SessionArchive(self, request: pb.SessionArchiveRequest, context: Context) -> pb.SessionArchiveResponse:
        """Turns the last messages of a transcript into a memory file."""
        async with self._agents.use(request.agent_id) as memory:
            deadline = self.deadline(context)
            call = await self._checked(requests.archive_call, request, memory.config)
            archived = await self.in_time(memory.archive(call), context)
            return pb.SessionArchiveResponse(
                path=archived.path,
                messages=archived.messages,
                index_revision=await memory.coordinator.take_in(SyncTrigger.APPEND, deadline, archived.path)
                if archived.path
                else None,
                already_archived=archived.already,
            )

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:
        """Lists the configured agents that the caller may use."""
        return agents_page(self._agents, self._grant_of(context), requests.page(request))

    async def ListFiles(self, request: pb.ListFilesRequest, context: Context) -> pb.ListFilesResponse:
        """Lists an agent's memory files."""
        async with self._agents.use(request.agent_id) as memory:
            page = requests.page(request)
            return files_page(await self.in_time(memory.files(), context), page)

    async def in_time(self, work: Awaitable[_T], context: Context) -> _T:
        """Return the result of `work` before the caller stops waiting.

        Raises:
            DeadlineTooShort: `work` takes longer.
        """
        allowed = self.deadline(context) - time.monotonic()
        try:
            async with asyncio.timeout(allowed):
                return await work
        except TimeoutError as error:
            raise DeadlineTooShort(
                f"the answer was not there after {allowed:.2g} s; call again with a longer deadline",
                retry_after_seconds=1.0,
            ) from error

    def deadline(self, context: Context, unasked_seconds: float = math.inf) -> float:
        """Return until when to work, in `time.monotonic()` seconds: before the caller's deadline and the ceiling.

        `unasked_seconds` limits a call without a deadline further.
        """
        remaining = context.time_remaining()
        allowed = min(unasked_seconds if remaining is None else remaining, self.ceiling_seconds)
        return time.monotonic() + allowed - min(REPLY_MARGIN_SECONDS, allowed * REPLY_MARGIN_SHARE)


def _decision(request: pb.FlushDecisionRequest, config: AgentConfig, now: datetime) -> FlushDecision:
    return decide_flush(requests.flush_inputs(request, config, now), config.flush)


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


_M = TypeVar("_M", bound=Message)

# A page ends before it is larger, so that it fits a message also where paths and errors are as long as they can be.
MOST_PAGE_BYTES = 1024 * 1024


def agents_page(agents: Agents, grant: Grant, page: PageRequest) -> memory_service_pb2.ListAgentsResponse:
    """A page of the configured agents that a caller may use."""
    usable = [config for config in agents.configs().values() if grant.allows(config.agent_id)]
    shown, token = _cut(
        "agents", usable, page, lambda config: config.agent_id, lambda config: _agent(agents, grant, config)
    )
    return memory_service_pb2.ListAgentsResponse(agents=shown, next_page_token=token)


def _agent(agents: Agents, grant: Grant, config: AgentConfig) -> memory_service_pb2.Agent:
    memory = agents.opened().get(config.agent_id)
    unavailable = memory_pb2.INDEX_STATE_UNAVAILABLE if config.enabled else memory_pb2.INDEX_STATE_UNSPECIFIED
    return build_message(
        memory_service_pb2.Agent,
        agent_id=config.agent_id,
        workspace=config.roots.workspace,
        default=config.agent_id == DEFAULT_AGENT if grant.limited else config.default,
        enabled=config.enabled,
        index_state=unavailable if memory is None else wire.index_state(memory.board.current.state),
    )


def files_page(files: Sequence[ListedFile], page: PageRequest) -> memory_service_pb2.ListFilesResponse:
    """A page of an agent's files."""
    shown, token = _cut("files", files, page, lambda file: file.path, responses.file)
    return memory_service_pb2.ListFilesResponse(files=shown, next_page_token=token)


def _cut(
    kind: str, items: Sequence[_T], page: PageRequest, key: Callable[[_T], str], message: Callable[[_T], _M]
) -> tuple[list[_M], str]:
    after = read_page_token(kind, page.token)
    rest = [item for item in items if key(item) > after] if after else items
    shown: list[_M] = []
    room = MOST_PAGE_BYTES
    for item in rest[: page.size]:
        made = message(item)
        room -= made.ByteSize()
        if shown and room < 0:
            break
        shown.append(made)
    return shown, make_page_token(kind, key(rest[len(shown) - 1])) if len(rest) > len(shown) else ""


# At most ten states a second.
STATE_INTERVAL_SECONDS = 0.1


async def follow_sync(memory: Agent, call: SyncRequest) -> AsyncGenerator[memory_service_pb2.SyncResponse, None]:
    """The events of the run that `call` starts, joins or resumes, to its end.

    Raises:
        CursorExpired: the run to resume is forgotten.
        PathNotAllowed, FileNotFound: the transcript that was compacted is none, or is not there.
        SyncConflict: a FULL run was asked for during a run.
        MemorydError: what ended the run.
    """
    known = memory.coordinator.active
    run, after = await _run_of(memory, call)
    run.followers += 1
    try:
        async with aclosing(run.follow(after, call.heartbeat_seconds)) as events:
            async for event in events:
                yield sync_response(run, event, attached=run is known)
    finally:
        run.followers -= 1
        if call.cancel_on_disconnect and run.followers == 0 and not run.finished.is_set():
            run.stop_asked = True


async def _run_of(memory: Agent, call: SyncRequest) -> tuple[SyncRun, int]:
    """The run to follow, and the sequence after which to begin."""
    if call.resume is not None:
        sync_id, sequence = call.resume
        run = memory.coordinator.find(sync_id)
        if run is None:
            raise CursorExpired(
                "the run of this cursor is forgotten; start a fresh Sync, which finds most files unchanged"
            )
        return run, sequence
    if call.dry_run:
        return await memory.estimate(call.mode, call.ask), 0
    if call.transcript:
        await memory.require_transcript(call.transcript)
    if call.trigger is SyncTrigger.SESSION_START:
        # What this run does is not to be done again by the session's first search.
        memory.session_starts.is_first(call.session_key)
    return await memory.coordinator.request(call.trigger, call.mode, call.ask), 0


async def follow_index(
    memory: Agent, heartbeat_seconds: float
) -> AsyncGenerator[memory_service_pb2.WatchIndexResponse, None]:
    """The state of an index at once, then after each change, and heartbeats between; without end.

    Raises:
        ShuttingDown: the daemon stops, and would otherwise wait for its watchers, or it opens the memory anew.
    """
    heartbeat = False
    while not memory.board.current.closing:
        change = asyncio.ensure_future(memory.board.next_change())
        try:
            yield watch_response(
                memory.config.agent_id,
                timestamp(time.time_ns()),
                memory.board.current,
                memory.coordinator.active,
                memory.watched_roots(),
                heartbeat=heartbeat,
            )
            done, _ = await asyncio.wait([change], timeout=heartbeat_seconds)
        finally:
            change.cancel()
        heartbeat = not done
        if done and not memory.board.current.closing:
            await asyncio.sleep(STATE_INTERVAL_SECONDS)
    raise ShuttingDown(
        "the daemon is stopping, or opens this memory anew with other settings; watch again", retry_after_seconds=1.0
    )
