"""Types of grpc that only its stubs know to be generic."""

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext

__all__ = ["Context"]
