"""The gRPC edge: the only package that imports grpc."""

from memoryd_server.rpc.authorization import Authorizer, fit_request_id
from memoryd_server.rpc.entry_service import make_entry_service
from memoryd_server.rpc.health import ExtensionService, HealthReporter
from memoryd_server.rpc.local_calls import LocalCaller, LocalCalls
from memoryd_server.rpc.mcp_service import McpWrite, ServeSession, make_mcp_service
from memoryd_server.rpc.memory_service import MemoryService
from memoryd_server.rpc.server import RpcServer

__all__ = [
    "Authorizer",
    "ExtensionService",
    "HealthReporter",
    "LocalCaller",
    "LocalCalls",
    "McpWrite",
    "MemoryService",
    "RpcServer",
    "ServeSession",
    "fit_request_id",
    "make_entry_service",
    "make_mcp_service",
]
