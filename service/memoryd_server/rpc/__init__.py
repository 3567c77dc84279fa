"""The gRPC edge; only importer of grpc."""

from memoryd_server.rpc.entry_service import make_entry_service
from memoryd_server.rpc.health import ExtensionService, HealthReporter
from memoryd_server.rpc.interceptors import Authorizer
from memoryd_server.rpc.memory_service import MemoryService
from memoryd_server.rpc.server import RpcServer

__all__ = [
    "Authorizer",
    "ExtensionService",
    "HealthReporter",
    "MemoryService",
    "RpcServer",
    "make_entry_service",
]
