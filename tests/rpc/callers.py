"""Callers over TCP: their tokens, and what they call besides the service itself."""

import asyncio
from datetime import UTC, datetime, timedelta

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenFiles
from rpc.wire import TIMEOUT

SERVICE = "memoryd.v1.MemoryService"


def bearer(token):
    return {"metadata": (("authorization", f"Bearer {token}"),)}


def store(home):
    return TokenStore(TokenFiles.in_state_dir(home.state_dir, None).store)


def new_token(home, *agents, name="", age=timedelta(), expires=None, scopes=None):
    """A token for these agents, or for all; `age` makes it as old, `expires` counts from its making."""
    made = datetime.now(UTC) - age
    end = None if expires is None else made + expires
    record, token = store(home).add(name, agents or None, made, end, scopes=scopes)
    return record.token_id, token


def token_file(home, text, mode=0o600):
    file = home.root / "tokens"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(mode)
    return file


async def health(running, service="", **options):
    stub = health_pb2_grpc.HealthStub(running.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT, **options)).status


async def listed(running, **options):
    """The services that reflection tells of."""
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = [reply async for reply in stub.ServerReflectionInfo(iter([request]), **options)]
    return {service.name for service in reply.list_services_response.service}


def health_watch(running, **options):
    return health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest(), **options)


async def silence():
    """A caller that sends nothing: grpc's client fails in its own way when the refusal overtakes what it sends."""
    await asyncio.Event().wait()
    yield


def silent_reflection(running, **options):
    return reflection_pb2_grpc.ServerReflectionStub(running.channel).ServerReflectionInfo(silence(), **options)


# A call of each shape, and of each service on the server.
CALLS = {
    "a call": lambda running, **options: running.stub.ListAgents(pb.ListAgentsRequest(), **options),
    "a stream": lambda running, **options: running.stub.Sync(pb.SyncRequest(), **options),
    "health": lambda running, **options: health_pb2_grpc.HealthStub(running.channel).Check(
        health_pb2.HealthCheckRequest(), **options
    ),
    "a health watch": health_watch,
    "reflection": silent_reflection,
}
