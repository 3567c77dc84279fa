"""Calls of MemoryService on behalf of an MCP session, and the conversion of their errors to errors of MCP."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from memoryd_server.access import DEFAULT_AGENT
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import ContentChanged, InvalidRequest, MemorydError
from memoryd_server.rpc import LocalCaller, LocalCalls

McpContext: TypeAlias = ServerRequestContext[Any, Any]

_MOST_AGENTS = 1_000
_MOST_MESSAGE_CHARS = 1_500
_ADVICE: Mapping[str, str] = {
    "TOKEN_MISSING": "Configure this MCP server with a token of memoryd.",
    "TOKEN_INVALID": "Configure this MCP server with a current token of memoryd.",
    "SCOPE_MISSING": "Configure this MCP server with a token that has it.",
    "PATH_NOT_ALLOWED": "Use a path as memory_search returns it.",
    "FILE_NOT_FOUND": "Use a path as memory_search returns it.",
    "DEADLINE_TOO_SHORT": "Try again.",
    "REVISION_NOT_REACHED": "Try again.",
}
# Errors that the caller can correct; the others are failures of the server.
_CALLER_ERRORS = frozenset(
    {
        "INVALID_REQUEST",
        "CURSOR_MALFORMED",
        "PATH_NOT_ALLOWED",
        "FILE_NOT_FOUND",
        "AGENT_FORBIDDEN",
        "SCOPE_MISSING",
        "AGENT_NOT_FOUND",
        "TOKEN_MISSING",
        "TOKEN_INVALID",
    }
)


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """Who opened an MCP session, and the agent whose memory it uses; empty for the default agent of the caller."""

    caller: LocalCaller
    agent_id: str = ""


def owner_of(context: McpContext) -> SessionOwner:
    """Return the owner of a request: of its HTTP request, or of the stream on which it arrived."""
    if context.request is None:
        owner: SessionOwner = context.lifespan_context.owner
        return SessionOwner(replace(owner.caller, request_id=uuid4().hex), owner.agent_id)
    state = context.request.scope["state"]
    return SessionOwner(state["memoryd_caller"], state["memoryd_agent"])


class FilePage(NamedTuple):
    """Memory files, as ListFiles returns them, and the token of the next page; empty on the last page."""

    files: list[dict[str, Any]]
    next_token: str


class McpCalls:
    """Calls methods of MemoryService by name, each in a task of its own.

    The MCP package cancels again and again until a cancelled block has ended. A call is cancelled once, as gRPC does,
    so that its clean-up is not interrupted.
    """

    def __init__(self, calls: LocalCalls, tasks: BackgroundTasks) -> None:
        self.local = calls
        self._tasks = tasks

    async def call(self, method: str, request: Mapping[str, Any], owner: SessionOwner) -> dict[str, Any]:
        """Call a unary method for the owner's agent, unless the request names another one.

        Raises:
            MemorydError: as `LocalCalls.call`.
        """
        named = dict(request) if method == "ListAgents" else {"agentId": owner.agent_id, **request}
        task = self._tasks.spawn("MCP call", self.local.call(method, named, owner.caller), expected=(MemorydError,))
        try:
            return await task
        finally:
            task.cancel()

    async def with_agent(self, owner: SessionOwner) -> SessionOwner:
        """Return the owner with the ID of the agent that its calls use.

        Raises:
            MemorydError: as ListAgents.
        """
        if owner.agent_id:
            return SessionOwner(owner.caller, owner.agent_id.strip().lower())
        return SessionOwner(owner.caller, _default_agent(await self._agents(owner)))

    async def may_edit(self, owner: SessionOwner) -> bool:
        """Return whether the owner may edit the memory files of the agent that its calls use.

        Raises:
            MemorydError: as ListAgents.
        """
        agents = await self._agents(owner)
        agent_id = owner.agent_id.strip().lower() or _default_agent(agents)
        return bool(agents.get(agent_id, {}).get("mayEdit"))

    async def _agents(self, owner: SessionOwner) -> dict[str, dict[str, Any]]:
        """Return the agents that the owner may use, by their IDs."""
        agents: dict[str, dict[str, Any]] = {}
        token = ""
        while True:
            response = await self.call("ListAgents", {"pageSize": _MOST_AGENTS, "pageToken": token}, owner)
            agents |= {agent["agentId"]: agent for agent in response.get("agents", ())}
            token = response.get("nextPageToken", "")
            if not token:
                return agents

    async def files(self, owner: SessionOwner, page_token: str, page_size: int) -> FilePage:
        """Return a page of the agent's Markdown files that exist.

        Raises:
            MemorydError: as ListFiles.
        """
        request = {"pageSize": page_size, "pageToken": page_token, "sources": ["SOURCE_MEMORY"]}
        response = await self.call("ListFiles", request, owner)
        listed = [file for file in response.get("files", ()) if file.get("state") != "FILE_STATE_GONE"]
        return FilePage(listed, response.get("nextPageToken", ""))


def _default_agent(agents: Mapping[str, Mapping[str, Any]]) -> str:
    default = next((agent_id for agent_id, agent in agents.items() if agent.get("default")), DEFAULT_AGENT)
    return DEFAULT_AGENT if DEFAULT_AGENT in agents else default


def explain(error: MemorydError) -> str:
    """Return what failed and what to do, for a model or a person."""
    message = error.message if len(error.message) <= _MOST_MESSAGE_CHARS else f"{error.message[:_MOST_MESSAGE_CHARS]}…"
    advice = _ADVICE.get(error.reason, "")
    if isinstance(error, ContentChanged) and error.metadata["content_sha256"]:
        advice = f"Its contentSha256 is now {error.metadata['content_sha256']}."
    if error.retry_after_seconds is not None:
        advice = f"Try again in {max(0.1, error.retry_after_seconds):.1f} s."
    return f"{message.rstrip('.')}. {advice}".strip() if advice else message


def protocol_error(error: MemorydError) -> MCPError:
    """Return an error of a request that is no tool call."""
    data: dict[str, Any] = {"reason": error.reason}
    if error.retry_after_seconds is not None:
        data["retryAfterSeconds"] = error.retry_after_seconds
    if isinstance(error, InvalidRequest):
        data["fields"] = [violation.field for violation in error.violations]
    code = INVALID_PARAMS if error.reason in _CALLER_ERRORS else INTERNAL_ERROR
    return MCPError(code, explain(error), data)
