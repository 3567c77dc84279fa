"""Writes docs/recall.md: `python -m memoryd_server.recall.document`. For gateways that do not ask for it by RPC."""

import json
import sys
from collections.abc import Iterator

from memoryd_server.recall.prompt import recall_prompt
from memoryd_server.recall.tools import GET, SEARCH, TOOL_NAMES, tool_schemas

_HEAD = """\
# Recall

What an agent's system prompt says of its memory, and the tools that it recalls with. `SessionContext` with
`include_recall_prompt` gives the same, fitted to the session ([how](sessions.md#the-recall-section)); this page is for
gateways that keep their prompts themselves. It is made by `make docs`.

The section belongs into full prompts only, and only where the model is given the tools. `MEMORY.md` is spoken of in the
agent's private main session alone.
"""
_TOOLS = """\
## The tools

Made from the contract: the arguments that a model gives are the request in proto3 JSON, to which the gateway adds
`agentId` and, for a search, `sessionKey`.
"""


def document() -> str:
    """The whole page."""
    return "\n".join((_HEAD, *_sections(), _TOOLS, *_tools()))


def _sections() -> Iterator[str]:
    for title, tools, cites, main_session in (
        ("Private main session, citations on", TOOL_NAMES, True, True),
        ("Any other session, citations off", TOOL_NAMES, False, False),
        ("The search alone", (SEARCH,), True, True),
        ("Reading alone", (GET,), True, True),
    ):
        yield f"## {title}\n"
        yield f"```markdown\n{recall_prompt(tools, cites=cites, main_session=main_session)}\n```\n"


def _tools() -> Iterator[str]:
    for tool in tool_schemas(TOOL_NAMES):
        parameters = json.dumps(json.loads(tool.parameters_json), indent=2, ensure_ascii=False)
        yield f"### `{tool.name}`\n\n{tool.description}\n\n```json\n{parameters}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(document())
