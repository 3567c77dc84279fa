"""What an extension of the daemon adds to the gRPC edge."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2


class ServiceHealth(Protocol):
    """The health of one gRPC service."""

    def first(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """Return the state before the first check."""

    async def status(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """Check now, and return the state."""


@dataclass(frozen=True, slots=True)
class ExtensionService:
    """A gRPC service by its full name. `add` is the generated function that adds `servicer` to a server.

    Without `health`, it is not checked.
    """

    name: str
    servicer: object
    add: Callable[[Any, grpc.aio.Server], None]
    health: ServiceHealth | None = None
