"""Asks a daemon for its health, as a supervisor does."""

from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


@dataclass(frozen=True, slots=True)
class Health:
    """What a daemon says of itself. Without an answer `state` is empty, and `problem` says why."""

    state: str
    problem: str = ""

    @property
    def serving(self) -> bool:
        """Whether it answers searches."""
        return self.state == "SERVING"


def ask_health(channel: grpc.Channel, token: str | None, service: str, seconds: float) -> Health:
    """The health of `service`, or of the whole daemon where that is empty, within so many seconds."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=service)
    try:
        answer = stub.Check(request, timeout=seconds, metadata=metadata)
    except grpc.RpcError as error:
        return Health("", f"{error.code().name}: {error.details()}")
    return Health(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
