import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from memoryd._channel import open_channel
from memoryd.client import MemorydClient, MemorydError, Violation, connect
from memoryd.discovery import Endpoint
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs

grpc_max_workers = 4


def status(code, message, *details):
    packed = []
    for detail in details:
        holder = any_pb2.Any()
        holder.Pack(detail)
        packed.append(holder)
    return status_pb2.Status(code=code, message=message, details=packed)


INVALID = status(
    code_pb2.INVALID_ARGUMENT,
    "query: must not be blank; max_results: must be at least 1",
    error_details_pb2.ErrorInfo(reason="INVALID_REQUEST", domain="memoryd", metadata={"request_id": "r1"}),
    error_details_pb2.BadRequest(
        field_violations=[
            {"field": "query", "description": "must not be blank"},
            {"field": "max_results", "description": "must be at least 1"},
        ]
    ),
)
BUSY = status(
    code_pb2.UNAVAILABLE,
    "the index is held by another process",
    error_details_pb2.Help(),
    error_details_pb2.ErrorInfo(reason="INDEX_BUSY", domain="memoryd"),
    error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000)),
)


@dataclass
class Servicer(stubs.MemoryServiceServicer):
    """Answers every call with what it was sent, or fails as it is told."""

    failure: bytes | None = None
    metadata: dict = field(default_factory=dict)
    remaining: float | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def note(self, context):
        self.metadata = dict(context.invocation_metadata())
        self.remaining = context.time_remaining()
        context.add_callback(self.closed.set)
        if self.failure is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", self.failure),))
            known = status_pb2.Status()
            try:
                known.ParseFromString(self.failure)
            except Exception:  # noqa: BLE001 -- a status that cannot be read is one of the cases
                context.abort(grpc.StatusCode.INTERNAL, "unreadable")
            code = next(code for code in grpc.StatusCode if code.value[0] == known.code)
            context.abort(code, known.message)

    def MemorySearch(self, request, context):
        self.note(context)
        return pb.MemorySearchResponse(results=[{"path": request.query}])

    def ExplainMiss(self, request, context):
        self.note(context)
        return pb.ExplainMissResponse(path=request.path, explanation=request.search.query)

    def MemoryRecall(self, request, context):
        self.note(context)
        return pb.MemoryRecallResponse(block=request.filter.path_prefixes[0])

    def MemoryGet(self, request, context):
        self.note(context)
        return pb.MemoryGetResponse(path=request.path)

    def Status(self, request, context):
        self.note(context)
        return pb.StatusResponse(agent_id=request.agent_id)

    def Sync(self, request, context):
        yield pb.SyncResponse(sync_id="s", sequence=1)
        self.note(context)
        yield pb.SyncResponse(sync_id="s", sequence=2)

    def WatchIndex(self, request, context):
        self.note(context)
        yield pb.WatchIndexResponse(agent_id=request.agent_id)
        self.closed.wait(30)

    def FlushDecision(self, request, context):
        self.note(context)
        return pb.FlushDecisionResponse(projected_tokens=request.total_tokens)

    def MemoryAppend(self, request, context):
        self.note(context)
        return pb.MemoryAppendResponse(path=request.path)

    def MemoryWrite(self, request, context):
        self.note(context)
        return pb.MemoryWriteResponse(path=request.path, version_id=request.idempotency_key)

    def MemoryMove(self, request, context):
        self.note(context)
        return pb.MemoryMoveResponse(path=request.new_path, version_id=request.idempotency_key)

    def MemoryHistory(self, request, context):
        self.note(context)
        return pb.MemoryHistoryResponse(next_page_token=request.page_token)

    def MemoryRestore(self, request, context):
        self.note(context)
        return pb.MemoryRestoreResponse(path=request.path, version_id=request.idempotency_key)

    def MemoryForget(self, request, context):
        self.note(context)
        return pb.MemoryForgetResponse(chunks=len(request.path))

    def SessionContext(self, request, context):
        self.note(context)
        return pb.SessionContextResponse(recall_prompt=request.session_key)

    def SessionArchive(self, request, context):
        self.note(context)
        return pb.SessionArchiveResponse(path=request.transcript)

    def SessionAppend(self, request, context):
        self.note(context)
        return pb.SessionAppendResponse(records=request.expected_records + len(request.records))

    def ListAgents(self, request, context):
        self.note(context)
        return pb.ListAgentsResponse(agents=[{"agent_id": "main"}])

    def ListFiles(self, request, context):
        self.note(context)
        return pb.ListFilesResponse(files=[{"path": request.agent_id}])


