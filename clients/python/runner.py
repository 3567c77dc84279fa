"""Runs the table of all clients with this one: tests/clients/README.md has the protocol."""

import json
import sys
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from memoryd import messages
from memoryd.client import MemorydError, Tls, connect

# Method: its request, and where the client has it.
_METHODS = {
    "search": ("MemorySearchRequest", "search"),
    "get": ("MemoryGetRequest", "get"),
    "status": ("StatusRequest", "status"),
    "flush_decision": ("FlushDecisionRequest", "flush_decision"),
    "append": ("MemoryAppendRequest", "append"),
    "forget": ("MemoryForgetRequest", "forget"),
    "session_context": ("SessionContextRequest", "session_context"),
    "session_archive": ("SessionArchiveRequest", "session_archive"),
    "list_agents": ("ListAgentsRequest", "list_agents"),
    "list_files": ("ListFilesRequest", "list_files"),
    "sync": ("SyncRequest", "sync"),
    "watch": ("WatchIndexRequest", "watch"),
    "remember": ("RememberRequest", "entries.remember"),
    "recall": ("RecallRequest", "entries.recall"),
    "forget_entry": ("ForgetRequest", "entries.forget"),
    "list_entries": ("ListEntriesRequest", "entries.list"),
    "suggest_capture": ("SuggestCaptureRequest", "entries.suggest_capture"),
    "recall_block": ("RecallBlockRequest", "entries.recall_block"),
}


class Runner:
    """One client at a time, and its streams."""

    def __init__(self) -> None:
        self.client: Any = None
        self.streams: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return getattr(self, f"on_{request['op']}")(request)
        except MemorydError as error:
            return {"error": told(error)}
        except (ParseError, KeyError, AttributeError) as error:
            return {"bad": f"{type(error).__name__}: {error}"}

    def on_connect(self, request: dict[str, Any]) -> dict[str, Any]:
        self.on_close(request)
        given = {name: request[name] for name in ("address", "token") if name in request}
        if "keepalive_ms" in request:
            given["keepalive"] = request["keepalive_ms"] / 1000
        try:
            if "tls" in request:
                given["tls"] = Tls(**request["tls"])
            self.client = connect(**given)
        except (OSError, ValueError) as error:
            return {"refused": str(error)}
        return {"ok": {}}

    def on_close(self, _: dict[str, Any]) -> dict[str, Any]:
        self.streams.clear()
        if self.client is not None:
            self.client.close()
        self.client = None
        return {"ok": {}}

    def on_call(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": MessageToDict(self.called(request))}

    def on_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.streams[request["stream"]] = self.called(request)
        return {"ok": {}}

    def on_next(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": MessageToDict(next(self.streams[request["stream"]]))}
        except StopIteration:
            return {"end": True}

    def on_cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        self.streams[request["stream"]].close()
        return {"ok": {}}

    def called(self, request: dict[str, Any]) -> Any:
        kind, place = _METHODS[request["method"]]
        message = ParseDict(request.get("request", {}), getattr(messages, kind)())
        method = self.client
        for name in place.split("."):
            method = getattr(method, name)
        timeout = request["timeout_ms"] / 1000 if "timeout_ms" in request else None
        return method(message, timeout=timeout)


def told(error: MemorydError) -> dict[str, Any]:
    """A typed error as the protocol has it."""
    after = error.retry_after_seconds
    return {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "metadata": dict(error.metadata),
        "violations": [{"field": each.field, "description": each.description} for each in error.violations],
        **({} if after is None else {"retry_after_ms": round(after * 1000)}),
    }


def main() -> None:
    """Answers until the input ends."""
    runner = Runner()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"id": request["id"], **runner.answer(request)}, ensure_ascii=False), flush=True)  # noqa: T201
    runner.on_close({})


main()
