"""The methods of the clients, with the deadlines that the service documents."""

from memoryd._calls import Streaming, Unary
from memoryd.v1 import entry_service_pb2 as entries
from memoryd.v1 import memory_service_pb2 as pb

_STATUS = 2.0
_STATUS_WITH_PROBE = 10.0


def _status_seconds(request: pb.StatusRequest) -> float:
    return _STATUS_WITH_PROBE if request.probe else _STATUS


class MemoryMethods:
    """The calls of the MemoryService."""

    search = Unary(
        "MemorySearch",
        pb.MemorySearchRequest,
        pb.MemorySearchResponse,
        5.0,
        "Finds the parts of an agent's memory that answer `query`, best first.",
    )
    get = Unary(
        "MemoryGet",
        pb.MemoryGetRequest,
        pb.MemoryGetResponse,
        2.0,
        "Reads a line range of the memory file `path`.",
    )
    status = Unary(
        "Status",
        pb.StatusRequest,
        pb.StatusResponse,
        _status_seconds,
        "Tells how an agent's memory is doing.",
    )
    sync = Streaming(
        "Sync",
        pb.SyncRequest,
        pb.SyncResponse,
        "Starts a sync run, or joins the one under way, and returns its events; the last one is `completed`.",
    )
    watch = Streaming(
        "WatchIndex",
        pb.WatchIndexRequest,
        pb.WatchIndexResponse,
        "Returns an agent's index state at once and after each change, until the stream is closed.",
    )
    flush_decision = Unary(
        "FlushDecision",
        pb.FlushDecisionRequest,
        pb.FlushDecisionResponse,
        1.0,
        "Decides whether the agent should write lasting notes before its context is compacted.",
    )
    append = Unary(
        "MemoryAppend",
        pb.MemoryAppendRequest,
        pb.MemoryAppendResponse,
        5.0,
        "Appends `text` to today's log, or to `path`. An `idempotency_key` of your own lets you try again later.",
    )
    forget = Unary(
        "MemoryForget",
        pb.MemoryForgetRequest,
        pb.MemoryForgetResponse,
        10.0,
        "Removes the file `path`, the session `session_id` or the `text` from every derived store, and counts it.",
    )
    session_context = Unary(
        "SessionContext",
        pb.SessionContextRequest,
        pb.SessionContextResponse,
        2.0,
        "Tells which files a session loads at its start, with their text, and how its agent recalls.",
    )
    session_archive = Unary(
        "SessionArchive",
        pb.SessionArchiveRequest,
        pb.SessionArchiveResponse,
        10.0,
        "Turns the last messages of `transcript` into a memory file; trying again is safe.",
    )
    list_agents = Unary(
        "ListAgents",
        pb.ListAgentsRequest,
        pb.ListAgentsResponse,
        2.0,
        "Lists a page of the agents that the caller may use.",
    )
    list_files = Unary(
        "ListFiles",
        pb.ListFilesRequest,
        pb.ListFilesResponse,
        2.0,
        "Lists a page of an agent's memory files.",
    )


class EntryMethods:
    """The calls of the EntryService: short entries that an agent stores and recalls by meaning."""

    remember = Unary(
        "Remember",
        entries.RememberRequest,
        entries.RememberResponse,
        10.0,
        "Stores `text` unless an entry says the same. An `idempotency_key` of your own lets you try again later.",
    )
    recall = Unary(
        "Recall",
        entries.RecallRequest,
        entries.RecallResponse,
        5.0,
        "Finds the entries nearest to `query`, best first.",
    )
    forget = Unary(
        "Forget",
        entries.ForgetRequest,
        entries.ForgetResponse,
        5.0,
        "Deletes the entry `entry_id`, or the one that `query` clearly means.",
    )
    list = Unary(
        "ListEntries",
        entries.ListEntriesRequest,
        entries.ListEntriesResponse,
        5.0,
        "Lists a page of an agent's entries, newest first.",
    )
    suggest_capture = Unary(
        "SuggestCapture",
        entries.SuggestCaptureRequest,
        entries.SuggestCaptureResponse,
        1.0,
        "Tells which of a turn's `user_messages` would be worth storing; stores nothing.",
    )
    recall_block = Unary(
        "RecallBlock",
        entries.RecallBlockRequest,
        entries.RecallBlockResponse,
        5.0,
        "Recalls what concerns `prompt`, as a block to put before it.",
    )