@pytest.fixture(scope="module")
def grpc_add_to_server():
    return stubs.add_MemoryServiceServicer_to_server


@pytest.fixture(scope="module")
def grpc_servicer():
    return Servicer()


@pytest.fixture(scope="module")
def grpc_stub_cls():
    return MemorydClient


@pytest.fixture(scope="module")
def grpc_addr(tmp_path_factory):
    # A socket of its own: pytest-grpc's free port can be taken by a test that runs beside this one.
    return f"unix:{tmp_path_factory.mktemp('grpc')}/memoryd.sock"


@pytest.fixture
def servicer(grpc_servicer):
    yield grpc_servicer
    grpc_servicer.failure = None
    grpc_servicer.closed.clear()


@pytest.fixture
def client(grpc_stub):
    return grpc_stub


CALLS = [
    pytest.param(lambda c, **k: c.search(query="q", **k).results[0].path, "q", 5, id="search"),
    pytest.param(lambda c, **k: c.recall(filter={"path_prefixes": ["p/"]}, **k).block, "p/", 2, id="recall"),
    pytest.param(lambda c, **k: c.get(path="p", **k).path, "p", 2, id="get"),
    pytest.param(lambda c, **k: c.status(agent_id="a", **k).agent_id, "a", 2, id="status"),
    pytest.param(lambda c, **k: c.status(agent_id="a", probe=True, **k).agent_id, "a", 10, id="probe"),
    pytest.param(
        lambda c, **k: c.explain_miss(path="p", search={"query": "q"}, **k).explanation, "q", 10, id="explain miss"
    ),
    pytest.param(lambda c, **k: c.flush_decision(total_tokens=7, **k).projected_tokens, 7, 1, id="flush"),
    pytest.param(lambda c, **k: c.forget(path="a.md", **k).chunks, 4, 10, id="forget"),
    pytest.param(lambda c, **k: c.session_context(session_key="k", **k).recall_prompt, "k", 2, id="session context"),
    pytest.param(lambda c, **k: c.session_archive(transcript="t", **k).path, "t", 10, id="session archive"),
    pytest.param(
        lambda c, **k: c.session_append(session_id="s", records=["{}"], expected_records=6, **k).records,
        7,
        5,
        id="session append",
    ),
    pytest.param(lambda c, **k: c.append(path="p", text="t", **k).path, "p", 5, id="append"),
    pytest.param(lambda c, **k: c.write(path="p", content="t", **k).path, "p", 5, id="write"),
    pytest.param(lambda c, **k: c.move(path="p", new_path="n", **k).path, "n", 5, id="move"),
    pytest.param(lambda c, **k: c.history(page_token="t", **k).next_page_token, "t", 5, id="history"),
    pytest.param(lambda c, **k: c.restore(path="p", version_id="v", **k).path, "p", 5, id="restore"),
    pytest.param(lambda c, **k: c.list_agents(**k).agents[0].agent_id, "main", 2, id="agents"),
    pytest.param(lambda c, **k: c.list_files(agent_id="a", **k).files[0].path, "a", 2, id="files"),
]


@pytest.mark.parametrize(("call", "answer", "deadline"), CALLS)
def test_a_call_carries_its_fields_and_its_documented_deadline(client, servicer, call, answer, deadline):
    assert call(client) == answer
    assert deadline - 0.9 < servicer.remaining <= deadline + 0.1


def test_an_edit_has_the_callers_key_or_a_random_one(client):
    edits = (client.write, client.move, client.restore)
    assert {edit(path="p", idempotency_key="mine").version_id for edit in edits} == {"mine"}
    random = {edit(path="p").version_id for edit in edits for _ in range(2)}
    assert len(random) == 6
    assert all(random)


@pytest.mark.parametrize(("call", "answer", "deadline"), CALLS)
def test_a_timeout_replaces_the_documented_deadline(client, servicer, call, answer, deadline):
    assert call(client, timeout=60) == answer
    assert 50 < servicer.remaining <= 60.1


def test_a_clients_own_timeout_replaces_the_documented_deadline(grpc_addr, grpc_server, servicer):
    with connect(grpc_addr, timeout=60) as client:
        client.get(path="p")
    assert servicer.remaining > 50


def test_a_request_message_can_be_passed_instead_of_fields(client):
    assert client.search(pb.MemorySearchRequest(query="q")).results[0].path == "q"


