"""Requests that name an agent, one an RPC."""

from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT

# The requests that name an agent, each otherwise valid.
AGENT_CALLS = {
    "MemorySearch": pb.MemorySearchRequest(query="x"),
    "MemoryGet": pb.MemoryGetRequest(path="MEMORY.md"),
    "Status": pb.StatusRequest(),
    "Sync": pb.SyncRequest(),
    "WatchIndex": pb.WatchIndexRequest(),
    "FlushDecision": pb.FlushDecisionRequest(),
    "MemoryAppend": pb.MemoryAppendRequest(text="x"),
    "MemoryForget": pb.MemoryForgetRequest(path="MEMORY.md"),
    "SessionContext": pb.SessionContextRequest(),
    "SessionArchive": pb.SessionArchiveRequest(transcript="x.jsonl"),
    "ListFiles": pb.ListFilesRequest(),
}


def call(running, method, request, **options):
    return getattr(running.stub, method)(request, timeout=TIMEOUT, **options)


def for_agent(method, agent_id):
    request = type(AGENT_CALLS[method])()
    request.CopyFrom(AGENT_CALLS[method])
    request.agent_id = agent_id
    return request
