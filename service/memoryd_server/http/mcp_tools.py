"""McpTools: answers tools/list, and tools/call with a call of MemoryService."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least

from memoryd_server.errors import InvalidRequest, MemorydError
from memoryd_server.http.mcp_arguments import TOOLS, ToolDefinition, make_request, name_arguments
from memoryd_server.http.mcp_calls import McpCalls, McpContext, SessionOwner, owner_of
from memoryd_server.http.mcp_progress import BuildFollower, is_incomplete
from memoryd_server.http.mcp_results import make_error, make_result

_MOST_SHOWN_CHARS = 64
_EDIT = "MemoryWrite"
_FIRST_STRUCTURED = "2025-06-18"
_WAITING_TOOLS = frozenset({"memory_search", "memory_recall"})


class McpTools:
    """Answers tools/list and tools/call."""

    def __init__(self, calls: McpCalls, follower: BuildFollower) -> None:
        self._calls = calls
        self._follower = follower

    async def list(self, context: McpContext, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Return the tools that the caller may use: by the scopes of its token, and if edits are enabled.

        Raises:
            MemorydError: the caller has no valid token.
        """
        owner = owner_of(context)
        methods = (definition.method for definition in TOOLS.values())
        permitted = await self._calls.local.permitted(methods, owner.caller)
        if _EDIT in permitted and not await self._calls.may_edit(owner):
            permitted -= {_EDIT}
        return types.ListToolsResult(
            tools=[definition.tool for definition in TOOLS.values() if definition.method in permitted]
        )

    async def call(self, context: McpContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool. An error of the call is a result, so that the model sees it.

        Raises:
            MCPError: there is no such tool.
        """
        definition = TOOLS.get(params.name)
        if definition is None:
            shown = params.name[:_MOST_SHOWN_CHARS]
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {shown!r}; the tools are {', '.join(TOOLS)}")
        result = await self._result(definition, params.arguments or {}, context)
        if not is_version_at_least(context.protocol_version, _FIRST_STRUCTURED):
            result.structured_content = None
        return result

    async def _result(
        self, definition: ToolDefinition, arguments: Mapping[str, Any], context: McpContext
    ) -> types.CallToolResult:
        try:
            request = make_request(definition, arguments)
            return make_result(definition.tool.name, await self._answer(definition, request, context))
        except InvalidRequest as error:
            return make_error(name_arguments(definition, error))
        except MemorydError as error:
            return make_error(error)

    async def _answer(self, definition: ToolDefinition, request: dict[str, Any], context: McpContext) -> dict[str, Any]:
        owner, name = owner_of(context), definition.tool.name
        if name == "memory_search":
            # A result has its citation in a field of its own.
            request["citations"] = "CITATION_MODE_OFF"
        response = await self._calls.call(definition.method, request, owner)
        if name in _WAITING_TOOLS and is_incomplete(response) and await self._wait(context, owner):
            response = await self._calls.call(definition.method, request, owner)
        return response

    async def _wait(self, context: McpContext, owner: SessionOwner) -> bool:
        """Wait while the index is built, if the client wants to see the progress. Return whether it was awaited."""
        if not context.meta or "progress_token" not in context.meta:
            return False
        await self._follower.follow(context.session.report_progress, owner)
        return True
