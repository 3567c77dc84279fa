"""The memory tool of Anthropic's API (`memory_20250818`), executed by a memoryd daemon.

    with connect() as client:
        tool = MemoryTool(client)
        response = anthropic.messages.create(..., tools=[MemoryTool.DEFINITION])
        for block in response.content:
            if block.type == "tool_use" and block.name == "memory":
                text = tool.execute(block.input)

The directory `/memories` of the tool is the folder `memory/` of an agent. The README of this package describes the
names of files, and which errors are texts.
"""

from collections.abc import Callable, Mapping
from functools import partial

from memoryd._memory_commands import run
from memoryd._memory_files import Call
from memoryd.client import AsyncMemorydClient, MemorydClient
from memoryd.failure import MemorydError

__all__ = ["AsyncMemoryTool", "MemoryTool"]


class MemoryTool:
    """Executes calls of the memory tool with the memory of one agent. It can be shared by threads, like its client.

    `DEFINITION` is the element of `tools` in a request to Anthropic's API.
    """

    DEFINITION: Mapping[str, str] = {"type": "memory_20250818", "name": "memory"}

    def __init__(self, client: MemorydClient, agent_id: str = "") -> None:
        self._client = client
        self._agent_id = agent_id

    def execute(self, tool_input: Mapping[str, object]) -> str:
        """Execute a call of the tool, and return its result text.

        `tool_input` is the `input` of a `tool_use` block. If the call fails for a reason that the model can change, for
        example because a file does not exist, the result is the text of the error.

        Raises:
            MemorydError: the call fails for another reason, for example because edits are disabled.
        """
        steps = run(tool_input, self._agent_id)
        proceed: Callable[[], Call] = partial(next, steps)
        while True:
            try:
                call = proceed()
            except StopIteration as end:
                return str(end.value)
            try:
                response = getattr(self._client, call.method)(call.request)
            except MemorydError as error:
                proceed = partial(steps.throw, error)
            else:
                proceed = partial(steps.send, response)


class AsyncMemoryTool:
    """The asyncio form of `MemoryTool`: `execute` is awaited."""

    DEFINITION = MemoryTool.DEFINITION

    def __init__(self, client: AsyncMemorydClient, agent_id: str = "") -> None:
        self._client = client
        self._agent_id = agent_id

    async def execute(self, tool_input: Mapping[str, object]) -> str:
        """Execute a call of the tool, and return its result text; see `MemoryTool.execute`."""
        steps = run(tool_input, self._agent_id)
        proceed: Callable[[], Call] = partial(next, steps)
        while True:
            try:
                call = proceed()
            except StopIteration as end:
                return str(end.value)
            try:
                response = await getattr(self._client, call.method)(call.request)
            except MemorydError as error:
                proceed = partial(steps.throw, error)
            else:
                proceed = partial(steps.send, response)
