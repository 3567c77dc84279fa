"""The memory section of a system prompt, and the two tools that a gateway gives to its model.

The section instructs the agent to search its memory before it answers, and to write to it. `make protos` generates the
tools' schemas from the contract.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

SEARCH: Final = "memory_search"
GET: Final = "memory_get"
TOOL_NAMES: Final = (SEARCH, GET)


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool: its name, its description, and its parameters as JSON Schema."""

    name: str
    description: str
    parameters_json: str


_TOOLS: Mapping[str, Mapping[str, Any]] = json.loads(
    files(__package__).joinpath("tools.json").read_text(encoding="utf-8")
)


def tool_schemas(names: Collection[str]) -> tuple[ToolSchema, ...]:
    """Return the schemas of the memory tools among `names`, the search first."""
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
    "When you are asked to remember something, write it down immediately, in {where}. What you do not write down is "
    "lost when the session ends."
)
_LOG: Final = "today's log, memory/YYYY-MM-DD.md"
_LOG_OR_LONG_TERM: Final = f"{_LOG}, or in MEMORY.md if it should be kept permanently"
_CITE: Final = "Name the source as path#line if that helps to check what you say."
_DO_NOT_CITE: Final = "Citations are off: do not name files or line numbers in your replies unless you are asked to."


def recall_prompt(tools: Collection[str], *, cites: bool, main_session: bool) -> str:
    """Return the section for an agent with `tools`; empty if neither memory tool is among them.

    `cites` is whether replies may name paths. `MEMORY.md` is mentioned only in the private main session. The text has
    no date, so that it is the same every day and a provider's prompt cache can keep it.
    """
    if SEARCH in tools:
        how = _SEARCH_AND_GET if GET in tools else _SEARCH_ONLY
    elif GET in tools:
        how = _GET_ONLY
    else:
        return ""
    write = _WRITE.format(where=_LOG_OR_LONG_TERM if main_session else _LOG)
    return "\n".join((_TITLE, f"{how} {_HONEST}", write, _CITE if cites else _DO_NOT_CITE))
