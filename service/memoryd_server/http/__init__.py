"""The HTTP edge and MCP. Imported only if they are used, because the packages behind them take long to import."""

from memoryd_server.http.connection import HttpLimits
from memoryd_server.http.mcp_calls import SessionOwner
from memoryd_server.http.mcp_http import McpLimits
from memoryd_server.http.mcp_server import McpServer
from memoryd_server.http.request_headers import AllowedSources
from memoryd_server.http.server import EdgeParts, HttpServer

__all__ = ["AllowedSources", "EdgeParts", "HttpLimits", "HttpServer", "McpLimits", "McpServer", "SessionOwner"]
