"""MemoryService: read the request, call one method of the agent, convert its result."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from google.protobuf.message import Message

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceServicer
from memoryd_server.access import Grant
from memoryd_server.agent import Agents, Deadline, PageRequest, ServiceInfo
from memoryd_server.rpc import edit_messages, requests, responses, session_messages
from memoryd_server.rpc.status_response import shared_apart, status_response
from memoryd_server.rpc.wire import Context, fitting, make_page_token, read_page_token

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


class MemoryService(MemoryServiceServicer):
    """Answers every RPC of the contract.

    `grant_of` returns what a caller may use; the interceptors have checked that the request's agent is among it.
    `ceiling_seconds` is the longest that a call takes, whatever its deadline; it may be set while calls run.
    """

    def __init__(
        self, agents: Agents, service: ServiceInfo, grant_of: Callable[[Context], Grant], *, ceiling_seconds: float
    ) -> None:
        self.ceiling_seconds = ceiling_seconds
        self._agents = agents
        self._service = service
        self._grant_of = grant_of

    async def MemorySearch(self, request: pb.MemorySearchRequest, context: Context) -> pb.MemorySearchResponse:
        """Return the parts of memory that answer a query."""
        async with self._agents.use(request.agent_id) as agent:
            result = await agent.search(requests.search_request(request), self.deadline(context))
            return responses.search_response(result, explain=request.explain)

    async def ExplainMiss(self, request: pb.ExplainMissRequest, context: Context) -> pb.ExplainMissResponse:
        """Return why a search does not find a file or a line."""
        async with self._agents.use(request.agent_id) as agent:
            explanation = await agent.explain_miss(requests.miss_request(request), self.deadline(context))
            return responses.miss_response(explanation)

    async def MemoryRecall(self, request: pb.MemoryRecallRequest, context: Context) -> pb.MemoryRecallResponse:
        """Return what the memory contains about a turn, as a block to insert before it."""
        async with self._agents.use(request.agent_id) as agent:
            result = await agent.recall(requests.recall_request(request), self.deadline(context))
            return responses.recall_response(result, explain=request.explain)

    async def MemoryGet(self, request: pb.MemoryGetRequest, context: Context) -> pb.MemoryGetResponse:
        """Return a line range of a memory file."""
        async with self._agents.use(request.agent_id) as agent:
            return responses.get_response(await agent.read(requests.read_request(request), self.deadline(context)))

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        """Return how an agent's memory is doing."""
        async with self._agents.use(request.agent_id) as agent:
            status = await agent.status(self.deadline(context), probe=request.probe)
            response = status_response(status, self._service)
            return shared_apart(response) if self._grant_of(context).limited else response

    async def Sync(self, request: pb.SyncRequest, context: Context) -> AsyncIterator[pb.SyncResponse]:
        """Start or join a sync run, and follow it to its end."""
        async with (
            self._agents.follow(request.agent_id) as agent,
            aclosing(agent.sync(requests.sync_request(request))) as events,
        ):
            async for event in events:
                yield responses.sync_response(event)

    async def WatchIndex(self, request: pb.WatchIndexRequest, context: Context) -> AsyncIterator[pb.WatchIndexResponse]:
        """Follow an agent's index without starting anything."""
        async with (
            self._agents.follow(request.agent_id) as agent,
            aclosing(agent.watch(requests.watch_request(request))) as updates,
        ):
            async for update in updates:
                yield responses.watch_response(agent.config.agent_id, update)

    async def FlushDecision(self, request: pb.FlushDecisionRequest, context: Context) -> pb.FlushDecisionResponse:
        """Return whether lasting notes should be written now."""
        config = self._agents.memory_config(request.agent_id)
        decision = await self._agents.flush_decision(config.agent_id, session_messages.flush_request(request))
        return session_messages.flush_response(decision, config.agent_id)

    async def MemoryAppend(self, request: pb.MemoryAppendRequest, context: Context) -> pb.MemoryAppendResponse:
        """Append text to a memory file, once per key."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            receipt = await agent.append(requests.append_request(request), self.deadline(context))
            return responses.append_response(receipt)

    async def MemoryWrite(self, request: pb.MemoryWriteRequest, context: Context) -> pb.MemoryWriteResponse:
        """Create, replace, edit or delete a memory file, if it has the content that the caller has seen."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            write = edit_messages.write_request(request, self._grant_of(context).caller)
            return edit_messages.write_response(await agent.edit(write, self.deadline(context)))

    async def MemoryMove(self, request: pb.MemoryMoveRequest, context: Context) -> pb.MemoryMoveResponse:
        """Rename a memory file, if it has the content that the caller has seen."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            move = edit_messages.move_request(request, self._grant_of(context).caller)
            return edit_messages.move_response(await agent.edit(move, self.deadline(context)))

    async def MemoryHistory(self, request: pb.MemoryHistoryRequest, context: Context) -> pb.MemoryHistoryResponse:
        """Return a page of the writes to a memory file, or to all of them."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            page = await agent.read_history(edit_messages.history_request(request), self.deadline(context))
            return edit_messages.history_response(page)

    async def MemoryRestore(self, request: pb.MemoryRestoreRequest, context: Context) -> pb.MemoryRestoreResponse:
        """Restore the content that a write replaced or deleted."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            restore = edit_messages.restore_request(request, self._grant_of(context).caller)
            return edit_messages.restore_response(await agent.edit(restore, self.deadline(context)))

    async def MemoryForget(self, request: pb.MemoryForgetRequest, context: Context) -> pb.MemoryForgetResponse:
        """Remove what is named from every derived store."""
        async with self._agents.use(request.agent_id) as agent:
            receipt = await agent.forget(requests.forget_request(request), self.deadline(context))
            return responses.forget_response(receipt)

    async def SessionContext(self, request: pb.SessionContextRequest, context: Context) -> pb.SessionContextResponse:
        """Return the memory files that a session loads at its start, with their text."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            loaded = await agent.session_context(session_messages.context_request(request), self.deadline(context))
            return session_messages.context_response(loaded)

    async def SessionArchive(self, request: pb.SessionArchiveRequest, context: Context) -> pb.SessionArchiveResponse:
        """Write the last messages of a transcript to a memory file."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            receipt = await agent.archive(session_messages.archive_request(request), self.deadline(context))
            return session_messages.archive_response(receipt)

    async def SessionAppend(self, request: pb.SessionAppendRequest, context: Context) -> pb.SessionAppendResponse:
        """Append records to the transcript of a session."""
        async with self._agents.use_workspace(request.agent_id) as agent:
            receipt = await agent.append_records(session_messages.append_request(request), self.deadline(context))
            return session_messages.append_response(receipt)

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:
        """Return a page of the configured agents that the caller may use."""
        page, grant = requests.page_request(request), self._grant_of(context)
        page.check()
        usable = [agent_id for agent_id in self._agents.configs() if grant.allows(agent_id)]
        shown, token = cut_page(
            "agents",
            usable,
            page,
            lambda agent_id: agent_id,
            lambda agent_id: responses.agent(self._agents.summary(agent_id), grant),
        )
        return pb.ListAgentsResponse(agents=shown, next_page_token=token)

    async def ListFiles(self, request: pb.ListFilesRequest, context: Context) -> pb.ListFilesResponse:
        """Return a page of an agent's memory files."""
        async with self._agents.use(request.agent_id) as agent:
            listed = requests.list_files_request(request)
            files = await agent.files(listed, self.deadline(context))
            shown, token = cut_page("files", files, listed.page, lambda file: file.path, responses.file)
            return pb.ListFilesResponse(files=shown, next_page_token=token)

    def deadline(self, context: Context) -> Deadline:
        """Return until when a call may work: shortly before the caller's deadline, and within the ceiling."""
        return Deadline.after(context.time_remaining(), self.ceiling_seconds)


def cut_page(
    kind: str, items: Sequence[_T], page: PageRequest, key: Callable[[_T], str], message: Callable[[_T], _M]
) -> tuple[list[_M], str]:
    """Return the messages of a page, and the token of the next one; empty if there is none.

    `items` are sorted by `key`. A page begins after the item that its token names, so that no item is skipped when the
    list changes. Costs in proportion to the page, not to the list.
    """
    after = read_page_token(kind, page.page_token)
    start = bisect_right(items, after, key=key) if after else 0
    shown = fitting(items[start : start + page.size], message)
    end = start + len(shown)
    return shown, make_page_token(kind, key(items[end - 1])) if len(items) > end else ""
