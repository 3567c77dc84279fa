"""The HTTP edge and MCP. Imported only if they are used, because the packages behind them take long to import."""

from memoryd_server.http.mcp_calls import SessionOwner
from memoryd_server.http.mcp_server import McpServer

__all__ = ["McpServer", "SessionOwner"]
