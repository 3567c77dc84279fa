"""The resources of the MCP server, which are the memory files of an agent, and the prompt `recall`.

resources/list and resources/templates/list show the files of the session's agent. resources/read reads a file of any
agent that the caller may use.
"""

from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.http.mcp_calls import McpCalls, McpContext, SessionOwner, owner_of
from memoryd_server.http.mcp_subscriptions import McpSubscriptions
from memoryd_server.http.mcp_uris import make_uri, read_uri

MOST_READ_BYTES = 1024 * 1024
"""The longest text of a file that resources/read returns; a longer file is cut."""

PAGE_SIZE = 100
RECALL_PROMPT = "recall"

_MARKDOWN = "text/markdown"
# A file of many short lines takes several calls.
_PIECE_LINES = 2_000
_MOST_CALLS = 64
_MOST_SHOWN_CHARS = 64


@dataclass(slots=True)
class _Reading:
    """The text of a file as far as it was read. `next_line` is the first line that was not read; 0 at the end."""

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    calls: int = 0
    next_line: int = 1
    total_lines: int = 0

    def add(self, response: dict[str, Any]) -> None:
        """Add the lines of a response, or only the first of them if the text would be too long."""
        self.calls += 1
        self.total_lines = response.get("totalLines", 0)
        self.next_line = response.get("nextStartLine", 0)
        start_line = response.get("startLine", 0)
        if response.get("endLine", 0) < start_line:
            return
        text = response.get("text", "")
        size = len(text.encode()) + 1
        if self.size + size > MOST_READ_BYTES:
            # A line that does not fit whole is left out.
            room = text.encode()[: MOST_READ_BYTES - self.size].decode(errors="ignore")
            text, fits, _ = room.rpartition("\n")
            self.next_line = start_line + (text.count("\n") + 1 if fits else 0)
            self.size = MOST_READ_BYTES
            if not fits:
                return
        self.pieces.append(text)
        self.size = min(MOST_READ_BYTES, self.size + size)

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be read."""
        return not self.next_line or self.size >= MOST_READ_BYTES or self.calls >= _MOST_CALLS

    def text(self) -> str:
        """Return the text, with a last line that says where it was cut."""
        text = "\n".join(self.pieces)
        if not self.next_line:
            return text
        note = f"[memoryd: cut before line {self.next_line} of {self.total_lines}; memory_get reads the other lines]"
        return f"{text}\n{note}"


class McpResources:
    """Answers resources/list, resources/templates/list, resources/read, prompts/list and prompts/get."""

    def __init__(self, calls: McpCalls, subscriptions: McpSubscriptions) -> None:
        self._calls = calls
        self._subscriptions = subscriptions

    async def list(self, context: McpContext, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        """Return a page of the agent's Markdown files.

        Raises:
            MemorydError: the cursor is not one of this list, or as ListFiles.
        """
        owner = await self._calls.with_agent(owner_of(context))
        cursor = (params.cursor if params is not None else None) or ""
        try:
            page = await self._calls.files(owner, cursor, PAGE_SIZE)
        except InvalidRequest as error:
            violations = [FieldViolation("cursor", each.description) for each in error.violations]
            raise InvalidRequest(violations) from None
        await self._subscriptions.follow_list(context)
        listed = [_resource(owner, file) for file in page.files]
        return types.ListResourcesResult(resources=listed, next_cursor=page.next_token or None)

    async def templates(
        self, context: McpContext, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return the form of the URIs of the agent's files."""
        owner = await self._calls.with_agent(owner_of(context))
        template = types.ResourceTemplate(
            name="memory-file",
            title="Memory file",
            uri_template=make_uri(owner.agent_id, "") + "{+path}",
            description="A Markdown file of the memory, by its path as in search results.",
            mime_type=_MARKDOWN,
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, context: McpContext, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """Return the text of a file.

        If the file changes while it is read, the text can contain lines of both versions.

        Raises:
            MemorydError: the URI is not valid, or as MemoryGet.
        """
        name, owner = read_uri(params.uri), owner_of(context)
        reading = _Reading()
        while not reading.is_done:
            request: dict[str, Any] = {"path": name.path, "startLine": reading.next_line, "lineCount": _PIECE_LINES}
            if name.agent_id:
                request["agentId"] = name.agent_id
            reading.add(await self._calls.call("MemoryGet", request, owner))
        contents = types.TextResourceContents(uri=params.uri, mime_type=_MARKDOWN, text=reading.text())
        return types.ReadResourceResult(contents=[contents])

    async def prompts(
        self, _context: McpContext, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Return the prompt."""
        text = types.PromptArgument(name="text", description="The message or the task.", required=True)
        prompt = types.Prompt(
            name=RECALL_PROMPT,
            title="Recall",
            description="What the memory contains about a message, to read before it is answered.",
            arguments=[text],
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def prompt(self, context: McpContext, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """Return the block of MemoryRecall as a message of the user.

        Raises:
            MCPError: there is no such prompt.
            MemorydError: the argument is missing, or as MemoryRecall.
        """
        if params.name != RECALL_PROMPT:
            shown = params.name[:_MOST_SHOWN_CHARS]
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt {shown!r}; the only prompt is {RECALL_PROMPT}")
        text = (params.arguments or {}).get("text", "")
        if not text.strip():
            raise InvalidRequest([FieldViolation("text", "must not be blank")])
        response = await self._calls.call("MemoryRecall", {"text": text}, owner_of(context))
        block = response.get("block") or f"Nothing to recall: {response.get('silentExplanation', '')}"
        message = types.PromptMessage(role="user", content=types.TextContent(text=block))
        return types.GetPromptResult(messages=[message])


def _resource(owner: SessionOwner, file: dict[str, Any]) -> types.Resource:
    modified = types.Annotations(last_modified=file["modifiedTime"]) if "modifiedTime" in file else None
    return types.Resource(
        uri=make_uri(owner.agent_id, file["path"]),
        name=file["path"],
        mime_type=_MARKDOWN,
        size=int(file.get("sizeBytes", 0)),
        annotations=modified,
    )
