"""Execute calls of the memory tool of Anthropic's API with an agent's memory. The client finds the daemon by itself.

Each line of standard input is a `tool_use` block of a response, as JSON. Each line of the output is the `tool_result`
block for the next request. The daemon needs the setting `memoryd.writes: "edit"`.

echo '{"id": "toolu_1", "input": {"command": "view", "path": "/memories"}}' | python execute_calls.py [AGENT]
"""

import json
import sys
from typing import Any

from memoryd.client import MemorydError, connect
from memoryd.memory_tool import MemoryTool


def result_of(tool: MemoryTool, block: dict[str, Any]) -> dict[str, Any]:
    """Return the `tool_result` block for a `tool_use` block.

    A failure that the model cannot correct is marked as an error, so that the model stops using its memory.
    """
    result = {"type": "tool_result", "tool_use_id": block["id"]}
    try:
        return result | {"content": tool.execute(block["input"])}
    except MemorydError as error:
        print(f"memoryd: {error}", file=sys.stderr)
        return result | {"content": f"The memory is not available: {error.message}", "is_error": True}


def main() -> None:
    """Execute the calls on standard input."""
    agent_id = sys.argv[1] if len(sys.argv) > 1 else ""
    with connect() as client:
        tool = MemoryTool(client, agent_id)
        for line in sys.stdin:
            print(json.dumps(result_of(tool, json.loads(line)), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
