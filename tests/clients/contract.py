"""The methods of the runners, and the contract's messages behind them."""

from google.protobuf.json_format import ParseDict

from memoryd import messages

# Method: its RPC, and its part of the names of the messages.
UNARY = {
    "search": "MemorySearch",
    "explain_miss": "ExplainMiss",
    "recall": "MemoryRecall",
    "get": "MemoryGet",
    "status": "Status",
    "flush_decision": "FlushDecision",
    "append": "MemoryAppend",
    "write": "MemoryWrite",
    "move": "MemoryMove",
    "history": "MemoryHistory",
    "restore": "MemoryRestore",
    "forget": "MemoryForget",
    "session_context": "SessionContext",
    "session_archive": "SessionArchive",
    "session_append": "SessionAppend",
    "list_agents": "ListAgents",
    "list_files": "ListFiles",
}
STREAMS = {"sync": "Sync", "watch": "WatchIndex"}
ENTRIES = {
    "remember": "Remember",
    "recall_entries": "Recall",
    "forget_entry": "Forget",
    "list_entries": "ListEntries",
    "suggest_capture": "SuggestCapture",
    "recall_block": "RecallBlock",
}
METHODS = {**UNARY, **STREAMS, **ENTRIES}


def full(method, answer):
    """An answer with the defaults that proto3 JSON leaves out; fails when it is not proto3 JSON of the contract."""
    return messages.to_dict(ParseDict(answer, getattr(messages, f"{METHODS[method]}Response")()))


def full_error(error):
    """A runner's error with what may be left out of it."""
    assert isinstance(error, dict), error
    assert error.get("code"), error
    return {"reason": "", "message": "", "metadata": {}, "violations": [], **error}
