"""Requests that name an agent, one an RPC."""

import importlib.util

from memoryd.v1 import entry_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT

HAS_LANCEDB = importlib.util.find_spec("lancedb") is not None

ENTRY_CALLS = {
    "Remember": entry_service_pb2.RememberRequest(text="x"),
    "Recall": entry_service_pb2.RecallRequest(query="x"),
    "Forget": entry_service_pb2.ForgetRequest(query="y"),
    "ListEntries": entry_service_pb2.ListEntriesRequest(),
    "SuggestCapture": entry_service_pb2.SuggestCaptureRequest(user_messages=["x"]),
    "RecallBlock": entry_service_pb2.RecallBlockRequest(prompt="what is x"),
}

# The requests that name an agent, each otherwise valid.
AGENT_CALLS = {
    **ENTRY_CALLS,
    "MemorySearch": pb.MemorySearchRequest(query="x"),
    "ExplainMiss": pb.ExplainMissRequest(search=pb.MemorySearchRequest(query="x"), path="MEMORY.md"),
    "MemoryRecall": pb.MemoryRecallRequest(text="x"),
    "MemoryGet": pb.MemoryGetRequest(path="MEMORY.md"),
    "Status": pb.StatusRequest(),
    "Sync": pb.SyncRequest(),
    "WatchIndex": pb.WatchIndexRequest(),
    "FlushDecision": pb.FlushDecisionRequest(),
    "MemoryAppend": pb.MemoryAppendRequest(text="x"),
    "MemoryWrite": pb.MemoryWriteRequest(path="memory/written.md", content="x", idempotency_key="x"),
    "MemoryMove": pb.MemoryMoveRequest(path="memory/written.md", new_path="memory/moved.md", expected_sha256="0" * 64),
    "MemoryHistory": pb.MemoryHistoryRequest(include_diffs=True),
    "MemoryRestore": pb.MemoryRestoreRequest(version_id="x"),
    "MemoryForget": pb.MemoryForgetRequest(path="MEMORY.md"),
    "SessionContext": pb.SessionContextRequest(),
    "SessionArchive": pb.SessionArchiveRequest(transcript="x.jsonl"),
    "SessionAppend": pb.SessionAppendRequest(session_id="x", records=["{}"]),
    "ListFiles": pb.ListFilesRequest(),
}


def call(running, method, request, **options):
    stub = running.entries if method in ENTRY_CALLS else running.stub
    return getattr(stub, method)(request, timeout=TIMEOUT, **options)


def stores_transcripts(running):
    """Whether the daemon answers SessionAppend: with documents in a database."""
    return all(config.documents_driver == "postgres" for config in running.daemon.agents.configs().values())


def for_agent(method, agent_id):
    request = type(AGENT_CALLS[method])()
    request.CopyFrom(AGENT_CALLS[method])
    request.agent_id = agent_id
    return request
