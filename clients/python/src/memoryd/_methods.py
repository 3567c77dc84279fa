"""The methods of the clients, with the documented deadlines in seconds."""

from memoryd._calls import Streaming, Unary
from memoryd.v1 import entry_service_pb2 as entries
from memoryd.v1 import memory_service_pb2 as pb

_STATUS = 2.0
_STATUS_WITH_PROBE = 10.0


def _status_seconds(request: pb.StatusRequest) -> float:
    return _STATUS_WITH_PROBE if request.probe else _STATUS


class MemoryMethods:
    """The methods of the MemoryService."""

    search = Unary(
        "MemorySearch",
        pb.MemorySearchRequest,
        pb.MemorySearchResponse,
        5.0,
        "Search an agent's memory for `query`; the best results are first.",
    )
    explain_miss = Unary(
        "ExplainMiss",
        pb.ExplainMissRequest,
        pb.ExplainMissResponse,
        10.0,
        "Run the search `search`, and return the step that leaves out the file `path`, or its rank if it is found.",
    )
    recall = Unary(
        "MemoryRecall",
        pb.MemoryRecallRequest,
        pb.MemoryRecallResponse,
        2.0,
        "Return the memories that are relevant for a turn with `text`, as a text block to insert before it.",
    )
    get = Unary(
        "MemoryGet",
        pb.MemoryGetRequest,
        pb.MemoryGetResponse,
        2.0,
        "Read a line range of the memory file `path`.",
    )
    status = Unary(
        "Status",
        pb.StatusRequest,
        pb.StatusResponse,
        _status_seconds,
        "Return the status of an agent's index, embedding provider, watchers and caches.",
    )
    sync = Streaming(
        "Sync",
        pb.SyncRequest,
        pb.SyncResponse,
        "Start a sync run, or join the current one, and return its events; the last one is `completed`.",
    )
    watch = Streaming(
        "WatchIndex",
        pb.WatchIndexRequest,
        pb.WatchIndexResponse,
        "Return an agent's current index state, and each new state until the stream is closed.",
    )
    flush_decision = Unary(
        "FlushDecision",
        pb.FlushDecisionRequest,
        pb.FlushDecisionResponse,
        1.0,
        "Decide whether the agent should write notes before its context is compacted.",
    )
    append = Unary(
        "MemoryAppend",
        pb.MemoryAppendRequest,
        pb.MemoryAppendResponse,
        5.0,
        "Append `text` to today's log, or to `path`. With your own `idempotency_key` you can retry the call later.",
    )
    write = Unary(
        "MemoryWrite",
        pb.MemoryWriteRequest,
        pb.MemoryWriteResponse,
        5.0,
        "Create, replace, edit or delete the file `path`, if it still has the content of `expected_sha256`.",
    )
    move = Unary(
        "MemoryMove",
        pb.MemoryMoveRequest,
        pb.MemoryMoveResponse,
        5.0,
        "Rename the file `path` to `new_path`, if it still has the content of `expected_sha256`.",
    )
    history = Unary(
        "MemoryHistory",
        pb.MemoryHistoryRequest,
        pb.MemoryHistoryResponse,
        5.0,
        "List a page of the writes of the file `path`, or of all files, newest first.",
    )
    restore = Unary(
        "MemoryRestore",
        pb.MemoryRestoreRequest,
        pb.MemoryRestoreResponse,
        5.0,
        "Restore the content that the write `version_id` replaced or deleted; itself a write.",
    )
    forget = Unary(
        "MemoryForget",
        pb.MemoryForgetRequest,
        pb.MemoryForgetResponse,
        10.0,
        "Remove the file `path`, the session `session_id` or the `text` from the index and the caches.",
    )
    session_context = Unary(
        "SessionContext",
        pb.SessionContextRequest,
        pb.SessionContextResponse,
        2.0,
        "Return the files that a session loads at its start, with their text, and the recall prompt and tools.",
    )
    session_archive = Unary(
        "SessionArchive",
        pb.SessionArchiveRequest,
        pb.SessionArchiveResponse,
        10.0,
        "Write the last messages of `transcript` to a memory file; a retry is safe.",
    )
    session_append = Unary(
        "SessionAppend",
        pb.SessionAppendRequest,
        pb.SessionAppendResponse,
        5.0,
        "Append `records` to the transcript of `session_id`. Not retried; repeat it with `expected_records`.",
    )
    list_agents = Unary(
        "ListAgents",
        pb.ListAgentsRequest,
        pb.ListAgentsResponse,
        2.0,
        "List a page of the agents that the caller may use.",
    )
    list_files = Unary(
        "ListFiles",
        pb.ListFilesRequest,
        pb.ListFilesResponse,
        2.0,
        "List a page of an agent's memory files.",
    )


class EntryMethods:
    """The methods of the EntryService: short texts that an agent stores and recalls by meaning."""

    remember = Unary(
        "Remember",
        entries.RememberRequest,
        entries.RememberResponse,
        10.0,
        "Store `text` unless an entry has the same meaning. With your own `idempotency_key` you can retry later.",
    )
    recall = Unary(
        "Recall",
        entries.RecallRequest,
        entries.RecallResponse,
        5.0,
        "Find the entries nearest in meaning to `query`; the best are first.",
    )
    forget = Unary(
        "Forget",
        entries.ForgetRequest,
        entries.ForgetResponse,
        5.0,
        "Delete the entry `entry_id`, or the one that `query` clearly matches.",
    )
    list = Unary(
        "ListEntries",
        entries.ListEntriesRequest,
        entries.ListEntriesResponse,
        5.0,
        "List a page of an agent's entries, newest first.",
    )
    suggest_capture = Unary(
        "SuggestCapture",
        entries.SuggestCaptureRequest,
        entries.SuggestCaptureResponse,
        1.0,
        "Suggest which of a turn's `user_messages` to store; nothing is stored.",
    )
    recall_block = Unary(
        "RecallBlock",
        entries.RecallBlockRequest,
        entries.RecallBlockResponse,
        5.0,
        "Recall entries for `prompt`, as a text block to put before it.",
    )