def test_a_nested_message_can_be_passed_as_a_dictionary_of_its_fields(client):
    given = {"since": "2026-05", "front_matter": [{"key": "tags", "values": ["billing"]}]}
    request = pb.MemoryRecallRequest(
        filter=pb.MemoryFilter(since="2026-05", front_matter=[pb.FrontMatterCondition(key="tags", values=["billing"])])
    )
    assert type(client).recall.prepare(None, {"filter": given}) == request


def test_a_request_message_and_fields_together_are_refused(client):
    with pytest.raises(TypeError, match="MemorySearchRequest"):
        client.search(pb.MemorySearchRequest(query="q"), agent_id="a")


def test_the_token_is_sent_as_bearer_token(grpc_addr, grpc_server, servicer):
    with MemorydClient(grpc.insecure_channel(grpc_addr), token="secret") as client:
        client.get(path="p")
    assert servicer.metadata["authorization"] == "Bearer secret"


def test_over_a_unix_socket_no_token_is_sent(grpc_addr, grpc_server, servicer):
    with connect(grpc_addr, token="secret") as client:
        client.get(path="p")
    assert "authorization" not in servicer.metadata


def test_without_a_token_no_credential_is_sent(client, servicer):
    client.get(path="p")
    assert "authorization" not in servicer.metadata


def test_every_violation_of_a_bad_request_arrives(client, servicer):
    servicer.failure = INVALID.SerializeToString()
    with pytest.raises(MemorydError) as caught:
        client.search(query="")
    error = caught.value
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert error.metadata == {"request_id": "r1"}
    assert error.violations == (
        Violation("query", "must not be blank"),
        Violation("max_results", "must be at least 1"),
    )
    assert error.retry_after_seconds is None
    assert str(error) == f"INVALID_REQUEST: {INVALID.message}"


def test_the_time_to_wait_before_a_retry_arrives(client, servicer):
    servicer.failure = BUSY.SerializeToString()
    with pytest.raises(MemorydError) as caught:
        client.get(path="p")
    assert (caught.value.reason, caught.value.retry_after_seconds) == ("INDEX_BUSY", 1.5)


@pytest.mark.parametrize("raw", [b"\xff\xff", status(code_pb2.INTERNAL, "unreadable").SerializeToString()])
def test_a_status_without_readable_details_still_has_code_and_message(client, servicer, raw):
    servicer.failure = raw
    with pytest.raises(MemorydError) as caught:
        client.get(path="p")
    error = caught.value
    assert (error.code, error.reason, error.message) == (grpc.StatusCode.INTERNAL, "", "unreadable")


def test_a_daemon_that_is_not_there_is_unavailable(tmp_path):
    with connect(f"unix:{tmp_path}/none.sock", timeout=20) as client, pytest.raises(MemorydError) as caught:
        client.get(path="p")
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "")
    assert str(caught.value).startswith("UNAVAILABLE: ")


def test_a_sync_yields_its_events_in_order(client):
    assert [event.sequence for event in client.sync(agent_id="a")] == [1, 2]


def test_a_sync_that_fails_midway_raises_after_what_it_had_sent(client, servicer):
    servicer.failure = BUSY.SerializeToString()
    events = client.sync()
    assert next(events).sequence == 1
    with pytest.raises(MemorydError) as caught:
        next(events)
    assert caught.value.reason == "INDEX_BUSY"


def test_leaving_a_watch_ends_the_call(client, servicer):
    with client.watch(agent_id="a") as events:
        assert next(events).agent_id == "a"
        assert servicer.remaining > 1e9
    assert servicer.closed.wait(10)


def test_the_private_messages_leave_the_common_ones_alone(client, servicer):
    info = error_details_pb2.ErrorInfo(reason="A", metadata={"k": "v"})
    assert error_details_pb2.ErrorInfo.FromString(info.SerializeToString()).metadata == {"k": "v"}


def test_a_call_that_ended_unavailable_is_tried_again(tmp_path):
    """Nobody listens at first; the daemon comes while the call is being retried."""
    address = f"unix:{tmp_path}/m.sock"
    server = grpc.server(ThreadPoolExecutor(2))
    stubs.add_MemoryServiceServicer_to_server(Servicer(), server)
    server.add_insecure_port(address)
    with connect(address, timeout=30) as client:
        late = threading.Timer(0.3, server.start)
        late.start()
        assert client.get(path="p").path == "p"
        late.join()
    server.stop(None).wait()


def test_without_retries_a_call_fails_at_once(tmp_path):
    with MemorydClient(open_channel(Endpoint(f"unix:{tmp_path}/none.sock"), retries=False), timeout=60) as client:
        began = time.monotonic()
        with pytest.raises(MemorydError) as caught:
            client.get(path="p")
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < 20
