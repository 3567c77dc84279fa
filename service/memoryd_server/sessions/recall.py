"""Recall prompt and tool schemas; writes docs/recall.md.

The section of a system prompt that tells an agent to look into its memory before it answers, and to write it.

The two tools that a gateway hands to its model. Their schemas are made from the contract by `make protos`.

Writes docs/recall.md: `python -m memoryd_server.recall.document`. For gateways that do not ask for it by RPC.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

SEARCH: Final = "memory_search"
GET: Final = "memory_get"
TOOL_NAMES: Final = (SEARCH, GET)


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool: its name, what it does, and its parameters as JSON Schema."""

    name: str
    description: str
    parameters_json: str


_TOOLS: Mapping[str, Mapping[str, Any]] = json.loads(
    files(__package__).joinpath("tools.json").read_text(encoding="utf-8")
)


def tool_schemas(names: Collection[str]) -> tuple[ToolSchema, ...]:
    """The schemas of the memory tools among `names`, the search first."""
    return tuple(
        ToolSchema(name, _TOOLS[name]["description"], json.dumps(_TOOLS[name]["parameters"], ensure_ascii=False))
        for name in TOOL_NAMES
        if name in names
    )


_TITLE: Final = "## Memory"
_WHEN: Final = "Before you answer about earlier work, decisions, dates, people, preferences or open tasks"
_SEARCH_AND_GET: Final = (
    f"{_WHEN}, call {SEARCH} with a question in plain words. Then read the lines that you need with {GET}, and no more "
    "than those."
)
_SEARCH_ONLY: Final = f"{_WHEN}, call {SEARCH} with a question in plain words, and answer from what it finds."
_GET_ONLY: Final = f"{_WHEN} that a memory file or note has been named for, read the lines that you need with {GET}."
_HONEST: Final = "If you find little or nothing, say that you looked; do not fill the gap with a guess."
_WRITE: Final = (
    "When you are asked to remember something, write it down at once, in {where}. What is only said is gone when the "
    "session ends."
)
_LOG: Final = "today's log, memory/YYYY-MM-DD.md"
_LOG_OR_LONG_TERM: Final = f"{_LOG}, or in MEMORY.md if it should hold for good"
_CITE: Final = "Name the source as path#line where that helps to check what you say."
_DO_NOT_CITE: Final = "Citations are off: do not name files or line numbers in your replies unless you are asked to."


def recall_prompt(tools: Collection[str], *, cites: bool, main_session: bool) -> str:
    """The section for an agent that is given `tools`; empty where neither memory tool is among them.

    `cites` is whether replies may name paths. `MEMORY.md` is spoken of in the private main session alone. The text
    holds no date, so that it stays the same from day to day and a provider's prompt cache can keep it.
    """
    if SEARCH in tools:
        how = _SEARCH_AND_GET if GET in tools else _SEARCH_ONLY
    elif GET in tools:
        how = _GET_ONLY
    else:
        return ""
    write = _WRITE.format(where=_LOG_OR_LONG_TERM if main_session else _LOG)
    return "\n".join((_TITLE, f"{how} {_HONEST}", write, _CITE if cites else _DO_NOT_CITE))


_HEAD = """\
# Recall

What an agent's system prompt says of its memory, and the tools that it recalls with. `SessionContext` with
`include_recall_prompt` gives the same, fitted to the session ([how](sessions.md#the-recall-section)); this page is for
gateways that keep their prompts themselves. It is made by `make docs`.

The section belongs into full prompts only, and only where the model is given the tools. `MEMORY.md` is spoken of in the
agent's private main session alone.
"""

_TOOLS_SECTION = """\
## The tools

Made from the contract: the arguments that a model gives are the request in proto3 JSON, to which the gateway adds
`agentId` and, for a search, `sessionKey`.
"""


def document() -> str:
    """The whole page."""
    return "\n".join((_HEAD, *_sections(), _TOOLS_SECTION, *_tools()))


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
