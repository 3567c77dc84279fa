"""Run the test cases of all clients with the Python client, blocking or with `--asyncio`.

tests/clients/README.md describes the protocol.
"""

import asyncio
import inspect
import json
import sys
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from memoryd import messages
from memoryd.client import AsyncMemorydClient, MemorydError, Tls, connect, connect_async
from memoryd.memory_tool import AsyncMemoryTool, MemoryTool

# The request message of each method, and its attribute of the client.
METHODS = {
    "search": ("MemorySearchRequest", "search"),
    "explain_miss": ("ExplainMissRequest", "explain_miss"),
    "recall": ("MemoryRecallRequest", "recall"),
    "get": ("MemoryGetRequest", "get"),
    "status": ("StatusRequest", "status"),
    "flush_decision": ("FlushDecisionRequest", "flush_decision"),
    "append": ("MemoryAppendRequest", "append"),
    "write": ("MemoryWriteRequest", "write"),
    "move": ("MemoryMoveRequest", "move"),
    "history": ("MemoryHistoryRequest", "history"),
    "restore": ("MemoryRestoreRequest", "restore"),
    "forget": ("MemoryForgetRequest", "forget"),
    "session_context": ("SessionContextRequest", "session_context"),
    "session_archive": ("SessionArchiveRequest", "session_archive"),
    "session_append": ("SessionAppendRequest", "session_append"),
    "list_agents": ("ListAgentsRequest", "list_agents"),
    "list_files": ("ListFilesRequest", "list_files"),
    "sync": ("SyncRequest", "sync"),
    "watch": ("WatchIndexRequest", "watch"),
    "remember": ("RememberRequest", "entries.remember"),
    "recall_entries": ("RecallRequest", "entries.recall"),
    "forget_entry": ("ForgetRequest", "entries.forget"),
    "list_entries": ("ListEntriesRequest", "entries.list"),
    "suggest_capture": ("SuggestCaptureRequest", "entries.suggest_capture"),
    "recall_block": ("RecallBlockRequest", "entries.recall_block"),
}


async def settled(value: Any) -> Any:
    """Return the result of a method of either client; await it if necessary."""
    return await value if inspect.isawaitable(value) else value


class Runner:
    """Executes requests with one client at a time, which `connect` creates, and with its streams."""

    def __init__(self, connect: Any) -> None:
        self.connect = connect
        self.client: Any = None
        self.streams: dict[str, Any] = {}

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return await getattr(self, f"on_{request['op']}")(request)
        except MemorydError as error:
            return {"error": error_as_dict(error)}
        except (ParseError, KeyError, AttributeError) as error:
            return {"bad": f"{type(error).__name__}: {error}"}

    async def on_connect(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.on_close(request)
        given = {name: request[name] for name in ("address", "token") if name in request}
        if "timeout_ms" in request:
            given["timeout"] = request["timeout_ms"] / 1000
        if "keepalive_ms" in request:
            given["keepalive"] = request["keepalive_ms"] / 1000
        try:
            if "tls" in request:
                given["tls"] = Tls(**request["tls"])
            self.client = self.connect(**given)
        except (OSError, ValueError) as error:
            return {"refused": str(error)}
        return {"ok": {}}

    async def on_close(self, _: dict[str, Any]) -> dict[str, Any]:
        self.streams.clear()
        if self.client is not None:
            await settled(self.client.close())
        self.client = None
        return {"ok": {}}

    async def on_call(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": MessageToDict(await settled(self.start_call(request)))}

    async def on_memory_tool(self, request: dict[str, Any]) -> dict[str, Any]:
        tool = AsyncMemoryTool if isinstance(self.client, AsyncMemorydClient) else MemoryTool
        return {"ok": {"text": await settled(tool(self.client).execute(request["request"]))}}

    async def on_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.streams[request["stream"]] = self.start_call(request)
        return {"ok": {}}

    async def on_next(self, request: dict[str, Any]) -> dict[str, Any]:
        stream = self.streams[request["stream"]]
        try:
            event = await anext(stream) if hasattr(stream, "__anext__") else next(stream)
        except (StopIteration, StopAsyncIteration):
            return {"end": True}
        return {"ok": MessageToDict(event)}

    async def on_cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        self.streams[request["stream"]].close()
        return {"ok": {}}

    def start_call(self, request: dict[str, Any]) -> Any:
        kind, attribute = METHODS[request["method"]]
        message = ParseDict(request.get("request", {}), getattr(messages, kind)())
        method = self.client
        for name in attribute.split("."):
            method = getattr(method, name)
        return method(message, timeout=request["timeout_ms"] / 1000 if "timeout_ms" in request else None)


def error_as_dict(error: MemorydError) -> dict[str, Any]:
    """Return a typed error in the form of the protocol."""
    after = error.retry_after_seconds
    return {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "metadata": dict(error.metadata),
        "violations": [{"field": each.field, "description": each.description} for each in error.violations],
        **({} if after is None else {"retry_after_ms": round(after * 1000)}),
    }


async def main() -> None:
    """Answer requests until the input ends."""
    runner = Runner(connect_async if "--asyncio" in sys.argv else connect)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        answer = {"id": request["id"], **await runner.answer(request)}
        print(json.dumps(answer, ensure_ascii=False), flush=True)
    await runner.on_close({})


asyncio.run(main())
