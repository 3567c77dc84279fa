"""Refused calls leave nothing in memory that only the garbage collector could free."""

import gc

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.errors import MemorydError
from rpc.wire import TIMEOUT, refused
from waiting import eventually


@pytest.fixture
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def errors_in_memory():
    return [found for found in gc.get_objects() if isinstance(found, MemorydError)]


REFUSED = {
    "at once": lambda stub: stub.MemorySearch(pb.MemorySearchRequest(query=""), timeout=TIMEOUT),
    "on a thread": lambda stub: stub.MemoryGet(pb.MemoryGetRequest(path="memory/none.md"), timeout=TIMEOUT),
    "a stream": lambda stub: stub.Sync(pb.SyncRequest(agent_id="nobody"), timeout=TIMEOUT),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("no_collections")
async def test_a_refused_call_leaves_no_error_in_memory(serve, call):
    running = await serve()
    for _ in range(3):
        await refused(call(running.stub))
    await eventually(lambda: not errors_in_memory())
