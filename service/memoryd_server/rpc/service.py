"""The MemoryService: validate, ask the agent's memory, convert. Nothing is decided here."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceServicer
from memoryd_server.access import Grant
from memoryd_server.backend import AgentConfig, AgentDirectory, SyncTrigger
from memoryd_server.errors import DeadlineTooShort
from memoryd_server.flush import FlushDecision, decide
from memoryd_server.observe.meter import Meter, SearchEnd
from memoryd_server.rpc import conversion, session_calls, streams, validation
from memoryd_server.rpc.grpc_types import Context
from memoryd_server.rpc.lists import agents_page, files_page
from memoryd_server.rpc.session_conversion import context_response, forget_response
from memoryd_server.rpc.status_conversion import ServiceInfo, shared_apart, status_response
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
        agents: AgentDirectory,
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
            call = validation.search_call(request, memory.config, self.deadline(context), self._now())
            backend = self._agents.backend(request.agent_id)
            answer = await backend.search(call.query, session_key=call.session_key, min_revision=call.min_revision)
            elapsed = time.monotonic() - began
            response = conversion.search_response(answer, memory, elapsed_seconds=elapsed, explain=call.explain)
            kinds = conversion.kinds_of(response.info.degradations)
            self._meter.search_ended(
                SearchEnd(
                    memory.config.agent_id,
                    answer.served_mode,
                    elapsed,
                    kinds,
                    {leg.leg: leg.elapsed_seconds for leg in answer.legs if leg.ran},
                    answer.empty_reason or "",
                )
            )
            return response

    async def MemoryGet(self, request: pb.MemoryGetRequest, context: Context) -> pb.MemoryGetResponse:
        """Reads a line range of a memory file."""
        async with self._agents.use(request.agent_id):
            backend = self._agents.backend(request.agent_id)
            call = validation.get_call(request)
            lines = await self.in_time(backend.read(call.path, call.start_line, call.line_count), context)
            return conversion.get_response(lines)

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
        async with aclosing(streams.follow_sync(memory, validation.sync_call(request, memory.config))) as events:
            async for event in events:
                yield event

    async def WatchIndex(self, request: pb.WatchIndexRequest, context: Context) -> AsyncIterator[pb.WatchIndexResponse]:
        """Follows an agent's index without starting anything."""
        memory = await self._agents.settled(request.agent_id)
        async with aclosing(streams.follow_index(memory, validation.watch_heartbeat(request))) as states:
            async for state in states:
                yield state

    async def FlushDecision(self, request: pb.FlushDecisionRequest, context: Context) -> pb.FlushDecisionResponse:
        """Decides whether lasting notes should be written now."""
        config = self._agents.enabled_config(request.agent_id)
        return conversion.flush_response(await self._checked(_decision, request, config), config.agent_id)

    async def MemoryAppend(self, request: pb.MemoryAppendRequest, context: Context) -> pb.MemoryAppendResponse:
        """Appends text to a memory file, once per key."""
        async with self._agents.use(request.agent_id) as memory:
            deadline = self.deadline(context)
            call = await self._checked(validation.append_call, request, memory.config)
            job = AppendJob(
                call.text,
                path=call.path,
                asked_path=call.asked_path,
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
            call = session_calls.forget_call(request)
            backend = self._agents.backend(request.agent_id)
            return forget_response(await backend.forget(call, self.deadline(context)))

    async def SessionContext(self, request: pb.SessionContextRequest, context: Context) -> pb.SessionContextResponse:
        """Tells which memory files a session loads at its start, with their text."""
        async with self._agents.use(request.agent_id) as memory:
            call = await self._checked(session_calls.context_call, request, memory.config)
            await memory.reach(call.session_key, None, self.deadline(context))
            loading = memory.session_context(
                main_session=call.main_session, today=call.today, max_total_chars=call.max_total_chars
            )
            return context_response(await self.in_time(loading, context), call)

    async def SessionArchive(self, request: pb.SessionArchiveRequest, context: Context) -> pb.SessionArchiveResponse:
        """Turns the last messages of a transcript into a memory file."""
        async with self._agents.use(request.agent_id) as memory:
            deadline = self.deadline(context)
            call = await self._checked(session_calls.archive_call, request, memory.config)
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
        return agents_page(self._agents, self._grant_of(context), validation.page(request))

    async def ListFiles(self, request: pb.ListFilesRequest, context: Context) -> pb.ListFilesResponse:
        """Lists an agent's memory files."""
        async with self._agents.use(request.agent_id) as memory:
            page = validation.page(request)
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
    return decide(validation.flush_inputs(request, config, now), config.flush)


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)
