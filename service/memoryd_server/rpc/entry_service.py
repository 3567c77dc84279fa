"""The EntryService: validate, ask the agent's entries, convert. Nothing is decided here."""

import asyncio

from memoryd.v1 import entry_service_pb2 as pb
from memoryd.v1.entry_service_pb2_grpc import EntryServiceServicer, add_EntryServiceServicer_to_server
from memoryd_server.backend import AgentDirectory
from memoryd_server.backend.entry_directory import EntryDirectory
from memoryd_server.backend.entry_memory import Forgotten
from memoryd_server.entries.block import LEAST_PROMPT_CHARS
from memoryd_server.entries.capture import suggest
from memoryd_server.rpc import entry_calls, entry_conversion
from memoryd_server.rpc.entry_health import EntryHealth
from memoryd_server.rpc.extension import ExtensionService
from memoryd_server.rpc.grpc_types import Context
from memoryd_server.rpc.service import MemoryService

ENTRY_SERVICE = "memoryd.v1.EntryService"


class EntryService(EntryServiceServicer):
    """Answers every RPC of the contract's second service. `first` is the other one, whose deadlines hold."""

    def __init__(self, agents: AgentDirectory, entries: EntryDirectory, first: MemoryService) -> None:
        self._agents = agents
        self._entries = entries
        self._first = first

    async def Remember(self, request: pb.RememberRequest, context: Context) -> pb.RememberResponse:
        """Stores an entry, unless one that says the same is there."""
        async with self._entries.use(self._agents.enabled_config(request.agent_id)) as memory:
            new = entry_calls.remember_call(request)
            work = memory.remember(new, self._first.deadline(context))
            return entry_conversion.remembered(*await self._first.in_time(work, context))

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        """Finds the entries nearest to a text."""
        async with self._entries.use(self._agents.enabled_config(request.agent_id)) as memory:
            call = entry_calls.recall_call(request)
            deadline = self._first.deadline(context)
            work = memory.recall(call.query, call.limit, call.min_score, call.categories, deadline)
            return entry_conversion.recalled(await self._first.in_time(work, context))

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:
        """Deletes an entry by its id, or the one that a text clearly means."""
        async with self._entries.use(self._agents.enabled_config(request.agent_id)) as memory:
            call = entry_calls.forget_call(request)
            if call.entry_id:
                return entry_conversion.forgotten(
                    Forgotten(await self._first.in_time(memory.forget(call.entry_id), context))
                )
            work = memory.forget_meant(call.query, self._first.deadline(context))
            return entry_conversion.forgotten(await self._first.in_time(work, context))

    async def ListEntries(self, request: pb.ListEntriesRequest, context: Context) -> pb.ListEntriesResponse:
        """Lists an agent's entries, newest first."""
        async with self._entries.use(self._agents.enabled_config(request.agent_id)) as memory:
            call = entry_calls.list_call(request)
            work = memory.page(call.after, call.size, call.categories)
            return entry_conversion.listed(await self._first.in_time(work, context))

    async def SuggestCapture(self, request: pb.SuggestCaptureRequest, context: Context) -> pb.SuggestCaptureResponse:
        """Tells which of a turn's messages would be worth storing."""
        config = self._entries.config_of(self._agents.enabled_config(request.agent_id))
        messages = entry_calls.captured_messages(request)
        work = asyncio.to_thread(suggest, messages, config.capture_max_chars)
        judged = await self._first.in_time(work, context)
        return entry_conversion.captured(*judged, auto_capture=config.auto_capture)

    async def RecallBlock(self, request: pb.RecallBlockRequest, context: Context) -> pb.RecallBlockResponse:
        """Recalls what concerns a prompt, as a block to put before it."""
        config = self._agents.enabled_config(request.agent_id)
        prompt = entry_calls.prompt_of(request)
        if not self._entries.config_of(config).auto_recall:
            return pb.RecallBlockResponse(empty_reason=pb.RECALL_BLOCK_EMPTY_REASON_OFF)
        if len(prompt) < LEAST_PROMPT_CHARS:
            return pb.RecallBlockResponse(empty_reason=pb.RECALL_BLOCK_EMPTY_REASON_PROMPT_TOO_SHORT)
        async with self._entries.use(config) as memory:
            work = memory.for_prompt(prompt, self._first.deadline(context))
            return entry_conversion.block(await self._first.in_time(work, context))


def entry_service(
    agents: AgentDirectory, entries: EntryDirectory, memory_service: MemoryService, *, checked: bool
) -> ExtensionService:
    """Return the EntryService for a server to add; its health is only kept if it is `checked`."""
    servicer = EntryService(agents, entries, memory_service)
    health = EntryHealth(agents, entries) if checked else None
    return ExtensionService(ENTRY_SERVICE, servicer, add_EntryServiceServicer_to_server, health)
