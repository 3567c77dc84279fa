"""The two tools that a gateway hands to its model. Their schemas are made from the contract by `make protos`."""

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
