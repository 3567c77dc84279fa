"""The gRPC edge; only importer of grpc."""

from memoryd_server.rpc.entry_service import make_entry_service
from memoryd_server.rpc.health import ExtensionService, HealthAnswer, HealthReporter, ask_health
from memoryd_server.rpc.interceptors import Authorizer
from memoryd_server.rpc.memory_service import MemoryService, utc_now
from memoryd_server.rpc.server import RpcServer
from memoryd_server.rpc.wire import make_cursor

__all__ = [
    "Authorizer",
    "ExtensionService",
    "HealthAnswer",
    "HealthReporter",
    "MemoryService",
    "RpcServer",
    "ask_health",
    "make_cursor",
    "make_entry_service",
    "utc_now",
]
