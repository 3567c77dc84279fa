"""The agent's side of memory: what its system prompt says of recalling, and the tools it recalls with. Pure."""

from memoryd_server.recall.prompt import recall_prompt
from memoryd_server.recall.tools import TOOL_NAMES, ToolSchema, tool_schemas

__all__ = ["TOOL_NAMES", "ToolSchema", "recall_prompt", "tool_schemas"]
